"""`Relu(Reshape(x)) -> Reshape(Relu(x))`: pointwise work goes before the reshape that took away its rank of 4.

## What it does
A pointwise operator (activations, arithmetic) of which an operand comes from shape movers with a 4-D source is done on
the source; the movers follow behind it. Constants move along, and other operands are moved the opposite way.

## Why
Activation, element-wise and scale layers work on two spatial dimensions only. Movers that sink meet others and cancel,
or arrive at the network's edge.

## Example
`Relu(Flatten((1, 4096, 1, 1)))`: the ReLU sees the 4-D tensor, Flatten comes after it.

## Refused
Operands that broadcast against each other are left alone, but for dimensions of 1 that are left out in front.

## Safety
exact: bit-equal.

## Source
Rows G15a and E01 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._movers import chain_into
from orinport.rewrites.catalogue._pointwise import POINTWISE, from_shape, moved_constant, operands
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.rewrites.shuffle import Shuffle

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
        result = context.shape(node.outputs[0]) or ()
        chains = {value: chain_into(value, context, rank=4) for value in values}
        ways = {
            value: Shuffle.make(chain[1].before, chain[1].expand, chain[1].perm, result)
            for value, chain in chains.items()
            if chain is not None
        }
        if not ways:
            return None
        shuffle = next(iter(ways.values()))
        sources: dict[ir.Value, ir.Value | None] = {}
        movers: list[ir.Node] = []
        for value, chain in chains.items():
            alike = chain is not None and ways[value] == shuffle
            sources[value] = chain[0] if chain is not None and alike else None
            movers += chain[2] if chain is not None and alike else ()
        return Match((node, *dict.fromkeys(movers)), (node.outputs[0],), (sources, shuffle))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        sources, shuffle = match.data
        back = shuffle.inverse()
        moved = {
            value: builder.shuffle(value, from_shape(back, builder.shape(value))) if source is None else source
            for value, source in sources.items()
        }
        inputs = [
            value if value is None else moved[value] if value in moved else moved_constant(node, value, back, builder)
            for value in node.inputs
        ]
        return (builder.shuffle(builder.copy(node, inputs, shuffle.before), shuffle),)


REWRITE = SinkShapeMover()
