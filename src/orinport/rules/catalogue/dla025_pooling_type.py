"""A pooling that is neither maximum nor average.

## What it checks
The type is MAX or AVERAGE.

## Why it matters
A blend of both is refused.

## Example
A pooling layer of type MAX_AVERAGE_BLEND.

## What to do
Write the blend as two pools, two products with a constant and a sum.

## Fix safety
No rewrite is applied.

## Source
Row P01: NvInfer.h from 5.1.5 on, developer guides 8.4 and 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class PoolingType(LayerRule):
    code = "DLA025"
    title = "Pooling type that the DLA does not take"
    rows = ("P01",)
    kinds = (LayerKind.POOLING,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("P01")
        if row is None or layer["type"] in row.values["allowed"]:
            return
        yield finding(
            self,
            layer,
            row,
            f"The pooling is of type {layer['type']}; the DLA takes {' and '.join(row.values['allowed'])}.",
            value=layer["type"],
            limit=tuple(row.values["allowed"]),
            advice="Write it as an average and a maximum pool, each multiplied by its share, and a sum.",
        )


RULE = PoolingType()
