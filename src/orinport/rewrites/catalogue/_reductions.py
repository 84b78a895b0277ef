"""Means and maxima over height and width as pools and depthwise convolutions, and which axes a reduction takes."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._movers import absorb
from orinport.rewrites.limits import factors, fits_buffer
from orinport.rewrites.rewrite import Match, Refusal
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["Reduced", "Reduction", "maximum", "mean", "on_board", "read_reduction", "reduced_axes"]


@dataclass(frozen=True, slots=True)
class Reduction:
    """A node's input, its shape, and the axes that it reduces, sorted."""

    value: ir.Value
    shape: tuple[int, ...]
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reduced:
    """A 4-D tensor, `into` of `source`, and whether its channels, height and width are reduced."""

    source: ir.Value
    into: Shuffle
    reduced: tuple[bool, bool, bool]


def read_reduction(node: ir.Node, takers: str, context: RewriteContext) -> Reduction | Refusal | None:
    """What a node reduces; None if that changes nothing. `takers` stand in a refusal: `pools`."""
    value = node.inputs[0]
    shape = context.shape(value)
    if value is None or shape is None or context.shape(node.outputs[0]) is None:
        return Refusal("the shape is not known")
    if not context.is_float(value):
        return Refusal(f"{takers} do not take {context.dtype(value)}")
    if 0 in shape:
        return Refusal("the tensor holds no elements")
    axes = reduced_axes(node, shape, context)
    if axes is None:
        return Refusal("the axes are known at run time only")
    if not axes or all(shape[axis] == 1 for axis in axes):
        return None
    if 0 in axes and shape[0] > 1 and len(shape) > 1:
        return Refusal("it also reduces the batch")
    return Reduction(value, shape, axes)


def on_board(node: ir.Node, reduction: Reduction, context: RewriteContext) -> Match | Refusal:
    """The reduction over channels, height or width of a 4-D tensor, as `Reduced`."""
    found = board_of(reduction.shape, reduction.axes)
    if found is None:
        return Refusal("kept and reduced dimensions alternate too often for a 4-D tensor")
    board, reduced = found
    limit = context.limit("G05", "max")
    if max(board[1:]) > limit:
        return Refusal(f"a dimension of {max(board[1:])} exceeds the DLA's limit of {limit}")
    source, into, movers = absorb(reduction.value, Shuffle.reshape(reduction.shape, board), context)
    return Match((node, *movers), (node.outputs[0],), Reduced(source, into, reduced))


def reduced_axes(node: ir.Node, shape: tuple[int, ...], context: RewriteContext) -> tuple[int, ...] | None:
    """Reduced axes, sorted; empty for none; None if they are not constant."""
    if node.op_type.startswith("Global"):
        return tuple(range(2, len(shape)))
    given = context.input(node, 1)
    axes = context.attribute(node, "axes")
    if given is not None:
        values = context.constant(given)
        if values is None:
            return None
        axes = tuple(int(axis) for axis in values.reshape(-1))
    if not axes:
        return () if context.attribute(node, "noop_with_empty_axes", 0) else tuple(range(len(shape)))
    return tuple(sorted({axis % len(shape) for axis in axes}))


def mean(value: ir.Value, window: tuple[int, int], builder: Builder) -> ir.Value:
    """The mean of a 4-D value over a window of its whole height or width, or 1 where that is kept."""
    limit = builder.context.limit("P02", "max")
    parts = [factors(size, limit) for size in window]
    if parts[0] is None or parts[1] is None:
        _, channels, _, width = builder.shape(value)
        reach = builder.context.limit("C02a", "max")
        if max(window) <= reach and fits_buffer(builder.context, channels, width, window):
            return _depthwise(value, window, builder)
        return _mean_with_zeros(value, window, builder)
    length = max(len(parts[0]), len(parts[1]), 1)
    stages = [(*part, *[1] * (length - len(part))) for part in parts if part is not None]
    for kernel in zip(*stages, strict=True):
        if kernel != (1, 1):
            value = _pool(value, "AveragePool", kernel, (0, 0), builder)
    return value


def _mean_with_zeros(value: ir.Value, window: tuple[int, int], builder: Builder) -> ir.Value:
    """Pools that count zeros at the end, and a constant that takes the zeros out of the count again."""
    limit = builder.context.limit("P02", "max")
    height, width = window
    counted = 1
    while (height, width) != (1, 1):
        kernel = (_window(height, limit), _window(width, limit))
        after = (ceil(height / kernel[0]), ceil(width / kernel[1]))
        pads = (after[0] * kernel[0] - height, after[1] * kernel[1] - width)
        value = _pool(value, "AveragePool", kernel, pads, builder)
        counted *= kernel[0] * kernel[1]
        height, width = after
    factor = np.full((1, builder.shape(value)[1], 1, 1), counted / prod(window), builder.numpy_dtype(value))
    return builder.op("Mul", value, builder.constant(factor, "count"))


def _window(size: int, limit: int) -> int:
    """The window that leads to 1 in as few pools as can be, with the fewest zeros."""
    if size <= limit:
        return size
    pools = 1
    while limit**pools < size:
        pools += 1
    good = [k for k in range(2, limit + 1) if ceil(size / k) <= limit ** (pools - 1)]
    return min(good, key=lambda k: (ceil(size / k) * k - size, -k))


def _depthwise(value: ir.Value, window: tuple[int, int], builder: Builder) -> ir.Value:
    n, c, h, w = builder.shape(value)
    weights = np.full((c, 1, *window), 1.0 / prod(window), builder.numpy_dtype(value))
    return builder.op(
        "Conv",
        value,
        builder.constant(weights, "mean"),
        kernel_shape=list(window),
        strides=[1, 1],
        pads=[0, 0, 0, 0],
        dilations=[1, 1],
        group=c,
        shape=(n, c, h - window[0] + 1, w - window[1] + 1),
        dtype=builder.context.dtype(value),
    )


def maximum(value: ir.Value, window: tuple[int, int], builder: Builder) -> ir.Value:
    """The maximum of a 4-D value over such a window: pools one after the other; padding never wins."""
    limit = builder.context.limit("P02", "max")
    height, width = window
    while (height, width) != (1, 1):
        kernel = (_step(height, limit), _step(width, limit))
        after = (ceil(height / kernel[0]), ceil(width / kernel[1]))
        pads = (after[0] * kernel[0] - height, after[1] * kernel[1] - width)
        value = _pool(value, "MaxPool", kernel, pads, builder)
        height, width = after
    return value


def _step(size: int, limit: int) -> int:
    """The largest window that divides `size`, or the limit where only small ones do."""
    best = max((f for f in range(1, min(limit, size) + 1) if size % f == 0), default=1)
    return best if best * 2 > min(limit, size) or size <= limit else limit


def _pool(value: ir.Value, op_type: str, kernel: tuple[int, int], pads: tuple[int, int], builder: Builder) -> ir.Value:
    n, c, h, w = builder.shape(value)
    return builder.op(
        op_type,
        value,
        kernel_shape=list(kernel),
        strides=list(kernel),
        pads=[0, 0, *pads],
        count_include_pad=1 if op_type == "AveragePool" else None,
        shape=(n, c, (h + pads[0]) // kernel[0], (w + pads[1]) // kernel[1]),
        dtype=builder.context.dtype(value),
    )


def board_of(
    shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[tuple[int, int, int, int], tuple[bool, bool, bool]] | None:
    """A 4-D shape of the same order, and which of its channels, height and width are reduced; None if there is none.

    The first dimension is the batch unless it is reduced. Dimensions that share their fate are joined, except
    that a 4-D tensor stays as it is.
    """
    if len(shape) == 4 and (0 not in axes or shape[0] == 1):
        return (shape[0], shape[1], shape[2], shape[3]), (1 in axes, 2 in axes, 3 in axes)
    batch, first = (1, 0) if 0 in axes or len(shape) == 1 else (shape[0], 1)
    groups: list[tuple[int, bool]] = []
    for axis in range(first, len(shape)):
        gone = axis in axes
        if shape[axis] == 1:
            continue
        if groups and groups[-1][1] == gone:
            groups[-1] = (groups[-1][0] * shape[axis], gone)
        else:
            groups.append((shape[axis], gone))
    if len(groups) > 3:
        return None
    if len(groups) == 2:
        groups.insert(1, (1, False))
    groups += [(1, False)] * (3 - len(groups))
    (channels, one), (height, two), (width, three) = groups
    return (batch, channels, height, width), (one, two, three)
