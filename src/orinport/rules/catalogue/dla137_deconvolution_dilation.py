"""A dilated deconvolution.

## What it checks
The dilation is 1 in each dimension.

## Why it matters
A dilated deconvolution is refused.

## Example
A ConvTranspose with dilations [2, 2].

## What to do
Write the dilation into the kernel as zeros, if the kernel stays within 32.

## Fix safety
The rewrite conv-transpose-to-unpadded is exact: the same sums, with a Slice for what is cut off, one deconvolution a
group, or a convolution where the stride is 1.

## Source
Row D07b: developer guides 8.4 and 8.5, current documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import CONV_TRANSPOSE_TO_UNPADDED
from orinport.rules.rule import LayerRule
from orinport.rules.support import outside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_ADVICE = "Write the dilation into the kernel as zeros."


class DeconvolutionDilation(LayerRule):
    code = "DLA137"
    title = "Deconvolution is dilated"
    rows = ("D07b",)
    kinds = (LayerKind.DECONVOLUTION,)
    fix = CONV_TRANSPOSE_TO_UNPADDED

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        fix = CONV_TRANSPOSE_TO_UNPADDED if layer["constant_kernel"] else None
        return outside(self, layer, context, "dilation", advice=_ADVICE, fix=fix)


RULE = DeconvolutionDilation()
