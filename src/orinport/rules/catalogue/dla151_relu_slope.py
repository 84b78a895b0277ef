"""A ReLU with a negative slope.

## What it checks
An activation of type RELU has no slope for negative values. Leaky ReLU is a type of its own, which the DLA
takes.

## Why it matters
A slope on the wrong type is refused.

## Example
A RELU layer with alpha = 0.1.

## What to do
Use LeakyRelu.

## Fix safety
No rewrite is applied.

## Source
Row A02: developer guides 8.4 and 8.5.
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


class ReluSlope(LayerRule):
    code = "DLA151"
    title = "ReLU has a negative slope"
    rows = ("A02",)
    kinds = (LayerKind.ACTIVATION,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("A02")
        if row is None or layer["type"] != "RELU":
            return
        slope = layer.attributes.get("alpha")
        if not slope:
            return
        yield finding(
            self,
            layer,
            row,
            f"The ReLU has a slope of {slope:g} for negative values; the DLA takes none.",
            value=slope,
            limit=0,
            advice="Use LeakyRelu, which the DLA takes as a type of its own.",
        )


RULE = ReluSlope()
