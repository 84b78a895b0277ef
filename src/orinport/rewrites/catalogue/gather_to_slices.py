"""`Gather(x, [3, 4, 1]) -> Concat(Slice(x), Slice(x))`: fixed indices as slices.

## What it does
A Gather with constant indices along channels, height or width becomes one Slice for each stretch of indices that count
upwards, and a Concat of them along the channels, between two transposes where the axis is another. A single index (the
export of `x[:, k]`) is a Slice and a Reshape. Tensors that are not 4-D are seen as 4-D ones. One element of an axis
that shape movers made of channels, as queries, keys and values are, is a Slice of those channels.

## Why
Gather is no layer of the DLA; Slice and Concat along the channels are.

## Example
Channels 2, 1, 0 of a picture: three slices and a Concat.

## Refused
Indices known at run time; the batch of a 4-D tensor as axis; integers; indices in so many stretches that
the slices cost more than the GPU.

## Safety
exact: bit-equal. In INT8, where the DLA slices only in FP16, `channel-shuffle-to-conv` is the other way.

## Source
Rows V01a, V02 and N01 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._axis import board_of
from orinport.rewrites.catalogue._movers import absorb, chain_into
from orinport.rewrites.catalogue._selection import constant_indices, take
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "GatherToSlices"]


class GatherToSlices(Rewrite):
    """A choice of elements becomes slices."""

    name = "gather-to-slices"
    safety = Safety.EXACT
    op_types = ("Gather",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        source = node.inputs[0]
        if source is None or context.is_constant(source) or not context.is_float(source):
            return None
        shape = context.shape(source)
        if not shape:
            return Refusal("the shape is not known, or has no axes")
        axis = int(context.attribute(node, "axis", 0)) % len(shape)
        indices = constant_indices(node, context)
        if isinstance(indices, Refusal):
            return indices
        part = _part_of_channels(source, axis, indices.tolist(), context)
        if part is not None:
            origin, into, movers, span = part
            return Match((node, *movers), (node.outputs[0],), (origin, into, None, span))
        if axis == 0 and len(shape) == 4:
            return Refusal("it chooses among samples, and the DLA does not slice the batch")
        board, place = board_of(shape, axis)
        origin, into, movers = absorb(source, Shuffle.reshape(shape, board), context)
        return Match((node, *movers), (node.outputs[0],), (origin, into, place, indices.tolist()))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        origin, into, place, indices = match.data
        if place is None:
            single = builder.shuffle(builder.slice(origin, 1, *indices), into)
            return (builder.reshape(single, builder.shape(match.outputs[0])),)
        chosen = take(builder, builder.shuffle(origin, into), place, indices)
        return (builder.reshape(chosen, builder.shape(match.outputs[0])),)


def _part_of_channels(
    source: ir.Value, axis: int, indices: Sequence[int], context: RewriteContext
) -> tuple[ir.Value, Shuffle, tuple[ir.Node, ...], tuple[int, int]] | None:
    """One element of an axis that shape movers made of the leading part of the channels: a slice of those.

    So PyTorch takes queries, keys and values from their common projection.
    """
    chain = chain_into(source, context, rank=4) if len(indices) == 1 else None
    found = None if chain is None else chain[1].leading(axis)
    if chain is None or found is None:
        return None
    each, into = found
    return chain[0], into, chain[2], (indices[0] * each, (indices[0] + 1) * each)


REWRITE = GatherToSlices()
