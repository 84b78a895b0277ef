"""`Concat(x, y, axis=2) -> Transpose(Concat(Transpose(x), Transpose(y), axis=1))`: any axis by way of the channels.

## What it does
A Concat along another axis than the channels, or of tensors that are not 4-D, is done along the channels of 4-D
tensors: the axis changes places with the channels before and after, where it has to.

## Why
The DLA concatenates along the channels only.

## Example
`Concat((1, 20, 32), (1, 20, 32), axis=1)`: along the channels of `(1, 20, 32, 1)`, without a transpose. Detection
heads that are joined along their anchors, `(1, 85, 6400)` and `(1, 85, 1600)`.

## Refused
The batch of 4-D tensors as axis; shapes that are not known; integers; tensors that come from a Slice or Concat
themselves, because the builder refuses a reshape directly behind one; on a board, tensors around which nothing is 4-D.

## Safety
exact: bit-equal.

## Source
Rows N01, N05, F01 and G15b of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._axis import ALONE, board_of, stands_alone
from orinport.rewrites.catalogue._movers import absorb
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.rewrites.shuffle import Shuffle
from orinport.targets.catalogue import rows_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ConcatToChannels"]

_SWAPS = {1: (0, 1, 2, 3), 2: (0, 2, 1, 3), 3: (0, 3, 2, 1)}


class ConcatToChannels(Rewrite):
    """Concatenation moves to the channels of 4-D tensors."""

    name = "concat-to-channels"
    safety = Safety.EXACT
    op_types = ("Concat",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        values = [value for value in node.inputs if value is not None]
        shapes = [shape for shape in map(context.shape, values) if shape is not None]
        result = context.shape(node.outputs[0])
        if result is None or len(shapes) != len(values):
            return Refusal("a shape is not known")
        rank = len(result)
        axis = int(context.attribute(node, "axis", 1)) % max(rank, 1)
        if len(values) < 2 or (rank == 4 and axis == 1):
            return None
        if not context.is_float(values[0]):
            return Refusal(f"the DLA does not compute in {context.dtype(values[0])}")
        if rank == 4 and axis == 0:
            return Refusal("it joins samples, and the DLA concatenates along the channels only")
        if 0 in result or any(0 in shape for shape in shapes):
            return Refusal("it holds no elements")
        movers: list[ir.Node] = []
        parts: list[tuple[ir.Value, Shuffle]] = []
        for value, shape in zip(values, shapes, strict=True):
            into = _into(shape, axis)
            source = value
            if not context.is_constant(value):
                source, into, used = absorb(value, into, context)
                movers += used
                if _beside_joint(source, context):
                    return Refusal(
                        f"{source.name!r} is sliced or concatenated itself, and a reshape may not follow that"
                    )
            parts.append((source, into))
        if stands_alone((source for source, _ in parts), node.outputs, context):
            return Refusal(ALONE)
        return Match((node, *dict.fromkeys(movers)), (node.outputs[0],), (parts, _into(result, axis).inverse()))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        parts, back = match.data
        joined = builder.op("Concat", *(_moved(value, into, builder) for value, into in parts), axis=1)
        return (builder.shuffle(joined, back),)


def _beside_joint(source: ir.Value, context: RewriteContext) -> bool:
    """A reshape of `source` would stand directly behind a Slice or Concat, which the target does not take."""
    producer = source.producer()
    if context.target is None or producer is None or producer.op_type not in ("Concat", "Slice", "Split"):
        return False
    return "N05" in rows_for(context.target, context.precision)


def _into(shape: tuple[int, ...], axis: int) -> Shuffle:
    """From `shape` to the 4-D tensor whose channels are the elements along `axis`."""
    board, place = board_of(shape, axis)
    swap = _SWAPS[place]
    return Shuffle.make(shape, board, swap, [board[each] for each in swap])


def _moved(value: ir.Value, into: Shuffle, builder: Builder) -> ir.Value:
    constant = builder.context.constant(value)
    return builder.shuffle(value, into) if constant is None else builder.constant(into.apply(constant), "part")


REWRITE = ConcatToChannels()
