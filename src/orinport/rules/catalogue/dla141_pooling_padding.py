"""Pooling padding outside the range of the DLA.

## What it checks
Padding lies in 0 to 7 on every side. On Xavier with TensorRT 5 to 7.0: symmetric padding in 0 to 7, unequal
padding in 0 to 15.

## Why it matters
A layer with more padding is refused.

## Example
MaxPool with kernel_shape [17, 17] and pads [8, 8, 8, 8].

## What to do
Chain smaller pools: three 5x5 max pools with padding 2 give one 13x13 with padding 6.

## Fix safety
The rewrites split-max-pool and split-average-pool are exact: a maximum of maxima, and a mean in another order of
summation.

## Source
Rows P03a and P03b: NvInfer.h, developer guides 8.4 and 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import SPLIT_AVERAGE_POOL, SPLIT_MAX_POOL
from orinport.rules.rule import LayerRule
from orinport.rules.support import bounds, by, finding, speaking

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_FIXES: Mapping[str, tuple[str, str]] = {"MAX": SPLIT_MAX_POOL, "AVERAGE": SPLIT_AVERAGE_POOL}


class PoolingPadding(LayerRule):
    code = "DLA141"
    title = "Pooling padding is out of range"
    rows = ("P03a", "P03b")
    kinds = (LayerKind.POOLING,)
    fix = SPLIT_MAX_POOL

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = speaking(context, self.rows)
        if row is None:
            return
        before, after = layer["pre_padding"], layer["post_padding"]
        low, high = bounds(row)
        if tuple(before) != tuple(after):
            high = row.values.get("max_one_side", high)
        value = (*before, *after)
        if low <= min(value) and max(value) <= high:
            return
        yield finding(
            self,
            layer,
            row,
            f"The padding is {by(before)} before and {by(after)} after; the DLA takes {low} to {high}.",
            value=value,
            limit=(low, high),
            advice="Chain pools with smaller windows and less padding each.",
            fix=_FIXES.get(layer["type"]),
        )


RULE = PoolingPadding()
