"""A local response normalisation with a window that the DLA does not take.

## What it checks
The window is 3, 5, 7 or 9.

## Why it matters
Other windows are refused.

## Example
An LRN with size 11.

## What to do
Use one of the four sizes, or leave the layer out: networks trained since 2015 do without.

## Fix safety
No rewrite is applied.

## Source
Row L01a: NvInfer.h from 7.1.3 on, developer guides 8.4 and 8.5, current documentation.
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


class LrnWindow(LayerRule):
    code = "DLA172"
    title = "LRN window is not one that the DLA takes"
    rows = ("L01a",)
    kinds = (LayerKind.LRN,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("L01a")
        if row is None or layer["window"] in row.values["allowed"]:
            return
        yield finding(
            self,
            layer,
            row,
            f"The window is {layer['window']}; the DLA takes {', '.join(map(str, row.values['allowed']))}.",
            value=layer["window"],
            limit=tuple(row.values["allowed"]),
            advice="Use one of these windows.",
        )


RULE = LrnWindow()
