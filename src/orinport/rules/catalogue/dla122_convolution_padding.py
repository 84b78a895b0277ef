"""Convolution padding out of range, or not smaller than the kernel.

## What it checks
Padding before and after the image, in each dimension, lies in 0 to 31 (Xavier with TensorRT 5 to 7.0: 0 to 15)
and is smaller than the kernel in that dimension. Each of the four values is checked. The kernel is taken as it is,
without its dilation, as the header says "kernel size".

## Why it matters
The DLA pads while it reads; a pad as large as the kernel would give output rows that see padding only. TensorRT
refuses the layer.

## Example
A 1x1 convolution with padding 1, a 3x3 convolution with pads [0, 0, 3, 3], or the atrous 3x3 convolutions of
DeepLab, whose padding equals their dilation.

## What to do
Cut the padding to kernel - 1. The rows and columns beyond that depend on the bias alone and are best dropped in
training code; where they are needed, pad the input in the layer that makes it.

## Fix safety
conv-pads-to-pad is exact; the DLA takes what it makes from TensorRT 10.4 on. Before, conv-pads-to-convs is the same for
finite numbers only and needs consent.

## Source
Rows C03a and C03b: NvInfer.h, developer guides 8.4 and 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import CONV_PADS_TO_CONVS, CONV_PADS_TO_PAD
from orinport.rules.rule import LayerRule
from orinport.rules.support import between, bounds, by, finding, speaking, within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ConvolutionPadding(LayerRule):
    code = "DLA122"
    title = "Convolution padding is out of range"
    rows = ("C03a", "C03b")
    kinds = (LayerKind.CONVOLUTION,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = speaking(context, self.rows)
        if row is None:
            return
        before, after = layer["pre_padding"], layer["post_padding"]
        value = (*before, *after)
        if not any(value):
            return
        # A slice that fills, which Pad becomes, is taken from TensorRT 10.4 on.
        fix = CONV_PADS_TO_PAD if "V03c" in context.rows else CONV_PADS_TO_CONVS
        if not within(value, row):
            yield finding(
                self,
                layer,
                row,
                f"The padding is {by(before)} before and {by(after)} after; the DLA takes {between(row)}.",
                value=value,
                limit=bounds(row),
                advice="Pad less here, and the rest in the layer that makes the input.",
                fix=fix,
            )
            return
        if not row.values.get("below_kernel"):
            return
        kernel, dilated = layer["kernel"], max(layer["dilation"]) > 1
        for pads in (before, after):
            for pad, size in zip(pads, kernel, strict=False):
                if pad >= size:
                    yield finding(
                        self,
                        layer,
                        row,
                        f"The padding {by(pads)} is not smaller than the kernel {by(kernel)}; the DLA asks for that"
                        + (", and dilation does not count." if dilated else "."),
                        value=pad,
                        limit=size - 1,
                        advice="Pad in the layer that makes the input, or dilate less."
                        if dilated
                        else f"Cut the padding to {size - 1}: what lies beyond sees no input at all.",
                        fix=fix,
                    )
                    return


RULE = ConvolutionPadding()
