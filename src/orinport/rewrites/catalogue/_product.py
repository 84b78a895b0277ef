"""Products with a constant operand as convolutions: what MatMul and Gemm have in common.

A product is a 1x1 convolution over S positions: K becomes the channels, the other dimension of the run-time
operand becomes H x W. Where the operand is a flattened feature map, the kernel covers the whole map instead and
nothing has to be flattened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.rewrites.builder import RefusedError
from orinport.rewrites.catalogue._movers import chain_into
from orinport.rewrites.limits import fits_buffer
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["Product", "convolve", "is_batch", "plan_nodes", "positions"]


@dataclass(frozen=True, slots=True)
class Product:
    """`value`, stored as (batch, groups, S, K) or (batch, groups, K, S), times weights (groups, outputs, K).

    The result is stored as (batch, out_groups, S, outputs) or with the last two exchanged, and has the shape
    `result`. `out_groups * outputs_each` equals the convolution's output channels.
    """

    value: ir.Value
    batch: int
    groups: int
    positions: int
    channels: int
    outputs: int
    out_groups: int
    channels_last: bool
    outputs_last: bool
    result: tuple[int, ...]
    steps_first: bool = False
    """Stored as (S, batch, K) and (S, batch, outputs) instead: positions are the steps of a sequence."""

    def into(self, height: int, width: int) -> Shuffle:
        """From the operand as stored to (batch, groups * K, height, width)."""
        n, g, s, k = self.batch, self.groups, self.positions, self.channels
        shape = self.value.shape
        assert shape is not None
        before = tuple(int(dim) for dim in shape)  # type: ignore[arg-type]
        after = (n, g * k, height, width)
        if self.steps_first:
            return Shuffle.make(before, (s, n, k), (1, 2, 0), after)
        if self.channels_last:
            return Shuffle.make(before, (n, g, s, k), (0, 1, 3, 2), after)
        return Shuffle.make(before, before, range(len(before)), after)

    def out_of(self, height: int, width: int) -> Shuffle:
        """From (batch, output channels, height, width) to the result as stored."""
        n, g, s = self.batch, self.out_groups, self.positions
        total = self.groups * self.outputs
        before = (n, total, height, width)
        if self.steps_first:
            return Shuffle.make(before, (n, total, s), (2, 0, 1), self.result)
        if self.outputs_last:
            return Shuffle.make(before, (n, g, total // g, s), (0, 1, 3, 2), self.result)
        return Shuffle.make(before, before, range(4), self.result)


def plan_nodes(product: Product, context: RewriteContext) -> tuple[ir.Node, ...]:
    """Shape movers before the operand that the convolution takes over, because it can read what they read."""
    found = _absorbed(product, context)
    return () if found is None else found[2]


def _absorbed(product: Product, context: RewriteContext) -> tuple[ir.Value, Shuffle, tuple[ir.Node, ...]] | None:
    """Source, shuffle to (batch, K, H, W) form and nodes of a chain before the operand, where taking it in pays."""
    chain = chain_into(product.value, context)
    if chain is None:
        return None
    source, moved, nodes = chain
    height, width = positions(product.positions, product.channels * product.groups, context)
    into = product.into(height, width)
    total = moved.then(into)
    if total is None:
        return None
    window = _window(source, total, product, context)
    if window is not None or len(total.steps()) <= len(into.steps()):
        return source, total, nodes
    return None


def _window(
    source: ir.Value, total: Shuffle, product: Product, context: RewriteContext
) -> tuple[tuple[int, int, int], NDArray[np.intp]] | None:
    """The feature map (C, H, W) that the operand is flattened from, and where in K each of its elements went."""
    shape = context.shape(source)
    if shape is None or len(shape) != 4 or shape[0] != product.batch:
        return None
    if product.positions != 1 or product.groups != 1 or shape[2] * shape[3] == 1:
        return None
    sample = total.without_batch()
    if sample is None or max(shape[2:]) > context.limit("C02a", "max") or shape[1] > context.limit("G05", "max"):
        return None
    order = sample.inverse().apply(np.arange(product.channels).reshape(sample.shape))
    return (shape[1], shape[2], shape[3]), order.reshape(-1)


def convolve(
    product: Product, weights: NDArray[Any], bias: NDArray[Any] | None, builder: Builder
) -> tuple[ir.Value, Shuffle]:
    """The convolution, with weights (groups * outputs, K); gives its 4-D result and the shuffle to the stored form."""
    context = builder.context
    source, total = product.value, None
    absorbed = _absorbed(product, context)
    height, width = positions(product.positions, product.channels * product.groups, context)
    if absorbed is not None:
        source, total, _ = absorbed
        window = _window(source, total, product, context)
        if window is not None:
            (c, h, w), order = window
            if not np.array_equal(order, np.arange(order.size)):
                weights = weights[:, order]
            return _conv(builder, source, weights.reshape(-1, c, h, w), bias, 1), product.out_of(1, 1)
    limit = context.limit("G05", "max")
    if product.channels * product.groups > limit or weights.shape[0] > limit:
        wide = max(product.channels * product.groups, weights.shape[0])
        raise RefusedError(f"the convolution would have {wide} channels, more than the DLA's limit of {limit}")
    operand = builder.shuffle(source, product.into(height, width) if total is None else total)
    kernel = weights.reshape(-1, product.channels, 1, 1)
    return _conv(builder, operand, kernel, bias, product.groups), product.out_of(height, width)


def _conv(builder: Builder, value: ir.Value, weights: NDArray[Any], bias: NDArray[Any] | None, groups: int) -> ir.Value:
    inputs = [builder.constant(weights, "weights")]
    if bias is not None:
        inputs.append(builder.constant(bias.astype(weights.dtype), "bias"))
    n, _, h, w = builder.shape(value)
    kh, kw = weights.shape[2:]
    return builder.op(
        "Conv",
        value,
        *inputs,
        kernel_shape=[kh, kw],
        strides=[1, 1],
        pads=[0, 0, 0, 0],
        dilations=[1, 1],
        group=groups,
        shape=(n, weights.shape[0], h - kh + 1, w - kw + 1),
        dtype=builder.context.dtype(value),
    )


def is_batch(value: ir.Value, rows: int, context: RewriteContext) -> bool:
    """The rows of a matrix are the images of a batch: it comes from feature maps with that many."""
    current: ir.Value | None = value
    for _ in range(64):
        shape = context.shape(current)
        if current is None or shape is None or not shape or shape[0] != rows:
            return False
        producer = current.producer()
        if len(shape) >= 4:
            if producer is None or producer.op_type not in ("Reshape", "Transpose"):
                return True
            if producer.op_type == "Transpose":
                return bool(context.attribute(producer, "perm", (1,))[0] == 0)
            before = context.shape(producer.inputs[0])  # a reshape may make images of positions
            return before is not None and before[:1] == (rows,)
        if producer is None or producer.op_type == "Transpose" or not producer.inputs:
            return False
        current = producer.inputs[0]
    return False


def positions(count: int, channels: int, context: RewriteContext) -> tuple[int, int]:
    """(height, width) for `count` positions of a 1x1 convolution.

    The convolution pipe works on 16 to 32 positions of one row with the same weights, so the width is a divisor
    in that range, else the next larger, else the largest; rows must fit the convolution buffer.
    """
    limit = context.limit("G05", "max")
    fits = [
        width
        for width in _divisors(count)
        if width <= limit and count // width <= limit and fits_buffer(context, channels, width)
    ]
    if not fits:
        raise RefusedError(f"{count} positions do not divide into H x W within the DLA's limit of {limit}")
    low, high = context.figure("stripe", "min"), context.figure("stripe", "max")
    inside = [width for width in fits if low <= width <= high]
    above = [width for width in fits if width > high]
    width = max(inside) if inside else min(above) if above else max(fits)
    return count // width, width


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})
