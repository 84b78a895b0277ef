"""A Scale layer with a power, or in a mode that the documents do not name.

## What it checks
The mode is uniform, per channel or per element, and the layer has scale and shift but no power.

## Why it matters
A power is refused. Batch normalisation never has one.

## Example
A Scale layer with power 2.

## What to do
Write the power as a product of the tensor with itself.

## Fix safety
No rewrite is applied.

## Source
Row S01: developer guides 8.4 and 8.5.
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


class ScalePower(LayerRule):
    code = "DLA170"
    title = "Scale has a power or an unknown mode"
    rows = ("S01",)
    kinds = (LayerKind.SCALE,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("S01")
        if row is None:
            return
        if layer["has_power"]:
            yield finding(
                self,
                layer,
                row,
                "The Scale layer has a power; the DLA takes scale and shift only.",
                value="power",
                limit="scale and shift",
                advice="Write the power as a product of the tensor with itself.",
            )
        if layer["mode"] not in row.values["modes"]:
            yield finding(
                self,
                layer,
                row,
                f"The Scale layer works in mode {layer['mode']}; the DLA takes {', '.join(row.values['modes'])}.",
                value=layer["mode"],
                limit=tuple(row.values["modes"]),
                advice="Scale per channel.",
            )


RULE = ScalePower()
