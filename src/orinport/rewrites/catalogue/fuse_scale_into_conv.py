"""`BatchNormalization(Conv(x)) -> Conv(x)`: what scales and shifts each channel goes into the convolution before it.

## What it does
BatchNormalization, and Mul, Div, Add or Sub with a constant of one value a channel, behind a Conv or ConvTranspose: the
factor is multiplied into a copy of the weights, the rest becomes the bias. A constant may be either operand. Weights
that several convolutions share stay as they are for the others.

## Why
Each would be a layer of its own with a pass over the whole tensor, and in INT8 one more tensor to be scaled.

## Example
`Add(Mul(Conv(x, W), s), t)` with constants of shape `(1, 64, 1, 1)`: one Conv with the weights `s W` and the bias `t`.

## Refused
Constants that are not one value a channel; a convolution whose result something else reads; weights, bias or
statistics known at run time only; BatchNormalization in training mode; a constant of 0 to divide by; a product that is
too large for its type.

## Safety
exact: the products are rounded in another order.

## Source
ONNX operator specification, BatchNormalization and Conv; TensorRT fuses the same where it can, row X06 of the
acceptance catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.rewrites.builder import RefusedError
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "FuseScaleIntoConv", "affine"]


@dataclass(frozen=True, slots=True)
class Affine:
    """`factor * x + shift` for each channel of `value`; both have one value or one a channel, in FP64."""

    value: ir.Value
    factor: NDArray[np.float64]
    shift: NDArray[np.float64]


class FuseScaleIntoConv(Rewrite):
    """Scales and shifts behind a convolution become its weights and bias."""

    name = "fuse-scale-into-conv"
    safety = Safety.EXACT
    op_types = ("Add", "BatchNormalization", "Div", "Mul", "Sub")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        conv = next((found for value in node.inputs if (found := _conv(value, context)) is not None), None)
        if conv is None:
            return None
        change = affine(node, conv.outputs[0], context)
        if change is None or isinstance(change, Refusal):
            return change
        if context.only_consumer(conv.outputs[0]) is not node:
            return Refusal("something else reads the convolution's result too")
        bias = context.input(conv, 2)
        if not context.is_constant(conv.inputs[1]) or (bias is not None and not context.is_constant(bias)):
            return Refusal("the convolution's weights or bias are known at run time only")
        return Match((conv, node), (node.outputs[0],), change)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        conv, _ = match.nodes
        context = builder.context
        change: Affine = match.data
        stored, added = context.constant(conv.inputs[1]), context.constant(context.input(conv, 2))
        assert stored is not None
        transposed = conv.op_type == "ConvTranspose"
        group = int(context.attribute(conv, "group", 1))
        channels = stored.shape[1] * group if transposed else stored.shape[0]
        factor = np.broadcast_to(change.factor, (channels,))
        shift = change.shift if added is None else change.shift + added.astype(np.float64) * factor
        dtype = builder.numpy_dtype(match.outputs[0])
        kernel = _scaled(stored, factor, group, transposed=transposed)
        weights = conv.inputs[1] if kernel is stored else builder.constant(_cast(kernel, dtype), "weights")
        inputs = [conv.inputs[0], weights]
        if added is not None or shift.any():
            inputs.append(builder.constant(_cast(np.broadcast_to(shift, (channels,)), dtype), "bias"))
        return (builder.copy(conv, inputs, builder.shape(match.outputs[0])),)


def _conv(value: ir.Value | None, context: RewriteContext) -> ir.Node | None:
    producer = None if value is None else value.producer()
    if producer is None or producer.op_type not in ("Conv", "ConvTranspose") or producer.graph is not context.graph:
        return None
    return producer if context.standard(producer) and context.is_float(value) else None


def affine(node: ir.Node, value: ir.Value, context: RewriteContext) -> Affine | Refusal | None:
    """What `node` does to each channel of `value`; None if it computes with two run-time operands."""
    shape = context.shape(value)
    if shape is None or len(shape) < 3:
        return None
    if node.op_type == "BatchNormalization":
        return _normalization(node, value, context)
    other = node.inputs[1] if node.inputs[0] is value else node.inputs[0]
    constant = context.constant(other)
    if constant is None:
        return None
    values = _per_channel(constant, shape)
    if values is None or context.shape(node.outputs[0]) != shape:
        return Refusal(f"the constant of shape {list(constant.shape)} is not one value a channel")
    one, zero = np.ones(1), np.zeros(1)
    if node.op_type == "Mul":
        return Affine(value, values, zero)
    if node.op_type == "Add":
        return Affine(value, one, values)
    first = node.inputs[0] is value
    if node.op_type == "Sub":
        return Affine(value, one, -values) if first else Affine(value, -one, values)
    if not first:
        return Refusal("the convolution's result divides")
    return Affine(value, 1.0 / values, zero) if values.all() else Refusal("it divides by 0")


def _per_channel(constant: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float64] | None:
    """The constant as one value, or one for each channel; None if it is neither."""
    if constant.ndim > len(shape):
        return None
    dims = (1,) * (len(shape) - constant.ndim) + constant.shape
    if prod(dims) != dims[1] or dims[1] not in (1, shape[1]):
        return None
    return constant.reshape(-1).astype(np.float64)


def _normalization(node: ir.Node, value: ir.Value, context: RewriteContext) -> Affine | Refusal | None:
    if node.inputs[0] is not value:
        return None
    if context.attribute(node, "training_mode", 0) or any(
        output.uses() or context.is_output(output) for output in node.outputs[1:]
    ):
        return Refusal("BatchNormalization is in training mode")
    if not context.attribute(node, "spatial", 1):
        return Refusal("BatchNormalization has statistics for each position")
    parts = [context.constant(each) for each in node.inputs[1:5]]
    if any(part is None for part in parts):
        return Refusal("the statistics are known at run time only")
    scale, bias, mean, variance = (np.asarray(part, np.float64) for part in parts)
    root = np.sqrt(variance + float(context.attribute(node, "epsilon", 1e-5)))
    if not root.all() or not np.isfinite(root).all():
        return Refusal("the variance is 0 or no number")
    factor = scale / root
    return Affine(value, factor, bias - mean * factor)


def _scaled(stored: NDArray[Any], factor: NDArray[np.float64], group: int, *, transposed: bool) -> NDArray[Any]:
    """The weights with each output channel times its factor; the same array where every factor is 1."""
    if (factor == 1.0).all():
        return stored
    if not transposed:
        return stored.astype(np.float64) * factor.reshape(-1, *[1] * (stored.ndim - 1))
    channels, each, *kernel = stored.shape
    by_group = stored.reshape(group, channels // group, each, *kernel).astype(np.float64)
    return (by_group * factor.reshape(group, 1, each, *[1] * len(kernel))).reshape(stored.shape)


def _cast(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        cast: NDArray[Any] = array.astype(dtype)
    if not np.isfinite(cast.astype(np.float64)).all():
        raise RefusedError("a weight or bias would be too large for its type")
    return cast


REWRITE = FuseScaleIntoConv()
