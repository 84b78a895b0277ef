"""A reduction by MAX whose input or result is not 4-D.

## What it checks
Input and result are 4-D, that is keepdims = 1. That others are refused is inferred: `unknown`.

## Why it matters
The DLA works on 4-D tensors; a dropped dimension needs a reshape, which is refused as a layer of its own.

## Example
ReduceMax with keepdims = 0.

## What to do
Use keepdims = 1 and drop the dimension outside of the network.

## Fix safety
No rewrite is applied.

## Source
Rows Q02 and OP44: inferred from the rule on ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, holding, speaking, unshaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ReductionRank(LayerRule):
    code = "DLA196"
    title = "Reduction that does not stay 4-D"
    rows = ("Q02", "OP44")
    kinds = (LayerKind.REDUCE,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row, accept = context.rows.get("Q02"), speaking(context, ("Q01a", "Q01b"))
        if row is None or accept is None or layer["op"] not in accept.values["allowed"]:
            return
        data, result = layer.inputs[0], layer.outputs[0]
        if unshaped((data, result)):  # DLA103 speaks
            return
        if data.rank == result.rank == row.values["rank"]:
            return
        yield finding(
            self,
            layer,
            holding(context, self.rows),
            f"The reduction goes from rank {data.rank} to rank {result.rank}; the DLA is known to take"
            f" {row.values['rank']} to {row.values['rank']} only.",
            value=(data.rank, result.rank),
            limit=row.values["rank"],
            advice="Use keepdims = 1 on a 4-D tensor, and drop the dimension outside of the network.",
            verdict=Verdict.UNKNOWN,
        )


RULE = ReductionRank()
