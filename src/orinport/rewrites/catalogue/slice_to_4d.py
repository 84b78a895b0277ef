"""`Slice((B, 40, 360)) -> Reshape(Slice((B, 40, 360, 1)))`: slices and splits of other ranks in 4-D tensors.

## What it does
A Slice or Split along one axis of a tensor that is not 4-D slices a 4-D tensor of the same order, in which the axis
stands alone. Where shape movers made the axis of the leading part of the channels of a 4-D tensor, the channels are
sliced and the movers come after.

## Why
The DLA slices 4-D tensors only.

## Example
Queries, keys and values cut from `(3, 1, 8, 40, 15)`, which came from 360 channels: slices of 120 channels each, which
`conv-slices-to-convs` makes convolutions of their own.

## Refused
Bounds known at run time; several axes at once; steps other than 1, which `slice-step-to-conv` takes in 4-D; integers;
on a board, tensors around which nothing is 4-D.

## Safety
exact: bit-equal.

## Source
Rows V01a, V02, V08a and G15b of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._axis import ALONE, board_of, stands_alone
from orinport.rewrites.catalogue._movers import absorb, chain_into
from orinport.rewrites.catalogue._slices import numbers_of
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "SliceTo4D"]

_Parts = tuple[int, list[tuple[int, int]]]
"""The axis, and (first, end) of each result."""


class SliceTo4D(Rewrite):
    """Slices move to 4-D tensors."""

    name = "slice-to-4d"
    safety = Safety.EXACT
    op_types = ("Slice", "Split")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value = node.inputs[0]
        shape = context.shape(value)
        if value is None or context.is_constant(value) or context.rank(value) in (None, 0, 4):
            return None
        if not context.is_float(value):
            return Refusal(f"the DLA does not compute in {context.dtype(value)}")
        results = [context.shape(output) for output in node.outputs]
        if shape is None or any(result is None or 0 in result for result in results):
            return Refusal("a shape is not known, or holds no elements")
        parts = _split(node, shape, context) if node.op_type == "Split" else _slice(node, shape, context)
        if isinstance(parts, Refusal):
            return parts
        axis, ranges = parts
        channels = _of_channels(node, value, axis, ranges, context)
        if channels is not None:
            return channels
        sides = _of_source(node, value, axis, ranges, context)
        if sides is not None:
            return sides
        board, place = board_of(shape, axis)
        source, into, movers = absorb(value, Shuffle.reshape(shape, board), context)
        if stands_alone((source,), node.outputs, context):
            return Refusal(ALONE)
        return Match((node, *movers), tuple(node.outputs), (source, into, place, ranges))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        source, into, place, ranges = match.data
        if isinstance(into, list):
            pieces = [builder.slice(source, place, *span) for span in ranges]
            return [builder.shuffle(part, back) for part, back in zip(pieces, into, strict=True)]
        if place is None:
            single = [builder.slice(source, 1, *span) for span in ranges]
            return [builder.shuffle(part, into) for part in single]
        moved = builder.shuffle(source, into)
        size = builder.shape(moved)[place]
        parts = [moved if span == (0, size) else builder.slice(moved, place, *span) for span in ranges]
        return [builder.reshape(part, builder.shape(output)) for part, output in zip(parts, match.outputs, strict=True)]


def _of_channels(
    node: ir.Node, value: ir.Value, axis: int, ranges: list[tuple[int, int]], context: RewriteContext
) -> Match | None:
    """Single elements of an axis that shape movers made of the leading part of the channels: slices of those."""
    chain = chain_into(value, context, rank=4)
    if chain is None or any(end - first != 1 for first, end in ranges):
        return None
    source, moved, movers = chain
    found = moved.leading(axis)
    if found is None:
        return None
    each, into = found
    spans = [(first * each, end * each) for first, end in ranges]
    return Match((node, *movers), tuple(node.outputs), (source, into, None, spans))


def _of_source(
    node: ir.Node, value: ir.Value, axis: int, ranges: list[tuple[int, int]], context: RewriteContext
) -> Match | None:
    """Parts of an axis that shape movers left whole in a 4-D tensor: slices of that tensor, each moved by itself."""
    chain = chain_into(value, context, rank=4)
    place = None if chain is None else chain[1].along(axis)
    if chain is None or not place:
        return None
    source, moved, movers = chain
    parts = [moved.shortened(axis, end - first) for first, end in ranges]
    return Match((node, *movers), tuple(node.outputs), (source, parts, place, ranges))


def _split(node: ir.Node, shape: tuple[int, ...], context: RewriteContext) -> _Parts:
    axis = int(context.attribute(node, "axis", 0)) % len(shape)
    ranges, start = [], 0
    for output in node.outputs:
        size = (context.shape(output) or shape)[axis]
        ranges.append((start, start + size))
        start += size
    return axis, ranges


def _slice(node: ir.Node, shape: tuple[int, ...], context: RewriteContext) -> _Parts | Refusal:
    starts, steps = numbers_of(node, "starts", 1, context), numbers_of(node, "steps", 4, context)
    axes = numbers_of(node, "axes", 3, context)
    if starts is None or (axes is None and context.input(node, 3) is not None):
        return Refusal("where it slices is known at run time only")
    if any(step != 1 for step in steps or ()) or (steps is None and context.input(node, 4) is not None):
        return Refusal("it takes steps other than 1")
    axes = [int(axis) % len(shape) for axis in (range(len(starts)) if axes is None else axes)]
    result = context.shape(node.outputs[0]) or shape
    changed = [axis for axis in range(len(shape)) if result[axis] != shape[axis]]
    if len(changed) != 1:
        return Refusal("it slices several axes at once" if changed else "it gives its input unchanged")
    start = int(starts[axes.index(changed[0])])
    size = shape[changed[0]]
    first = max(0, start + size) if start < 0 else min(start, size)
    return changed[0], [(first, first + result[changed[0]])]


REWRITE = SliceTo4D()
