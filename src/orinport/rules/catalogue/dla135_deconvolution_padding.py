"""A deconvolution with padding.

## What it checks
Padding is 0 on every side. On Xavier with TensorRT 5 to 7.0: 0 to 15.

## Why it matters
The usual upsampling layers have padding: kernel 4, stride 2, padding 1 in PyTorch, or "same" in Keras, where
TensorRT crops the output. All of them are refused.

## Example
A ConvTranspose with kernel_shape [4, 4], strides [2, 2], pads [1, 1, 1, 1].

## What to do
Use padding 0 and cut the borders off with a Slice (in FP16 on the DLA), or use Resize and a convolution.

## Fix safety
The rewrite conv-transpose-to-unpadded is exact: the same sums, with a Slice for what is cut off, one deconvolution a
group, or a convolution where the stride is 1. In INT8, which has no Slice, deconv-to-phases is exact too: a convolution
for each phase of the stride.

## Source
Rows D06a, D06b and D09: NvInfer.h, developer guides 8.4 and 8.5, current documentation; NVIDIA/TensorRT issue
3365 for the way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import CONV_TRANSPOSE_TO_UNPADDED
from orinport.rules.rule import LayerRule
from orinport.rules.support import between, bounds, by, deconvolution_fix, finding, speaking, within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class DeconvolutionPadding(LayerRule):
    code = "DLA135"
    title = "Deconvolution has padding"
    rows = ("D06a", "D06b", "D09")
    kinds = (LayerKind.DECONVOLUTION,)
    fix = CONV_TRANSPOSE_TO_UNPADDED

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = speaking(context, ("D06a", "D06b"))
        if row is None:
            return
        before, after = layer["pre_padding"], layer["post_padding"]
        value = (*before, *after)
        if within(value, row):
            return
        yield finding(
            self,
            layer,
            row,
            f"The padding is {by(before)} before and {by(after)} after; the DLA takes {between(row)}.",
            value=value,
            limit=bounds(row),
            advice="Use padding 0 and cut the borders off with a Slice, or use Resize and a convolution.",
            fix=deconvolution_fix(layer, context),
        )


RULE = DeconvolutionPadding()
