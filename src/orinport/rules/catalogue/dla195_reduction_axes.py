"""A maximum over the batch.

## What it checks
A reduction by MAX goes over any of C, H and W.

## Why it matters
A reduction over the first dimension is refused.

## Example
ReduceMax over axes [0, 2, 3].

## What to do
Reduce C, H and W on the DLA, and the batch after the network.

## Fix safety
No rewrite is applied.

## Source
Row Q01a: operator reference.
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


class ReductionAxes(LayerRule):
    code = "DLA195"
    title = "Reduction over the batch"
    rows = ("Q01a",)
    kinds = (LayerKind.REDUCE,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("Q01a")
        if row is None or layer["op"] not in row.values["allowed"]:
            return
        data = layer.inputs[0]
        if data.shape is None:  # DLA103 speaks
            return
        allowed = {len(data.shape) - place for place in row.values["axes_from_end"]}
        if set(layer["axes"]) <= allowed:
            return
        yield finding(
            self,
            layer,
            row,
            f"The reduction goes over axes {list(layer['axes'])} of {list(data.shape)}; the DLA takes C, H and W.",
            value=tuple(layer["axes"]),
            limit=tuple(sorted(allowed)),
            advice="Reduce C, H and W here, and the batch after the network.",
        )


RULE = ReductionAxes()
