"""`Gather(x, [3, 4, 1]) -> Concat(Slice(x), Slice(x))`: fixed indices as slices.

## What it does
A Gather with constant indices along channels, height or width becomes one Slice for each stretch of indices that count
upwards, and a Concat of them along the channels, between two transposes where the axis is another. A single index (the
export of `x[:, k]`) is a Slice and a Reshape.

## Why
Gather is no layer of the DLA; Slice and Concat along the channels are.

## Example
Channels 2, 1, 0 of a picture: three slices and a Concat.

## Refused
Indices known at run time; the batch as axis; other ranks than 4; indices in so many stretches that the slices cost more
than the GPU.

## Safety
exact: bit-equal. In INT8, where the DLA slices only in FP16, `channel-shuffle-to-conv` is the other way.

## Source
Rows V01a, V02 and N01 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._selection import constant_indices, take
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

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
        rank = context.rank(source)
        if rank != 4:
            return Refusal(f"its input has rank {rank}, and the DLA slices tensors of rank 4")
        axis = int(context.attribute(node, "axis", 0)) % 4
        if axis == 0:
            return Refusal("it chooses among samples, and the DLA does not slice the batch")
        indices = constant_indices(node, context)
        return indices if isinstance(indices, Refusal) else Match((node,), (node.outputs[0],), (axis, indices.tolist()))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        source = match.nodes[0].inputs[0]
        assert source is not None
        chosen = take(builder, source, *match.data)
        return (builder.reshape(chosen, builder.shape(match.outputs[0])),)


REWRITE = GatherToSlices()
