"""A Slice of a tensor that is not 4-D, or over its first dimension.

## What it checks
The input is 4-D, and the slice takes all of the first dimension.

## Why it matters
Slices of token sequences (rank 3) and of flattened predictions go to the GPU.

## Example
Slice of (1, 25200, 85) along the last axis. The builder says: "DLA only supports slicing 4 dimensional
tensors."

## What to do
Slice before the reshape, where the tensor is still (N, C, H, W).

## Fix safety
The rewrite slice-to-4d is exact: the same elements from a 4-D tensor of the same order.

## Source
Rows V01a and V06: NvInfer.h from 8.4.1 on, developer guide 8.5, operator reference; builder log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import SLICE_TO_4D
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, slice_extent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class SliceShape(LayerRule):
    code = "DLA181"
    title = "Slice of a tensor that is not 4-D, or over the batch"
    rows = ("V01a", "V06")
    kinds = (LayerKind.SLICE,)
    fix = SLICE_TO_4D

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("V01a")
        if row is None:
            return
        data = layer.inputs[0]
        if data.shape is None:  # DLA103 speaks
            return
        rank = row.values["rank"]
        if len(data.shape) != rank:
            yield finding(
                self,
                layer,
                row,
                f"The input {list(data.shape)} has rank {len(data.shape)}; the DLA slices tensors of rank {rank}.",
                value=len(data.shape),
                limit=rank,
                advice="Slice where the tensor is still (N, C, H, W).",
                fix=SLICE_TO_4D if set(layer["stride"] or ()) <= {1} else None,
            )
            return
        start, size = slice_extent(layer, 0, "start"), slice_extent(layer, 0, "size")
        if start in (None, 0) and size in (None, data.shape[0]):
            return
        yield finding(
            self,
            layer,
            row,
            f"The slice takes {size} of {data.shape[0]} along the batch, from {start}; the DLA slices C, H and W only.",
            value=(start, size),
            limit=(0, data.shape[0]),
            advice="Slice the batch outside of the network.",
        )


RULE = SliceShape()
