"""`Gemm(X, W, C) -> Conv(X as 4-D, W as kernel, C as bias)`: a fully connected layer as a convolution.

## What it does
One of A and B is constant; transA, transB, alpha and beta are worked into the constant kernel and bias. C may be
missing, a scalar, one value a row or a column, or full; what is no bias of the convolution is added behind it.
Reshapes around it bring the run-time operand into `(N, K, H, W)` and the result back; a Flatten before it
disappears into a kernel that covers the feature map.

## Why
The parser makes a matrix multiplication of Gemm, which the DLA does not have. The convolution is the same sum.

## Example
`Gemm(Flatten((1, 512, 7, 7)), W (4096, 25088), transB=1)`: a 7x7 convolution with 4096 outputs and no Flatten.

## Refused
A and B both known at run time only; integers; more than 8192 channels where no feature map is flattened; a run-time
C that is neither scalar, nor one value an output channel, nor full; a scaled constant that overflows its type.

## Safety
exact: the same products in another order of summation; alpha and beta are multiplied in beforehand.

## Source
TensorRT operator reference, MatrixMultiply; NVIDIA/Deep-Learning-Accelerator-SW, operators/README.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.rewrites.builder import RefusedError
from orinport.rewrites.catalogue._constants import shrink
from orinport.rewrites.catalogue._product import Product, convolve, is_batch, plan_nodes
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext
    from orinport.rewrites.shuffle import Shuffle

__all__ = ["REWRITE", "GemmToConv"]


@dataclass(frozen=True, slots=True)
class _Data:
    product: Product
    weights: ir.Value
    transposed: bool
    """The constant is stored as (K, outputs)."""
    alpha: float
    beta: float
    addend: ir.Value | None
    bias_axis: int
    """The axis of the result that holds the output channels."""


class GemmToConv(Rewrite):
    """Gemm with a constant A or B becomes a convolution."""

    name = "gemm-to-conv"
    safety = Safety.EXACT
    op_types = ("Gemm",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        a, b, c = (context.input(node, index) for index in range(3))
        beta = float(context.attribute(node, "beta", 1.0))
        c = None if beta == 0.0 else c
        if a is None or b is None:
            return None
        constants = (context.is_constant(a), context.is_constant(b))
        if all(constants) and (c is None or context.is_constant(c)):
            return None
        if all(constants):
            return Refusal("A and B are both constant: the product is a constant to be folded")
        if not any(constants):
            return Refusal("A and B are both known at run time only, and a kernel is fixed at build time")
        value, weights = (b, a) if constants[0] else (a, b)
        if not context.is_float(value):
            return Refusal(f"a convolution does not take {context.dtype(value)}")
        shape, result = context.shape(value), context.shape(node.outputs[0])
        if shape is None or result is None or context.shape(weights) is None:
            return Refusal("shapes are not known")
        if 0 in shape or 0 in result:
            return Refusal("an operand holds no elements")
        trans_a, trans_b = bool(context.attribute(node, "transA", 0)), bool(context.attribute(node, "transB", 0))
        product = _plan(
            value, shape, result, context, left=constants[0], transposed=trans_b if constants[0] else trans_a
        )
        data = _Data(
            product,
            weights,
            trans_a if constants[0] else not trans_b,
            float(context.attribute(node, "alpha", 1.0)),
            beta,
            c,
            0 if constants[0] else 1,
        )
        if c is not None and not context.is_constant(c) and _addend_form(c, data, context) is None:
            return Refusal("C is known at run time only and is neither scalar, nor one value a channel, nor full")
        return Match((node, *plan_nodes(product, context)), (node.outputs[0],), data)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        data: _Data = match.data
        context = builder.context
        stored = context.constant(data.weights)
        assert stored is not None
        kernel = _scaled(stored.T if data.transposed else stored, data.alpha)
        values = context.constant(data.addend)
        bias = None if values is None else _bias(_scaled(values, data.beta), kernel.shape[0], data)
        result, back = convolve(data.product, kernel, bias, builder)
        if data.addend is not None and bias is None:
            addend = _addend(data, back, values, builder)
            result = builder.op("Add", result, addend)
        return (builder.shuffle(result, back),)


def _plan(
    value: ir.Value,
    shape: tuple[int, ...],
    result: tuple[int, ...],
    context: RewriteContext,
    *,
    left: bool,
    transposed: bool,
) -> Product:
    """`left`: A is constant. `transposed`: the run-time operand is."""
    channels_last = left == transposed
    inner, rows = (shape[1], shape[0]) if channels_last else (shape[0], shape[1])
    outputs = result[0] if left else result[1]
    batch = rows if channels_last and not left and rows > 1 and is_batch(value, rows, context) else 1
    return Product(value, batch, 1, rows // batch, inner, outputs, 1, channels_last, not left, result)


def _scaled(array: NDArray[Any], factor: float) -> NDArray[Any]:
    """`array` times `factor`, in its own type; the array itself for 1."""
    if factor == 1.0:
        return array
    wide = np.float64 if array.dtype == np.float64 else np.float32
    with np.errstate(over="ignore"):
        scaled: NDArray[Any] = (array.astype(wide) * wide(factor)).astype(array.dtype)
    if not np.array_equal(np.isfinite(scaled), np.isfinite(array)):
        raise RefusedError(f"a constant times {factor} is too large for its type")
    return scaled


def _bias(values: NDArray[Any], outputs: int, data: _Data) -> NDArray[Any] | None:
    """C as one value an output channel; None if it is not that."""
    dims = (1, 1, *values.shape)[-2:]
    if dims[1 - data.bias_axis] != 1:
        return None
    return np.broadcast_to(values.reshape(-1), (outputs,))


def _addend_form(value: ir.Value, data: _Data, context: RewriteContext) -> str | None:
    shape = context.shape(value)
    if shape is None:
        return None
    dims = (1, 1, *shape)[-2:]
    if dims == data.product.result:
        return "full"
    return "channel" if dims[1 - data.bias_axis] == 1 else None


def _addend(data: _Data, back: Shuffle, values: NDArray[Any] | None, builder: Builder) -> ir.Value:
    """C in the layout of the convolution's result, times beta."""
    if values is not None:
        full = np.broadcast_to(_scaled(values, data.beta), data.product.result)
        return builder.constant(shrink(back.inverse().apply(full)), "addend")
    assert data.addend is not None
    value = data.addend
    if _addend_form(value, data, builder.context) == "full":
        shape = builder.shape(value)
        value = builder.reshape(value, data.product.result) if shape != data.product.result else value
        value = builder.shuffle(value, back.inverse())
    else:
        value = builder.reshape(value, (1, prod(builder.shape(value)), 1, 1))
    return value if data.beta == 1.0 else builder.op("Mul", value, builder.like(value, data.beta))


REWRITE = GemmToConv()
