"""More convolution groups than the DLA takes.

## What it checks
The number of groups lies in 1 to 8192, for the formats kLINEAR, kCHW16 and kCHW32. Depthwise convolution is
therefore allowed. An input in kDLA_HWC4 allows four groups at most; that is checked with the formats.

## Why it matters
A layer with more groups is refused.

## Example
A depthwise convolution over 9216 channels.

## What to do
Split the layer along the channels.

## Fix safety
No rewrite is applied.

## Source
Row C07: NvInfer.h from 7.1.3 on, developer guides 8.4 and 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import between, bounds, finding, speaking

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ConvolutionGroups(LayerRule):
    code = "DLA126"
    title = "Too many convolution groups"
    rows = ("C07",)
    kinds = (LayerKind.CONVOLUTION,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = speaking(context, self.rows)
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
            f"The convolution has {groups} groups; the DLA takes {between(row)}.",
            value=groups,
            limit=(low, high),
            advice=f"Split it along the channels into convolutions of at most {high} groups.",
        )


RULE = ConvolutionGroups()
