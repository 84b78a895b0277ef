"""`Mul(x, s) -> Mul(x, Resize(s))`: operands of element-wise arithmetic get equal shapes.

## What it does
Where an operand of shape `(N, C, 1, 1)`, `(N, 1, H, W)` and the like is repeated by broadcast, it is copied first:
along height and width by nearest Resize, along the channels by a 1x1 convolution of ones, which also serves, with a
transpose behind it, for a height or width that Resize does not reach. A constant that has neither
one value nor one a channel is written out in full.

## Why
No document says which broadcasts the DLA takes; equal shapes, and constants of one value a channel, are safe.

## Example
The scaling of squeeze-and-excite, `(1, 64, 56, 56)` times `(1, 64, 1, 1)`: Resize by 28 and by 2, then Mul of equal
shapes.

## Refused
Copies along the batch; a written constant past the cost limit; run-time operands of fewer than 4 dimensions.

## Safety
exact: bit-equal.

## Source
Rows E09, OP19 and Z02a of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._broadcast import spread
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "BroadcastToResize"]


class BroadcastToResize(Rewrite):
    """Broadcast operands are copied to the full shape first."""

    name = "broadcast-to-resize"
    safety = Safety.EXACT
    op_types = ("Add", "Div", "Max", "Min", "Mul", "Sub")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        result = context.shape(node.outputs[0])
        operands = [value for value in node.inputs if value is not None]
        if result is None or len(result) != 4 or 0 in result or len(operands) != 2:
            return None
        if not context.is_float(node.outputs[0]) or all(context.is_constant(value) for value in operands):
            return None
        short = [value for value in operands if not _is_safe(value, result, context)]
        if not short:
            return None
        if any(context.rank(value) != 4 and not context.is_constant(value) for value in short):
            return Refusal("an operand that is copied has fewer than 4 dimensions")
        return Match((node,), (node.outputs[0],), short)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, result = match.nodes[0], builder.shape(match.outputs[0])
        full: dict[ir.Value, ir.Value] = {}
        for value in match.data:
            array = builder.context.constant(value)
            if array is None:
                full[value] = spread(value, result, builder)
            else:
                full[value] = builder.constant(np.ascontiguousarray(np.broadcast_to(array, result)), "full")
        inputs = [None if value is None else full.get(value, value) for value in node.inputs]
        return (builder.copy(node, inputs, result),)


def _is_safe(value: ir.Value, result: tuple[int, ...], context: RewriteContext) -> bool:
    shape = context.shape(value)
    if shape is None or shape == result:
        return True
    if not context.is_constant(value):
        return False
    dims = (1,) * (4 - len(shape)) + shape
    return dims[0] == dims[2] == dims[3] == 1 and dims[1] in (1, result[1])


REWRITE = BroadcastToResize()
