"""A convolution stride outside the DLA's range.

## What it checks
The stride lies in 1 to 8 in each dimension.

## Why it matters
Patch embeddings of vision transformers have strides of 14 or 16 and are refused, although their kernels fit.

## Example
A Conv with kernel 16x16 and stride 16 (ViT-B/16).

## What to do
Split the stride into two factors: a rearrangement of 2x2 or 4x4 blocks into channels by a one-hot convolution of
that stride, then the convolution with the remaining stride and its weights rearranged alike.

## Fix safety
The rewrite conv-stride-to-channels is exact: the same products in another order of summation.

## Source
Row C04: NvInfer.h from 5.1.5 on, developer guides 8.4 and 8.5, current documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import CONV_STRIDE_TO_CHANNELS
from orinport.rules.rule import LayerRule
from orinport.rules.support import outside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_ADVICE = "Split the stride into two factors: move blocks into channels with a one-hot convolution first."


class ConvolutionStride(LayerRule):
    code = "DLA123"
    title = "Convolution stride is out of range"
    rows = ("C04",)
    kinds = (LayerKind.CONVOLUTION,)
    fix = CONV_STRIDE_TO_CHANNELS

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        fix = CONV_STRIDE_TO_CHANNELS if layer["constant_kernel"] else None
        return outside(self, layer, context, "stride", advice=_ADVICE, fix=fix)


RULE = ConvolutionStride()
