"""A pooling window outside the range of the DLA.

## What it checks
Height and width of the window each lie in 1 to 8.

## Why it matters
Heads that average 13x13 or 14x14 positions in one window are refused, and they end many classifiers.

## Example
AveragePool with kernel_shape [13, 13] (SqueezeNet).

## What to do
Chain pools with windows of at most 8 whose product is the window, or use a depthwise convolution with weights
1/(h*w) (kernel up to 32).

## Fix safety
The rewrites split-max-pool and split-average-pool are exact: a maximum of maxima, and a mean in another order of
summation.

## Source
Rows P02 and P09: NvInfer.h from 5.1.5 on, developer guides 8.4 and 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import SPLIT_AVERAGE_POOL, SPLIT_MAX_POOL
from orinport.rules.rule import LayerRule
from orinport.rules.support import outside

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_FIXES: Mapping[str, tuple[str, str]] = {"MAX": SPLIT_MAX_POOL, "AVERAGE": SPLIT_AVERAGE_POOL}


class PoolingWindow(LayerRule):
    code = "DLA140"
    title = "Pooling window is out of range"
    rows = ("P02", "P09")
    kinds = (LayerKind.POOLING,)
    fix = SPLIT_MAX_POOL

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        advice = (
            "Chain pools with smaller windows."
            if layer["type"] == "MAX"
            else "Chain pools with smaller windows, or use a depthwise convolution with weights 1/(h*w)."
        )
        return outside(self, layer, context, "window", advice=advice, fix=_FIXES.get(layer["type"]))


RULE = PoolingWindow()
