"""A channel, height or width is out of range.

## What it checks
Each of the last three dimensions of every tensor that a layer reads or writes is between 1 and 8192.

## Why it matters
The DLA's counters for these dimensions end there. Flattened feature maps exceed them easily.

## Example
A tensor (1, 1, 1, 8400) has width 8400.

## What to do
Spread the elements over C, H and W with a reshape, or cut the tensor in parts.

## Fix safety
No rewrite is applied.

## Source
Rows G05, V05 and M06: NvInfer.h 7.1.3 to 11.1 (TensorFormat), TensorRT 8.5 Developer Guide, documentation 10.16
to 11.4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rules.rule import NetworkRule
from orinport.rules.support import finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class Dimensions(NetworkRule):
    code = "DLA101"
    title = "Channel, height or width is out of range"
    rows = ("G05", "V05", "M06")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        row = context.rows.get("G05")
        if row is None:
            return
        low, high = row.values["min"], row.values["max"]
        for layer in layers:
            for tensor in (*layer.inputs, *layer.outputs):
                tail = (tensor.shape or ())[-3:]
                if tensor.constant or not tail or (max(tail) <= high and min(tail) >= low):
                    continue
                worst = next(size for size in tail if not low <= size <= high)
                yield finding(
                    self,
                    layer,
                    row,
                    f"The tensor {tensor.name!r} of shape {list(tensor.shape or ())} has a dimension of {worst};"
                    f" channel, height and width are {low} to {high} on the DLA.",
                    value=worst,
                    limit=high if worst > high else low,
                    advice="Spread the elements over channel, height and width, or cut the tensor in parts.",
                )
                break


RULE = Dimensions()
