"""`Slice(Slice(x)) -> Slice(x)`: parts of a part, or of a reversed tensor, from the tensor itself.

## What it does
A Slice that only Slices along the same axis read goes away: each of them takes its elements from the source. So does
one that reverses the axis, behind which single elements are taken in order.

## Why
The DLA slices with steps of 1 only, so a reversed tensor would be put together from single elements, and taken apart
again.

## Example
The backward direction of a recurrent layer as PyTorch writes it out: the sequence reversed, then a Slice for each step.

## Refused
Where one of them slices is known at run time only; other axes, or several at once, are left alone.

## Safety
exact: bit-equal.

## Source
Rows V01a and V02 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._slices import numbers_of
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "MergeSlices"]


class MergeSlices(Rewrite):
    """Slices of a slice read its source."""

    name = "merge-slices"
    safety = Safety.EXACT
    op_types = ("Slice",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value, result = node.inputs[0], node.outputs[0]
        readers = context.consumers(result)
        if value is None or context.is_constant(value) or context.is_output(result) or not readers:
            return None
        if any(each.op_type != "Slice" or each.graph is not context.graph for each in readers):
            return None
        if any(not context.standard(each) or each.inputs[0] is not result for each in readers):
            return None
        first = taken(node, context)
        if first is None:
            return Refusal("where it slices is known at run time only, or along several axes")
        axis, elements = first
        parts = []
        for reader in readers:
            found = taken(reader, context)
            if found is None or found[0] != axis:
                return None
            parts.append(_of(elements, found[1]))
        return Match((node, *readers), tuple(each.outputs[0] for each in readers), (axis, parts))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        axis, parts = match.data
        value = match.nodes[0].inputs[0]
        assert value is not None
        size = builder.shape(value)[axis]
        results = []
        for part in parts:
            step = part.step if len(part) > 1 else 1
            end = part[-1] + (1 if step > 0 else -1)
            results.append(builder.slice(value, axis, part[0], end if end >= 0 else -size - 1, step))
        return results


def _of(elements: range, part: range) -> range:
    """The elements of a range at the places of another one."""
    step = elements.step * part.step
    first = elements[part[0]]
    return range(first, first + step * len(part), step)


def taken(node: ir.Node, context: RewriteContext) -> tuple[int, range] | None:
    """The only axis of which a Slice takes a part, and its elements there; None if that is not known, or several."""
    shape, result = context.shape(node.inputs[0]), context.shape(node.outputs[0])
    starts, axes, steps = (numbers_of(node, name, place, context) for name, place in _WHERE)
    given = [context.input(node, place) for _, place in _WHERE]
    if shape is None or result is None or starts is None or 0 in result:
        return None
    if (axes is None and given[1] is not None) or (steps is None and given[2] is not None):
        return None
    names = [int(axis) % len(shape) for axis in (range(len(starts)) if axes is None else axes)]
    steps = [1] * len(names) if steps is None else [int(step) for step in steps]
    changed = [
        place for place, axis in enumerate(names) if result[axis] != shape[axis] or (steps[place] != 1 < shape[axis])
    ]
    if len(changed) != 1:
        return None
    axis, step, start = names[changed[0]], steps[changed[0]], int(starts[changed[0]])
    size = shape[axis]
    start = start + size if start < 0 else start
    start = max(0, min(start, size if step > 0 else size - 1))
    return axis, range(start, start + step * result[axis], step)


_WHERE = (("starts", 1), ("axes", 3), ("steps", 4))

REWRITE = MergeSlices()
