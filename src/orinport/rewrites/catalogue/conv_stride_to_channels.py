"""`Conv(x, strides 16) -> Conv(Transpose(x))`: large strides become channels.

## What it does
A convolution whose stride is above the limit gathers every f-th row and column as a channel first, by reshapes and
transposes of 4-D tensors, and has a stride, a kernel and a tensor f times smaller for it. Where kernel or padding do
not divide, it is done with a smaller stride, and an average pool of one element takes every f-th result.

## Why
The DLA's convolution takes strides of up to 8.

## Example
The patch embedding of a vision transformer, `Conv((1, 3, 224, 224), kernel 16x16, strides 16)`: a 1x1 convolution over
`(1, 768, 14, 14)`, with no product more than before.

## Refused
Strides that have no factor that helps; rearrangements with dimensions above the DLA's limit; kernels that are known at
run time only.

## Safety
exact: the same products in another order of summation.

## Source
Rows C04, F01 and P04 of the acceptance catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._slices import crop
from orinport.rewrites.catalogue._windows import Window, build_conv, read_window
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ConvStrideToChannels"]


@dataclass(frozen=True, slots=True)
class _Data:
    window: Window
    factors: tuple[int, int]
    """By how much the stride shrinks along height and width."""
    gathers: bool
    """Rows and columns become channels; otherwise results are dropped."""


class ConvStrideToChannels(Rewrite):
    """Convolutions of large stride become convolutions of small stride."""

    name = "conv-stride-to-channels"
    safety = Safety.EXACT
    op_types = ("Conv",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        limit = context.limit("C04", "max")
        if max(context.attribute(node, "strides", (1,))) <= limit or context.rank(node.inputs[0]) != 4:
            return None
        shape, weights = context.shape(node.inputs[0]), context.shape(node.inputs[1])
        if shape is None or weights is None or context.shape(node.outputs[0]) is None:
            return Refusal("the shape is not known")
        if not context.is_constant(node.inputs[1]):
            return Refusal("the kernel is known at run time only")
        window = read_window(node, weights[2:], shape[2:], context)
        gathered = _gathered(node, window, shape, context)
        if gathered is not None:
            return Match((node,), (node.outputs[0],), gathered)
        factors = [_factor(stride, limit) for stride in window.strides]
        if max(factors) > context.limit("P04", "max"):
            return Refusal(f"a stride of {max(window.strides)} has no factor that helps")
        return Match((node,), (node.outputs[0],), _Data(window, (factors[0], factors[1]), gathers=False))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, data = match.nodes[0], match.data
        value, weights = node.inputs[0], node.inputs[1]
        assert value is not None
        assert weights is not None
        bias = builder.context.input(node, 2)
        strides = tuple(stride // factor for stride, factor in zip(data.window.strides, data.factors, strict=True))
        window = replace(data.window, strides=strides)
        if not data.gathers:
            group = int(builder.context.attribute(node, "group", 1))
            return (_every(build_conv(builder, value, weights, bias, window, group), data.factors, builder),)
        stored = builder.context.constant(weights)
        assert stored is not None
        kernel = builder.constant(_folded(stored, data.factors), "weights")
        window = replace(window, kernel=builder.shape(kernel)[2:])
        return (build_conv(builder, _gather(value, data.factors, builder), kernel, bias, window),)


def _gathered(node: ir.Node, window: Window, shape: tuple[int, ...], context: RewriteContext) -> _Data | None:
    """Factors that divide stride and kernel, where padding and sizes allow to gather by them."""
    limit, sizes = context.limit("C04", "max"), context.limit("G05", "max")
    if int(context.attribute(node, "group", 1)) != 1 or window.padded or window.dilations != (1, 1):
        return None
    factors = []
    for kernel, stride in zip(window.kernel, window.strides, strict=True):
        if stride <= limit:
            factors.append(1)
            continue
        good = [f for f in range(2, stride + 1) if stride % f == 0 and kernel % f == 0 and stride // f <= limit]
        if not good:
            return None
        factors.append(good[-1] if kernel == stride else good[0])
    _, channels, height, width = shape
    rows, columns = height // factors[0], width // factors[1]
    largest = (channels * rows, channels * factors[0] * rows, channels * factors[0] * factors[1], rows, columns)
    return _Data(window, (factors[0], factors[1]), gathers=True) if max(largest) <= sizes else None


def _factor(stride: int, limit: int) -> int:
    """The smallest factor that brings the stride within the limit."""
    return next(f for f in range(1, stride + 1) if stride % f == 0 and stride // f <= limit)


def _gather(value: ir.Value, factors: tuple[int, int], builder: Builder) -> ir.Value:
    """Every f-th row and column as a channel: (N, C, H, W) to (N, fw * fh * C, H / fh, W / fw)."""
    batch, channels, height, width = builder.shape(value)
    rows, columns = height // factors[0], width // factors[1]
    value = crop(value, (0, 0), (rows * factors[0], columns * factors[1]), builder)
    if factors[0] > 1:
        split = builder.reshape(value, (batch, channels * rows, factors[0], columns * factors[1]))
        channels *= factors[0]
        moved = builder.transpose(split, (0, 2, 1, 3))
        value = builder.reshape(moved, (batch, channels, rows, columns * factors[1]))
    if factors[1] > 1:
        split = builder.reshape(value, (batch, channels * rows, columns, factors[1]))
        moved = builder.transpose(split, (0, 3, 1, 2))
        value = builder.reshape(moved, (batch, channels * factors[1], rows, columns))
    return value


def _folded(weights: NDArray[np.generic], factors: tuple[int, int]) -> NDArray[np.generic]:
    """The kernel for gathered rows and columns: (M, fw * fh * C, kh / fh, kw / fw)."""
    outputs, channels, height, width = weights.shape
    high, wide = height // factors[0], width // factors[1]
    parts = weights.reshape(outputs, channels, high, factors[0], wide, factors[1])
    return np.ascontiguousarray(parts.transpose(0, 5, 3, 1, 2, 4)).reshape(outputs, -1, high, wide)


def _every(value: ir.Value, factors: tuple[int, int], builder: Builder) -> ir.Value:
    """Every f-th row and column: a pool of one element."""
    batch, channels, height, width = builder.shape(value)
    return builder.op(
        "AveragePool",
        value,
        kernel_shape=[1, 1],
        strides=list(factors),
        pads=[0, 0, 0, 0],
        count_include_pad=1,
        shape=(batch, channels, (height - 1) // factors[0] + 1, (width - 1) // factors[1] + 1),
        dtype=builder.context.dtype(value),
    )


REWRITE = ConvStrideToChannels()
