"""Products of two run-time tensors as layers of the DLA: copies, an element-wise product, a sum over the channels.

A is (n, g, M, K), B is (n, g, K, P): n images, g products side by side, such as the heads of attention. K and g become
channels, so that the sum over K is a grouped 1x1 convolution of ones.

    at once      A as (n, gK, M, 1) and B as (n, gK, 1, P), both copied to (n, gK, M, P), multiplied, summed
    by columns   each column of B as (n, gK, 1, 1) copied over the M positions of A, multiplied, summed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.builder import RefusedError
from orinport.rewrites.catalogue._broadcast import spread
from orinport.rewrites.catalogue._movers import absorb
from orinport.rewrites.catalogue._product import positions
from orinport.rewrites.catalogue._slices import split
from orinport.rewrites.catalogue._windows import Window, build_conv
from orinport.rewrites.limits import factors
from orinport.rewrites.shuffle import Shuffle
from orinport.targets.catalogue import rows_for

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["Operand", "RuntimeProduct", "multiply", "network_batch", "operand"]


@dataclass(frozen=True, slots=True)
class Operand:
    """A run-time tensor and the way from it to four dimensions; `movers` are the shape movers it makes up for."""

    source: ir.Value
    into: Shuffle
    movers: tuple[ir.Node, ...] = ()

    def board(self, perm: tuple[int, ...], shape: tuple[int, ...], builder: Builder) -> ir.Value:
        """The operand with its four dimensions in another order, in another shape."""
        dims = self.into.shape
        last = Shuffle.make(dims, dims, perm, shape)
        total = self.into.then(last)
        if total is not None:
            return builder.shuffle(self.source, total)
        return builder.shuffle(builder.shuffle(self.source, self.into), last)


@dataclass(frozen=True, slots=True)
class RuntimeProduct:
    """`left` goes to (n, g, M, K), `right` to (n, g, K, P), `out` leads from (n, g, M, P) to the result."""

    left: Operand
    right: Operand
    out: Shuffle

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """n, g, M, K, P."""
        n, g, m, k = self.left.into.shape
        return n, g, m, k, self.right.into.shape[3]

    def turned(self) -> RuntimeProduct:
        """The same product as B^T A^T."""
        n, g, m, k, p = self.sizes
        swap = (0, 1, 3, 2)
        left = _then(self.right, Shuffle.transpose((n, g, k, p), swap))
        right = _then(self.left, Shuffle.transpose((n, g, m, k), swap))
        back = Shuffle.transpose((n, g, p, m), swap).then(self.out)
        if left is None or right is None or back is None:
            raise RefusedError("the rearrangement of an operand does not compose")
        return RuntimeProduct(left, right, back)


def operand(value: ir.Value, into: Shuffle, context: RewriteContext) -> Operand:
    """`value` and the way to its four dimensions; from before its shape movers where that is no dearer."""
    return Operand(*absorb(value, into, context))


def _then(one: Operand, shuffle: Shuffle) -> Operand | None:
    total = one.into.then(shuffle)
    return None if total is None else Operand(one.source, total, one.movers)


def network_batch(context: RewriteContext) -> int:
    """The number of images, as the network's first input has it."""
    shape = context.shape(context.graph.inputs[0]) if context.graph.inputs else None
    return shape[0] if shape else 1


def multiply(product: RuntimeProduct, builder: Builder, alpha: float = 1.0) -> ir.Value:
    """`alpha` times the product, in the cheaper of the two ways. Raises RefusedError past the limits."""
    n, g, m, k, p = product.sizes
    context = builder.context
    limit, most = context.limit("G05", "max"), context.figure("runtime_product", "elements")
    if max(g * k, m, p) > limit:
        raise RefusedError(f"a dimension of {max(g * k, m, p)} exceeds the DLA's limit of {limit}")
    elements = n * g * m * k * p
    if elements > most:
        raise RefusedError(f"the copies would hold {elements} elements, more than the {most} that pay")
    launch = context.figure("runtime_product", "launch")
    turned = product.turned() if m < p else product
    reach = context.limit("Z02a", "max")
    passes = 6 + 2 * sum(factors(size, reach) is None for size in (m, p))
    at_once = passes * (elements + launch)
    by_columns = 5 * elements + 4 * min(m, p) * launch
    if by_columns < at_once and min(m, p) <= context.figure("runtime_product", "columns"):
        return _by_columns(turned, builder, alpha)
    return _at_once(product, builder, alpha)


def _at_once(product: RuntimeProduct, builder: Builder, alpha: float) -> ir.Value:
    n, g, m, k, p = product.sizes
    full = (n, g * k, m, p)
    left = spread(product.left.board((0, 1, 3, 2), (n, g * k, m, 1), builder), full, builder)
    right = spread(product.right.board((0, 1, 2, 3), (n, g * k, 1, p), builder), full, builder)
    total = _sum(builder.op("Mul", left, right), g, alpha, builder)
    return builder.shuffle(total, product.out)


def _by_columns(product: RuntimeProduct, builder: Builder, alpha: float) -> ir.Value:
    n, g, m, k, p = product.sizes
    height, width = positions(m, g * k, builder.context)
    left = product.left.board((0, 1, 3, 2), (n, g * k, height, width), builder)
    right = product.right.board((0, 1, 2, 3), (n, g * k, 1, p), builder)
    right = _scaled(right, 1.0, builder) if p > 1 else right
    results = []
    apart = p > 1 and _reshapes_columns(height, width, builder.context)
    for column in split(right, 3, [1] * p, builder):
        own = _scaled(column, 1.0, builder) if apart else column
        copied = spread(own, (n, g * k, height, width), builder)
        results.append(_sum(builder.op("Mul", left, copied), g, 1.0 if p > 1 else alpha, builder))
    joined = _scaled(builder.op("Concat", *results, axis=1), alpha, builder) if p > 1 else results[0]
    back = Shuffle.make((n, p * g, height, width), (n, p, g, m), (0, 2, 3, 1), (n, g, m, p))
    total = back.then(product.out)
    if total is not None:
        return builder.shuffle(joined, total)
    return builder.shuffle(builder.shuffle(joined, back), product.out)


def _reshapes_columns(height: int, width: int, context: RewriteContext) -> bool:
    """Whether the parser makes reshapes of the transposes by which `spread` copies a column, as it did up to 8.6."""
    reach = context.limit("Z02a", "max")
    return (
        context.target is not None
        and "OP37" not in rows_for(context.target, context.precision)
        and any(factors(size, reach) is None for size in (height, width))
    )


def _scaled(value: ir.Value, factor: float, builder: Builder) -> ir.Value:
    """`factor` times the value, by a depthwise convolution: no reshape may stand next to a Slice or Concat (N05)."""
    channels = builder.shape(value)[1]
    weights = builder.constant(np.full((channels, 1, 1, 1), factor, builder.numpy_dtype(value)), "factor")
    plain = Window((1, 1), (1, 1), (0, 0), (0, 0), (1, 1))
    return build_conv(builder, value, weights, None, plain, channels)


def _sum(value: ir.Value, groups: int, alpha: float, builder: Builder) -> ir.Value:
    """`alpha` times the sum over each group of channels."""
    channels = builder.shape(value)[1]
    ones = np.full((groups, channels // groups, 1, 1), alpha, builder.numpy_dtype(value))
    plain = Window((1, 1), (1, 1), (0, 0), (0, 0), (1, 1))
    return build_conv(builder, value, builder.constant(ones, "ones"), None, plain, groups)
