"""`ScatterElements(x, [2], u) -> Concat(Slice(x), u, Slice(x))`: fixed places overwritten by slices.

## What it does
ScatterElements with constant indices that put whole slices of the updates along one axis of a 4-D tensor becomes one
Slice for each stretch that comes from the data or from the updates, and a Concat.

## Why
Scatter is no layer of the DLA; Slice and Concat along the channels are.

## Example
Channels 3 and 4 of 16 replaced: channels 0 to 2, the updates, channels 5 to 15.

## Refused
Indices known at run time, that differ along another axis or that repeat; updates that leave a part of their slice out;
a reduction; the batch as axis; other ranks than 4; integers; data and updates that are both constant; more stretches
than are worth a slice each.

## Safety
exact: bit-equal. An infinity in what is overwritten goes away with it. Negative indices count from the end.

## Source
Rows N01, V01a and X01b of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._constants import shrink
from orinport.rewrites.catalogue._selection import assemble, stretches_of
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ScatterToSlices"]


class ScatterToSlices(Rewrite):
    """Overwritten slices become a concatenation."""

    name = "scatter-to-slices"
    safety = Safety.EXACT
    op_types = ("Scatter", "ScatterElements")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        data, indices, updates = node.inputs
        shape, given, places = context.shape(data), context.shape(updates), context.constant(indices)
        if places is None:
            return Refusal("the indices are known at run time only")
        if shape is None or given is None or len(shape) != 4 or 0 in shape or 0 in given:
            return Refusal("the DLA takes rank 4, and no empty or unknown shape")
        if not context.is_float(data) or (context.is_constant(data) and context.is_constant(updates)):
            return Refusal("it writes integers, or constants into constants")
        if context.attribute(node, "reduction", "none") != "none":
            return Refusal(f"it combines by {context.attribute(node, 'reduction')}")
        axis = int(context.attribute(node, "axis", 0)) % 4
        if axis == 0:
            return Refusal("it writes samples, and the DLA does not slice the batch")
        if any(given[each] != shape[each] for each in range(4) if each != axis):
            return Refusal("the updates leave a part of their slice out")
        small = shrink(places)
        if any(small.shape[each] > 1 for each in range(4) if each != axis):
            return Refusal("the indices differ along another axis")
        wanted = [int(index) % shape[axis] for index in places.take(0, axis=0).swapaxes(0, axis - 1)[:, 0, 0]]
        if len(set(wanted)) != len(wanted):
            return Refusal("an index stands twice, and ONNX leaves open which update stays")
        source = {place: index for index, place in enumerate(wanted)}
        runs = stretches_of([(place not in source, source.get(place, place)) for place in range(shape[axis])])
        most = int(context.figure("selection", "slices"))
        if len(runs) > most:
            return Refusal(f"it would need {len(runs)} slices, more than {most}")
        return Match((node,), (node.outputs[0],), (axis, runs))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        axis, runs = match.data
        data, _, updates = match.nodes[0].inputs
        assert data is not None
        assert updates is not None
        if len(runs) == 1:
            constant = builder.context.constant(updates)
            return (updates if constant is None else builder.constant(constant, "rows"),)
        return (assemble(builder, data, updates, axis, runs),)


REWRITE = ScatterToSlices()
