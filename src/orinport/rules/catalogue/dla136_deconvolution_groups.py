"""A grouped deconvolution.

## What it checks
The number of groups is 1.

## Why it matters
Depthwise upsampling, common in light segmentation networks, is refused.

## Example
A ConvTranspose with group 64.

## What to do
Fill the weight with zeros to a dense one (exact, more work), or use Resize and a depthwise convolution.

## Fix safety
The rewrite conv-transpose-to-unpadded is exact: the same sums, with a Slice for what is cut off, one deconvolution a
group, or a convolution where the stride is 1. In INT8, which has no Slice, deconv-to-phases is exact too: a convolution
for each phase of the stride.

## Source
Row D07a: NvInfer.h from 7.1.3 on, developer guides 8.4 and 8.5, current documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import CONV_TRANSPOSE_TO_UNPADDED
from orinport.rules.rule import LayerRule
from orinport.rules.support import between, bounds, deconvolution_fix, finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class DeconvolutionGroups(LayerRule):
    code = "DLA136"
    title = "Deconvolution has groups"
    rows = ("D07a",)
    kinds = (LayerKind.DECONVOLUTION,)
    fix = CONV_TRANSPOSE_TO_UNPADDED

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("D07a")
        if row is None:
            return
        low, high = bounds(row)
        groups = layer["groups"]
        if low <= groups <= high:
            return
        yield finding(
            self,
            layer,
            row,
            f"The deconvolution has {groups} groups; the DLA takes {between(row)}.",
            value=groups,
            limit=high,
            advice="Fill the weight with zeros to a dense one, or use Resize and a depthwise convolution.",
            fix=deconvolution_fix(layer, context),
        )


RULE = DeconvolutionGroups()
