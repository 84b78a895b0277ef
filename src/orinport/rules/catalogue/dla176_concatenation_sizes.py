"""A concatenation of tensors that differ in height or width.

## What it checks
All inputs have the same height and width. Along the channels they have to, by the definition of the operator;
so this speaks where the axis is a spatial one.

## Why it matters
The layer is refused.

## Example
A Concat of (1, 8, 20, 20) and (1, 8, 10, 20) along axis 2.

## What to do
Concatenate along the channels.

## Fix safety
No rewrite is applied.

## Source
Row N03: developer guides 8.4 and 8.5, current documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import by, finding, unshaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ConcatenationSizes(LayerRule):
    code = "DLA176"
    title = "Concatenated tensors differ in height or width"
    rows = ("N03",)
    kinds = (LayerKind.CONCATENATION,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("N03")
        if row is None:
            return
        if unshaped(layer.inputs):  # DLA103 speaks
            return
        sizes = {tensor.chw[1:] for tensor in layer.inputs if tensor.chw is not None}
        if len(sizes) < 2:
            return
        yield finding(
            self,
            layer,
            row,
            f"The inputs are {', '.join(map(by, sorted(sizes)))} in height and width; the DLA asks for equal ones.",
            value=tuple(sorted(sizes)),
            limit="equal height and width",
            advice="Concatenate along the channels.",
        )


RULE = ConcatenationSizes()
