"""Slices and splits of channels, read from a graph, and slices of height and width."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["channel_parts", "numbers_of"]


def crop(value: ir.Value, begin: Sequence[int], size: Sequence[int], builder: Builder) -> ir.Value:
    """`size` rows and columns of a 4-D value from `begin` on, by one Slice; itself if that is all of it."""
    whole = builder.shape(value)
    axes = [axis for axis in (2, 3) if (begin[axis - 2], size[axis - 2]) != (0, whole[axis])]
    if not axes:
        return value
    starts = [begin[axis - 2] for axis in axes]
    ends = [begin[axis - 2] + size[axis - 2] for axis in axes]
    if builder.context.opset < 10:
        return builder.op("Slice", value, axes=axes, starts=starts, ends=ends)
    return builder.op("Slice", value, *(builder.ints(numbers, "slice") for numbers in (starts, ends, axes)))


def split(value: ir.Value, axis: int, sizes: Sequence[int], builder: Builder) -> list[ir.Value]:
    """Consecutive parts of a value, by one Split: unlike Slice it leaves no computing of bounds to the parser."""
    if len(sizes) == 1:
        return [value]
    context = builder.context
    given = [] if context.opset < 13 else [builder.ints(sizes, "split")]
    numbers = list(sizes) if context.opset < 13 else None
    first = builder.op("Split", value, *given, outputs=len(sizes), axis=axis, split=numbers)
    made = first.producer()
    assert made is not None
    return list(made.outputs)


def channel_parts(node: ir.Node, context: RewriteContext) -> list[tuple[ir.Value, int, int]] | None:
    """(result, first channel, end) of each result that a Slice or Split takes from the channels; None for others."""
    shape = context.shape(node.inputs[0])
    if shape is None or len(shape) < 2 or not context.standard(node):
        return None
    if node.op_type == "Slice":
        return _slice(node, shape, context)
    if node.op_type == "Split" and int(context.attribute(node, "axis", 0)) % len(shape) == 1:
        return _split(node, context)
    return None


def _slice(node: ir.Node, shape: tuple[int, ...], context: RewriteContext) -> list[tuple[ir.Value, int, int]] | None:
    starts, axes, steps = (numbers_of(node, name, place, context) for name, place in _WHERE)
    result = context.shape(node.outputs[0])
    if starts is None or result is None or (shape[0], *shape[2:]) != (result[0], *result[2:]):
        return None
    axes = range(len(starts)) if axes is None and len(node.inputs) < 4 else axes
    if axes is None or (steps is None and len(node.inputs) > 4) or any(int(step) != 1 for step in steps or ()):
        return None
    first = next((int(start) for start, axis in zip(starts, axes, strict=True) if int(axis) % len(shape) == 1), 0)
    first = max(0, first + shape[1]) if first < 0 else min(first, shape[1])
    return [(node.outputs[0], first, first + result[1])] if result[1] else None


_WHERE = (("starts", 1), ("axes", 3), ("steps", 4))


def numbers_of(node: ir.Node, name: str, place: int, context: RewriteContext) -> Sequence[Any] | None:
    """One of a Slice's operands; None if it is not given, or known at run time only."""
    if context.opset < 10:
        numbers: Sequence[Any] | None = context.attribute(node, name)
        return numbers
    values = context.constant(context.input(node, place))
    return None if values is None else values.reshape(-1).tolist()


def _split(node: ir.Node, context: RewriteContext) -> list[tuple[ir.Value, int, int]] | None:
    parts, start = [], 0
    for value in node.outputs:
        shape = context.shape(value)
        if shape is None or not shape[1]:
            return None
        parts.append((value, start, start + shape[1]))
        start += shape[1]
    return parts
