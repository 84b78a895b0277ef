"""More output channels than the DLA takes.

## What it checks
A convolution's or fully connected layer's output channels lie in 1 to 8192.

## Why it matters
Classifiers over large vocabularies and wide matrix products, written as 1x1 convolutions, exceed it.

## Example
A fully connected layer with 21841 classes.

## What to do
Split the layer into several with at most 8192 output channels each, and concatenate them along the channels if
something on the DLA reads the result.

## Fix safety
No rewrite is applied.

## Source
Row C06: NvInfer.h from 5.1.5 on, developer guides 8.4 and 8.5, current documentation.
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


class ConvolutionOutputMaps(LayerRule):
    code = "DLA125"
    title = "Too many output channels"
    rows = ("C06",)
    kinds = (LayerKind.CONVOLUTION, LayerKind.FULLY_CONNECTED)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = speaking(context, self.rows)
        if row is None:
            return
        low, high = bounds(row)
        maps = layer["output_maps"]
        if low <= maps <= high:
            return
        yield finding(
            self,
            layer,
            row,
            f"The layer has {maps} output channels; the DLA takes {between(row)}.",
            value=maps,
            limit=(low, high),
            advice=f"Split it into layers of at most {high} output channels each.",
        )


RULE = ConvolutionOutputMaps()
