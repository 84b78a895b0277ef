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
from orinport.rewrites.catalogue._movers import absorb, chain_into
from orinport.rewrites.catalogue._recurrent import apart, only_returned
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
        if axis == 0 and _is_direction(node, context):
            return None  # for the Concat that reads it
        found = _of_sources(node, values, axis, context) or _of_steps(node, context)
        if found is not None:
            return found
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
        steps = back.steps()
        if steps and steps[0][0] == "reshape" and _refuses_reshape(match.outputs[0], builder.context):
            joined = apart(joined, builder)
        return (builder.shuffle(joined, back),)


def _refuses_reshape(output: ir.Value, context: RewriteContext) -> bool:
    """A reshape behind a Concat is not taken by the target, and does not move to the network's edge."""
    if context.target is None or "N05" not in rows_for(context.target, context.precision):
        return False
    return not only_returned(output, context)


def _of_sources(node: ir.Node, values: Sequence[ir.Value], axis: int, context: RewriteContext) -> Match | None:
    """All parts are 4-D tensors moved in one way that leaves the axis whole: those are joined, and moved as one."""
    chains = [chain_into(value, context, rank=4) for value in values]
    known = [chain for chain in chains if chain is not None]
    if len(known) != len(values):
        return None
    place = known[0][1].along(axis)
    single = known[0][1].shortened(axis, 1)
    if not place or single is None or any(chain[1].along(axis) != place for chain in known):
        return None
    if any(chain[1].shortened(axis, 1) != single for chain in known):
        return None
    swap = _SWAPS[place]
    total = sum(chain[1].before[place] for chain in known)
    whole = known[0][1].shortened(axis, total)
    assert whole is not None
    before = tuple(whole.before[each] for each in swap)
    back = Shuffle.transpose(before, swap).then(whole)
    if back is None:
        return None
    parts = [(chain[0], Shuffle.transpose(chain[1].before, swap)) for chain in known]
    movers = dict.fromkeys(mover for chain in known for mover in chain[2])
    return Match((node, *movers), (node.outputs[0],), (parts, back))


def _of_steps(node: ir.Node, context: RewriteContext) -> Match | None:
    """Steps of a sequence, (steps, images, features) from a 4-D tensor each: joined as channels, one after the other.

    Also those of several directions, joined over the steps first and over the features then.
    """
    result, axis = context.shape(node.outputs[0]), int(context.attribute(node, "axis", 1))
    if result is None or len(result) != _SEQUENCE:
        return None
    inner: list[ir.Node] = []
    lists = [list(node.inputs)]
    if axis % _SEQUENCE == _SEQUENCE - 1:
        makers = [None if value is None else value.producer() for value in node.inputs]
        inner = [each for each in makers if each is not None and _joins_steps(each, node, context)]
        lists = [list(each.inputs) for each in inner]
        if len(inner) != len(makers):
            return None
    elif axis % _SEQUENCE:
        return None
    chains = [[_step(value, context) for value in values] for values in lists]
    known = [chain for chain in chains[0] if chain is not None]
    if len({len(each) for each in chains}) != 1 or any(chain is None for each in chains for chain in each):
        return None
    if inner and any(chain[1].shape[0] != 1 for chain in known):
        return None
    images, total = known[0][1].before[0], result[0] * result[2]
    ordered = [chain for step in zip(*chains, strict=True) for chain in step if chain is not None]
    if any(chain[1].before[0] != images for chain in ordered) or total > int(context.limit("G05", "max")):
        return None
    back = Shuffle.make((images, total, 1, 1), (images, result[0], result[2]), (1, 0, 2), result)
    parts = [(chain[0], Shuffle.reshape(chain[1].before, chain[1].before)) for chain in ordered]
    movers = dict.fromkeys(mover for chain in ordered for mover in chain[2])
    return Match((node, *inner, *movers), (node.outputs[0],), (parts, back))


_SEQUENCE = 3
"""Dimensions of a sequence: steps, images, features."""


def _step(value: ir.Value | None, context: RewriteContext) -> tuple[ir.Value, Shuffle, tuple[ir.Node, ...]] | None:
    """Steps of a sequence as channels of a 4-D tensor of one pixel, and the movers from there."""
    chain = None if value is None else chain_into(value, context, rank=4)
    if chain is None or len(chain[1].shape) != _SEQUENCE or chain[1].before[2:] != (1, 1):
        return None
    before, (steps, images, features) = chain[1].before, chain[1].shape
    if before[:2] != (images, steps * features):
        return None
    alike = Shuffle.make(before, (images, steps, features), (1, 0, 2), chain[1].shape)
    return chain if chain[1] == alike else None


def _is_direction(node: ir.Node, context: RewriteContext) -> bool:
    """The steps of one direction of a sequence, of which the reader joins the features with those of the others."""
    reader = context.only_consumer(node.outputs[0])
    shape = None if reader is None else context.shape(reader.outputs[0])
    if reader is None or reader.op_type != "Concat" or shape is None or len(shape) != _SEQUENCE:
        return False
    if int(context.attribute(reader, "axis", 1)) % _SEQUENCE != _SEQUENCE - 1:
        return False
    makers = [None if value is None else value.producer() for value in reader.inputs]
    if any(maker is None or not _joins_steps(maker, reader, context) for maker in makers):
        return False
    steps = [context.shape(value) for maker in makers if maker is not None for value in maker.inputs]
    return all(step is not None and step[0] == 1 for step in steps) and len(steps) == shape[0] * len(makers)


def _joins_steps(node: ir.Node, reader: ir.Node, context: RewriteContext) -> bool:
    """A Concat of steps that nothing but `reader` reads."""
    if node.op_type != "Concat" or not context.standard(node) or node.graph is not context.graph:
        return False
    return context.only_consumer(node.outputs[0]) is reader and int(context.attribute(node, "axis", 1)) == 0


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
    if constant is not None:
        return builder.constant(into.apply(constant), "part")
    perm = into.permutation()
    return builder.shuffle(value, into) if perm is None else builder.transpose(value, perm)


REWRITE = ConcatToChannels()
