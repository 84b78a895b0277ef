"""`Softmax((N, C)) -> Reshape(Softmax((N, C, 1, 1), axis=1))`: softmax over a dimension of a 4-D tensor.

## What it does
Softmax on a tensor that is not 4-D is done on one that is, over its channels where everything else fits into the batch,
else over the width or the height; reshapes lead there and back.

## Why
The DLA takes softmax over the channel or a spatial dimension of a 4-D tensor.

## Example
`Softmax((1, 1000), axis=-1)`: over the channels of `(1, 1000, 1, 1)`.

## Refused
Models below opset 13, where Softmax flattens its input to two dimensions, which the parser keeps; the driver raises the
opset first where it can.

## Safety
exact: the same sums over the same elements.

## Source
Rows M02 to M04 of the acceptance catalogue; ONNX operator specification, Softmax 11 and 13.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._movers import absorb
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "SoftmaxToChannels"]


class SoftmaxToChannels(Rewrite):
    """Softmax moves to a 4-D tensor."""

    name = "softmax-to-channels"
    safety = Safety.EXACT
    op_types = ("Softmax",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value = node.inputs[0]
        shape = context.shape(value)
        if value is None or shape is None:
            return Refusal("the shape is not known")
        if context.opset < 13:
            return Refusal("below opset 13 Softmax flattens its input to two dimensions, and the parser keeps that")
        if len(shape) == 4 or not shape or 0 in shape:
            return None
        axis = int(context.attribute(node, "axis", -1)) % len(shape)
        board, where = _four(shape, axis)
        source, into, movers = absorb(value, Shuffle.reshape(shape, board), context)
        return Match((node, *movers), (node.outputs[0],), (source, into, where))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        source, into, axis = match.data
        moved = builder.shuffle(source, into)
        result = builder.op("Softmax", moved, axis=axis, shape=into.shape, dtype=builder.context.dtype(moved))
        return (builder.reshape(result, builder.shape(match.outputs[0])),)


def _four(shape: tuple[int, ...], axis: int) -> tuple[tuple[int, int, int, int], int]:
    """A 4-D shape of the same order in which `axis` stands alone, and where it stands."""
    before, size, after = shape[:axis], shape[axis], prod(shape[axis + 1 :])
    if len(before) <= 1:
        return (prod(before), size, after, 1), 1
    if after == 1:
        return (before[0], prod(before[1:]), 1, size), 3
    return (before[0], prod(before[1:]), size, after), 2


REWRITE = SoftmaxToChannels()
