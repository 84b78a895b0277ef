"""A concatenation along another axis than the channels.

## What it checks
The axis is the channel, that is the third from the end. A tensor of rank 2 has none.

## Why it matters
Detection heads that concatenate boxes of several scales along the last axis are refused.

## Example
A Concat of (1, 85, 6400), (1, 85, 1600) and (1, 85, 400) along axis 2.

## What to do
Return the tensors as separate outputs and concatenate them afterwards; or transpose so that the axis becomes
the channel.

## Fix safety
The rewrite concat-to-channels is exact: the axis changes places with the channels before and after.

## Source
Row N01: NvInfer.h from 7.1.3 on, developer guides 8.4 and 8.5, current documentation. Builder: "DLA only
supports concatenation on the C dimension."
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import CONCAT_TO_CHANNELS
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ConcatenationAxis(LayerRule):
    code = "DLA174"
    title = "Concatenation is not along the channels"
    rows = ("N01",)
    kinds = (LayerKind.CONCATENATION,)
    fix = CONCAT_TO_CHANNELS

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("N01")
        if row is None:
            return
        rank = layer.outputs[0].rank
        if rank is None:  # DLA103 speaks
            return
        axis, channel = layer["axis"], rank - row.values["axis_from_end"]
        if axis == channel:
            return
        where = f"the channel is axis {channel}" if channel >= 0 else "it has no channel axis"
        yield finding(
            self,
            layer,
            row,
            f"The axis is {axis} of a tensor of rank {rank}; the DLA concatenates along channels only, and {where}.",
            value=axis,
            limit=channel,
            advice="Return the parts as separate outputs, or transpose so that this axis becomes the channel.",
            fix=CONCAT_TO_CHANNELS if rank != 4 or axis != 0 else None,
        )


RULE = ConcatenationAxis()
