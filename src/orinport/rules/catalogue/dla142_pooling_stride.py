"""A pooling stride outside the range of the DLA.

## What it checks
The stride lies in 1 to 16 in each dimension.

## Why it matters
A larger stride is refused.

## Example
AveragePool with strides [32, 32].

## What to do
Chain two pools whose strides multiply to the stride.

## Fix safety
No rewrite is applied.

## Source
Row P04: NvInfer.h from 5.1.5 on, developer guides 8.4 and 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import outside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class PoolingStride(LayerRule):
    code = "DLA142"
    title = "Pooling stride is out of range"
    rows = ("P04",)
    kinds = (LayerKind.POOLING,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        return outside(self, layer, context, "stride", advice="Chain two pools whose strides multiply to this one.")


RULE = PoolingStride()
