"""`GlobalAveragePool(x) -> AveragePool(AveragePool(x))`, or a depthwise convolution: means and maxima over H and W.

## What it does
GlobalAveragePool, GlobalMaxPool, and ReduceMean or ReduceMax over the spatial dimensions become average or max pools. A
window above the DLA's limit becomes a chain of pools whose windows multiply to it; where a mean has no such chain
(13 x 13, 17 x 17), a depthwise convolution with the weights 1 / (H W), or, where that does not fit the convolution
buffer, pools that count zeros at the end, and a constant that corrects the count.

## Why
The parser makes a reduction of them, and the DLA takes none (AVG), or only with newer software (MAX).

## Example
`GlobalAveragePool` on 49 x 49: two average pools, 7 x 7 with stride 7, twice.

## Refused
Reductions over the batch, the channels or axes that are not constant; tensors of other ranks than 3 and 4 (global
pools: 3 to 5); integers.

## Safety
exact: the same mean in another order of summation; the maximum bit-equal.

## Source
Rows P02, P03a, P08, P09, C02a, C07, C10a, Q01c and Q01e of the acceptance catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._movers import absorb
from orinport.rewrites.limits import fits_buffer
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ReduceToPool"]

_GLOBAL = {"GlobalAveragePool": "mean", "GlobalMaxPool": "max"}
_REDUCE = {"ReduceMean": "mean", "ReduceMax": "max"}


@dataclass(frozen=True, slots=True)
class _Data:
    source: ir.Value
    into: Shuffle
    kind: str
    window: tuple[int, int]


class ReduceToPool(Rewrite):
    """Means and maxima over H and W become pools or depthwise convolutions."""

    name = "reduce-to-pool"
    safety = Safety.EXACT
    op_types = (*_GLOBAL, *_REDUCE)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value = node.inputs[0]
        shape = context.shape(value)
        if value is None or shape is None or context.shape(node.outputs[0]) is None:
            return Refusal("the shape is not known")
        if not context.is_float(value):
            return Refusal(f"pools do not take {context.dtype(value)}")
        if 0 in shape:
            return Refusal("the tensor holds no elements")
        if not 3 <= len(shape) <= (5 if node.op_type in _GLOBAL else 4):
            return Refusal(f"the tensor has {len(shape)} dimensions")
        axes = _axes(node, shape, context)
        if axes is None:
            return Refusal("the axes are known at run time only")
        if not axes or min(axes) < 2:
            return None if not axes else Refusal("it also reduces the batch or the channels")
        board, window = _board(shape, axes)
        source, into, movers = absorb(value, Shuffle.reshape(shape, board), context)
        kind = {**_GLOBAL, **_REDUCE}[node.op_type]
        return Match((node, *movers), (node.outputs[0],), _Data(source, into, kind, window))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        data: _Data = match.data
        value = builder.shuffle(data.source, data.into)
        result = _max(value, data.window, builder) if data.kind == "max" else _mean(value, data.window, builder)
        return (builder.reshape(result, builder.shape(match.outputs[0])),)


def _axes(node: ir.Node, shape: tuple[int, ...], context: RewriteContext) -> tuple[int, ...] | None:
    """Reduced axes, sorted; empty for none; None if they are not constant."""
    if node.op_type in _GLOBAL:
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


def _board(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
    """The 4-D shape to pool on, and the window."""
    height, width = (1, shape[2]) if len(shape) == 3 else (prod(shape[2:-1]), shape[-1])
    last = len(shape) - 1 in axes
    tall = len(shape) > 3 and any(axis in axes for axis in range(2, len(shape) - 1))
    return (shape[0], shape[1], height, width), (height if tall else 1, width if last else 1)


def _mean(value: ir.Value, window: tuple[int, int], builder: Builder) -> ir.Value:
    limit = builder.context.limit("P02", "max")
    parts = [_factors(size, limit) for size in window]
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


def _factors(size: int, limit: int) -> tuple[int, ...] | None:
    """`size` as a product of windows up to `limit`, largest first; None if it has a larger prime factor."""
    found: list[int] = []
    while size > 1:
        factor = next((f for f in range(min(limit, size), 1, -1) if size % f == 0), None)
        if factor is None:
            return None
        found.append(factor)
        size //= factor
    return tuple(found)


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


def _max(value: ir.Value, window: tuple[int, int], builder: Builder) -> ir.Value:
    """Max pools one after the other; padding never wins a maximum."""
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


REWRITE = ReduceToPool()
