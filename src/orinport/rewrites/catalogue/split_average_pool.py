"""`AveragePool(x, 12x12) -> Conv(x)` of each channel, or smaller pools: average pools above the limit.

## What it does
An average pool whose window or padding is above the DLA's limit becomes a chain of pools whose windows multiply to it,
where its stride and missing padding allow that; else a depthwise convolution with the weights 1 / (H W). Where a border
is left out of the count, a constant corrects the count at each position.

## Why
The DLA pools over windows of at most 8 x 8 with padding of at most 7, and convolves with kernels of up to 32 x 32.

## Example
`AveragePool(kernel 14x14, strides 14)`: two pools, 7x7 and 2x2. `AveragePool(kernel 9x9, pads 4, strides 1)`: a
depthwise 9x9 convolution.

## Refused
Dilated pools; windows above the limit of convolutions too; strides above 8 that do not factor; tensors so wide that the
convolution does not fit its buffer.

## Safety
exact: the same mean in another order of summation.

## Source
Rows P02, P03a, P09, C02a, C04, C07 and C10a of the acceptance catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._windows import Window, build_conv, read_window
from orinport.rewrites.limits import fits_buffer
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "SplitAveragePool"]


@dataclass(frozen=True, slots=True)
class _Data:
    window: Window
    """Padded at the end as far as the last window reaches."""
    counts: tuple[NDArray[np.int64], NDArray[np.int64]]
    """Elements that each window counts, along the height and along the width."""
    stages: tuple[tuple[tuple[int, int], tuple[int, int]], ...]
    """(kernel, strides) of a chain of pools; empty for a convolution."""


class SplitAveragePool(Rewrite):
    """Average pools above the limits become chains of pools or depthwise convolutions."""

    name = "split-average-pool"
    safety = Safety.EXACT
    op_types = ("AveragePool",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value, output = node.inputs[0], node.outputs[0]
        before, after = context.shape(value), context.shape(output)
        if value is None or context.rank(value) != 4:
            return None
        if before is None or after is None or 0 in before:
            return Refusal("the shape is not known")
        kernel = tuple(int(size) for size in context.attribute(node, "kernel_shape"))
        window = read_window(node, kernel, before[2:], context)
        if max(kernel) <= context.limit("P02", "max") and max(window.pads) <= context.limit("P03a", "max"):
            return None
        if not context.is_float(value):
            return Refusal(f"pools do not take {context.dtype(value)}")
        if window.dilations != (1, 1):
            return Refusal("the window is dilated")
        data = _plan(node, window, before, after, context)
        return data if isinstance(data, Refusal) else Match((node,), (output,), data)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        data: _Data = match.data
        value = match.nodes[0].inputs[0]
        assert value is not None
        for kernel, strides in data.stages:
            value = _pool(value, kernel, strides, builder)
        if not data.stages:
            channels = builder.shape(value)[1]
            each = np.full((channels, 1, *data.window.kernel), 1.0 / np.prod(data.window.kernel))
            weights = builder.constant(each.astype(builder.numpy_dtype(value)), "mean")
            value = build_conv(builder, value, weights, None, data.window, channels)
        factor = np.prod(data.window.kernel) / np.outer(*data.counts)
        if (factor == 1.0).all():
            return (value,)
        full = np.broadcast_to(factor, (1, builder.shape(value)[1], *factor.shape))
        return (builder.op("Mul", value, builder.constant(full.astype(builder.numpy_dtype(value)), "count")),)


def _plan(
    node: ir.Node, window: Window, before: tuple[int, ...], after: tuple[int, ...], context: RewriteContext
) -> _Data | Refusal:
    included = bool(context.attribute(node, "count_include_pad", 0))
    reach, counts = [], []
    for axis in range(2):
        size, begin = before[2 + axis], window.begin[axis]
        starts = np.arange(after[2 + axis]) * window.strides[axis] - begin
        ends = starts + window.kernel[axis]
        reach.append(max(0, int(ends[-1]) - size))
        last = size + window.end[axis] if included else size
        counts.append(np.minimum(ends, last) - (starts if included else np.maximum(starts, 0)))
        if counts[-1].min() <= 0 or max(begin, reach[-1]) >= window.kernel[axis]:
            return Refusal("a window sees padding alone")
    data = _Data(window.with_pads(window.begin, (reach[0], reach[1])), (counts[0], counts[1]), ())
    if not data.window.padded:
        stages = _stages(window, context.limit("P02", "max"), context.limit("P04", "max"))
        if stages:
            return _Data(data.window, data.counts, stages)
    limit = context.limit("C02a", "max")
    if max(window.kernel) > limit:
        return Refusal(f"the window is above the limit of {limit} of convolutions too")
    if max(window.strides) > context.limit("C04", "max"):
        return Refusal(f"the stride is above the limit of {context.limit('C04', 'max')} of convolutions")
    if not fits_buffer(context, before[1], before[3], (window.kernel[0], window.kernel[1])):
        return Refusal(f"a convolution over {before[1]} channels of width {before[3]} does not fit the buffer")
    return data


def _stages(window: Window, limit: int, stride_limit: int) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
    """Pools without padding that one after the other do the same; empty if there are none."""
    plans = [_factors(k, s, limit, stride_limit) for k, s in zip(window.kernel, window.strides, strict=True)]
    count = max(map(len, plans))
    if not all(plans):
        return ()
    rows, columns = ((*plan, *[(1, 1)] * (count - len(plan))) for plan in plans)
    return tuple(((row[0], column[0]), (row[1], column[1])) for row, column in zip(rows, columns, strict=True))


def _factors(kernel: int, stride: int, limit: int, stride_limit: int) -> tuple[tuple[int, int], ...]:
    """(kernel, stride) of pools along one axis; all but the last have windows side by side."""
    if kernel <= limit:
        return ((kernel, stride),) if stride <= stride_limit else ()
    for first in range(limit, 1, -1):
        if kernel % first == 0 and stride % first == 0:
            rest = _factors(kernel // first, stride // first, limit, stride_limit)
            if rest:
                return ((first, first), *rest)
    return ()


def _pool(value: ir.Value, kernel: tuple[int, int], strides: tuple[int, int], builder: Builder) -> ir.Value:
    batch, channels, height, width = builder.shape(value)
    return builder.op(
        "AveragePool",
        value,
        kernel_shape=list(kernel),
        strides=list(strides),
        pads=[0, 0, 0, 0],
        count_include_pad=1,
        shape=(
            batch,
            channels,
            (height - kernel[0]) // strides[0] + 1,
            (width - kernel[1]) // strides[1] + 1,
        ),
        dtype=builder.context.dtype(value),
    )


REWRITE = SplitAveragePool()
