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

from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.rewrites.catalogue._affine import AFFINE, Affine, affine, as_type, chain_of
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "FuseScaleIntoConv"]


class FuseScaleIntoConv(Rewrite):
    """Scales and shifts behind a convolution become its weights and bias."""

    name = "fuse-scale-into-conv"
    safety = Safety.EXACT
    op_types = AFFINE

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        conv = next((found for value in node.inputs if (found := _conv(value, context)) is not None), None)
        if conv is None:
            return None
        first = affine(node, conv.outputs[0], context)
        if first is None or isinstance(first, Refusal):
            return first
        if context.only_consumer(conv.outputs[0]) is not node:
            return Refusal("something else reads the convolution's result too")
        bias = context.input(conv, 2)
        if not context.is_constant(conv.inputs[1]) or (bias is not None and not context.is_constant(bias)):
            return Refusal("the convolution's weights or bias are known at run time only")
        nodes, change = chain_of(node, conv.outputs[0], context)
        return Match((conv, *nodes), (nodes[-1].outputs[0],), change)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        conv = match.nodes[0]
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
        weights = conv.inputs[1] if kernel is stored else builder.constant(as_type(kernel, dtype), "weights")
        inputs = [conv.inputs[0], weights]
        if added is not None or shift.any():
            inputs.append(builder.constant(as_type(np.broadcast_to(shift, (channels,)), dtype), "bias"))
        return (builder.copy(conv, inputs, builder.shape(match.outputs[0])),)


def _conv(value: ir.Value | None, context: RewriteContext) -> ir.Node | None:
    producer = None if value is None else value.producer()
    if producer is None or producer.op_type not in ("Conv", "ConvTranspose") or producer.graph is not context.graph:
        return None
    return producer if context.standard(producer) and context.is_float(value) else None


def _scaled(stored: NDArray[Any], factor: NDArray[np.float64], group: int, *, transposed: bool) -> NDArray[Any]:
    """The weights with each output channel times its factor; the same array where every factor is 1."""
    if (factor == 1.0).all():
        return stored
    if not transposed:
        return stored.astype(np.float64) * factor.reshape(-1, *[1] * (stored.ndim - 1))
    channels, each, *kernel = stored.shape
    by_group = stored.reshape(group, channels // group, each, *kernel).astype(np.float64)
    return (by_group * factor.reshape(group, 1, each, *[1] * len(kernel))).reshape(stored.shape)


REWRITE = FuseScaleIntoConv()
