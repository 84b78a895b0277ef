"""A tensor whose rank the DLA does not take.

## What it checks
Concatenation, SoftMax, LRN, unary operations and parametric ReLU work on 4-D tensors: tensors of rank below 3,
and of rank 5 and above, are refused. Other kinds have rules of their own about their dimensions.

## Why it matters
Classification heads end in rank 2, attention works in rank 5.

## Example
A SoftMax over (1, 1000).

## What to do
Keep the tensor 4-D, e.g. (1, 1000, 1, 1). Where only the network's edge is in the way, `orinport prepare` moves
it: the board's model then takes or gives the 4-D tensor.

## Fix safety
The rewrite softmax-to-channels is exact: it moves a SoftMax to a 4-D tensor. For the other kinds none is applied;
moving an edge is recorded and proved by `prepare`.

## Source
Row G15c: NVIDIA/Model-Optimizer issue 1415 (observed).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import SOFTMAX_TO_CHANNELS
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class Rank(LayerRule):
    code = "DLA102"
    title = "Tensor has a rank that the DLA does not take"
    rows = ("G15c",)
    fix = SOFTMAX_TO_CHANNELS
    kinds = (
        LayerKind.CONCATENATION,
        LayerKind.SOFTMAX,
        LayerKind.LRN,
        LayerKind.UNARY,
        LayerKind.PARAMETRIC_RELU,
    )

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("G15c")
        if row is None:
            return
        below, above = row.values["below"], min(row.values["refused"])
        for tensor in (*layer.runtime_inputs, *layer.outputs):
            if tensor.shape is None or below <= len(tensor.shape) < above:
                continue
            yield finding(
                self,
                layer,
                row,
                f"The tensor {tensor.name!r} has rank {tensor.rank}; the DLA works on tensors of rank"
                f" {row.values['rank']}.",
                value=tensor.rank,
                limit=row.values["rank"],
                advice="Keep the tensor 4-D; at the edge of the network `orinport prepare` does so.",
                fix=SOFTMAX_TO_CHANNELS if layer.kind is LayerKind.SOFTMAX else None,
            )
            return


RULE = Rank()
