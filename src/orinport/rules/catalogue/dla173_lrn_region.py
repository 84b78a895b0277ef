"""A local response normalisation that does not work across channels; and a note on INT8.

## What it checks
The region is across channels. In INT8 the layer is taken and computed in FP16, which a note says.

## Why it matters
A normalisation within each channel is refused.

## Example
An LRN layer of Caffe with norm_region WITHIN_CHANNEL.

## What to do
Normalise across channels.

## Fix safety
No rewrite is applied.

## Source
Row L01b: developer guides 8.4 and 8.5, current documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class LrnRegion(LayerRule):
    code = "DLA173"
    title = "LRN does not work across channels, or is computed in FP16"
    rows = ("L01b",)
    kinds = (LayerKind.LRN,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("L01b")
        if row is None:
            return
        if not layer["across_channels"]:
            yield finding(
                self,
                layer,
                row,
                "The normalisation works within each channel; the DLA takes it across channels only.",
                value="within channels",
                limit="across channels",
                advice="Normalise across channels.",
            )
        elif context.precision is Precision.INT8:
            yield finding(
                self,
                layer,
                row,
                "The normalisation is computed in FP16, also in an INT8 network.",
                value="int8",
                limit="fp16",
                advice="Nothing to do; expect conversions around this layer.",
                verdict=None,
            )


RULE = LrnRegion()
