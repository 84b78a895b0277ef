"""`Reshape(Relu(x)) -> Relu(Reshape(x))`: pointwise work waits until the reshape behind it has made the tensor 4-D.

## What it does
A pointwise operator whose result is read by nothing but a shape mover that makes it 4-D is done behind the mover; its
operands are moved instead, constants along with them.

## Why
Activation, element-wise and scale layers work on two spatial dimensions only. At the network's input the movers then
stand first and can be left to whoever feeds it.

## Example
`Reshape(Relu((1, 256)), (1, 256, 1, 1))`: the reshape comes first, the ReLU sees the 4-D tensor.

## Refused
Operands that broadcast against each other, but for dimensions of 1 that are left out in front, and results that
something else reads, are left alone.

## Safety
exact: bit-equal.

## Source
Rows G15a and E01 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._movers import chain_from
from orinport.rewrites.catalogue._pointwise import POINTWISE, from_shape, moved_constant, operands
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "HoistShapeMover"]


class HoistShapeMover(Rewrite):
    """A pointwise operator moves behind the shape movers that read its result."""

    name = "hoist-shape-mover"
    safety = Safety.EXACT
    op_types = POINTWISE

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if context.rank(node.outputs[0]) == 4 or len(node.outputs) > 1:
            return None
        values = operands(node, context)
        chain = chain_from(node.outputs[0], 4, context)
        if values is None or chain is None:
            return None
        shuffle, movers = chain
        return Match((node, *movers), (movers[-1].outputs[0],), (values, shuffle))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        values, shuffle = match.data
        moved = {
            value: builder.shuffle(value, from_shape(shuffle, builder.shape(value))) for value in dict.fromkeys(values)
        }
        inputs = [
            None if value is None else moved[value] if value in moved else moved_constant(node, value, shuffle, builder)
            for value in node.inputs
        ]
        return (builder.copy(node, inputs, shuffle.shape),)


REWRITE = HoistShapeMover()
