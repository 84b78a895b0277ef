"""A concatenation with a single input.

## What it checks
A concatenation has at least two inputs.

## Why it matters
A Concat of one tensor does nothing and is refused all the same.

## Example
A Concat node with one input, left over from pruning.

## What to do
Remove the node.

## Fix safety
No rewrite is applied.

## Source
Row N02: developer guides 8.4 and 8.5, current documentation. Builder: "Concatenation on DLA requires at least
two inputs."
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


class ConcatenationInputs(LayerRule):
    code = "DLA175"
    title = "Concatenation of fewer than two inputs"
    rows = ("N02",)
    kinds = (LayerKind.CONCATENATION,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("N02")
        if row is None or len(layer.inputs) >= row.values["min"]:
            return
        yield finding(
            self,
            layer,
            row,
            f"The concatenation has {len(layer.inputs)} input; the DLA asks for at least {row.values['min']}.",
            value=len(layer.inputs),
            limit=row.values["min"],
            advice="Remove the Concat: with one input it does nothing.",
        )


RULE = ConcatenationInputs()
