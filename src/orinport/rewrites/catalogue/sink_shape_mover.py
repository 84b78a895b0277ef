"""`Relu(Reshape(x)) -> Reshape(Relu(x))`: pointwise work goes before the reshape that took away its rank of 4.

## What it does
A pointwise operator (activations, arithmetic with constants or with values moved alike) whose operands come from
shape movers with a 4-D source is done on the source; the movers follow behind it. Constants move along.

## Why
Activation, element-wise and scale layers work on two spatial dimensions only. Movers that sink meet others and cancel,
or arrive at the network's edge.

## Example
`Relu(Flatten((1, 4096, 1, 1)))`: the ReLU sees the 4-D tensor, Flatten comes after it.

## Refused
Operands that broadcast against each other, or come from movers that differ, are left alone.

## Safety
exact: bit-equal.

## Source
Rows G15a and E01 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._movers import chain_into
from orinport.rewrites.catalogue._pointwise import POINTWISE, moved_constant, operands
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "SinkShapeMover"]


class SinkShapeMover(Rewrite):
    """A pointwise operator moves before the shape movers of its operands."""

    name = "sink-shape-mover"
    safety = Safety.EXACT
    op_types = POINTWISE

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if context.rank(node.outputs[0]) == 4 or len(node.outputs) > 1:
            return None
        values = operands(node, context)
        if values is None:
            return None
        chains = {value: chain_into(value, context, rank=4) for value in values}
        first = chains[values[0]]
        if first is None or context.rank(first[0]) != 4:
            return None
        for chain in chains.values():
            if chain is None or chain[1] != first[1]:
                return None
        movers = [mover for chain in chains.values() if chain is not None for mover in chain[2]]
        sources = {value: chain[0] for value, chain in chains.items() if chain is not None}
        return Match((node, *dict.fromkeys(movers)), (node.outputs[0],), (sources, first[1]))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        sources, shuffle = match.data
        sources = {None: None, **sources}
        back = shuffle.inverse()
        inputs = [
            None
            if value is None
            else sources[value]
            if value in sources
            else moved_constant(node, value, back, builder)
            for value in node.inputs
        ]
        return (builder.shuffle(builder.copy(node, inputs, shuffle.before), shuffle),)


REWRITE = SinkShapeMover()
