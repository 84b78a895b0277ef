"""`Conv(Mul(x)) -> Conv(x)`: what scales or shifts each channel goes into the convolution behind it.

## What it does
Mul, Div, Add or Sub with a constant of one value a channel, which only a Conv reads: the factor is multiplied into a
copy of the weights, channel by channel of the input; a shift becomes bias, where the convolution has no padding.

## Why
It would be a layer of its own with a pass over the whole tensor: pre-processing that was exported with the network
works on the largest one, the image.

## Example
`Conv(Div(x, 255))`: the weights are divided instead.

## Refused
Shifts before a convolution that pads, because the padding would have to be shifted too, and shifts in INT8, where the
tensor is quantised better once it is centred; factors that differ more from channel to channel than INT8 weights can
bear; weights or bias known at run time only; a constant of 0 to divide by;
products that are too large for their type.

## Safety
exact: the products are rounded in another order.

## Source
ONNX operator specification, Conv.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.rewrites.catalogue._affine import Affine, affine, as_type
from orinport.rewrites.catalogue._windows import read_window
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "FuseScaleBeforeConv"]

_ARITHMETIC = ("Add", "Div", "Mul", "Sub")


class FuseScaleBeforeConv(Rewrite):
    """Scales and shifts before a convolution become its weights and bias."""

    name = "fuse-scale-before-conv"
    safety = Safety.EXACT
    op_types = ("Conv",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        scaled = node.inputs[0]
        scale = None if scaled is None else scaled.producer()
        if scaled is None or scale is None or scale.op_type not in _ARITHMETIC or not context.standard(scale):
            return None
        if (
            scale.graph is not context.graph
            or not context.is_float(scaled)
            or context.only_consumer(scaled) is not node
        ):
            return None
        value = next((each for each in scale.inputs if each is not None and not context.is_constant(each)), None)
        shape, weights = context.shape(value), context.shape(node.inputs[1])
        if value is None or shape is None or weights is None or context.shape(node.outputs[0]) is None:
            return None
        change = affine(scale, value, context)
        if change is None or isinstance(change, Refusal):
            return change
        bias = context.input(node, 2)
        if not context.is_constant(node.inputs[1]) or (bias is not None and not context.is_constant(bias)):
            return Refusal("the convolution's weights or bias are known at run time only")
        if change.shift.any() and read_window(node, weights[2:], shape[2:], context).padded:
            return Refusal("the convolution pads with zeros, which the shift would have to reach too")
        if change.shift.any() and context.precision is Precision.INT8:
            return Refusal("in INT8 a tensor that is not centred first loses resolution")
        sizes = np.abs(change.factor)
        most = context.figure("channel_factors", "ratio")
        if not sizes.all() or sizes.max() > most * sizes.min():
            return Refusal(
                f"the factors of the channels differ more than {most:g} times, which INT8 weights cannot bear"
            )
        return Match((node, scale), (node.outputs[0],), change)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, context = match.nodes[0], builder.context
        change: Affine = match.data
        stored, added = context.constant(node.inputs[1]), context.constant(context.input(node, 2))
        assert stored is not None
        group, dtype = int(context.attribute(node, "group", 1)), builder.numpy_dtype(match.outputs[0])
        factor = _of_inputs(change.factor, stored, group)
        inputs: list[Any] = [change.value, node.inputs[1]]
        if (factor != 1.0).any():
            inputs[1] = builder.constant(as_type(stored.astype(np.float64) * factor, dtype), "weights")
        if added is not None or change.shift.any():
            shifted = stored.astype(np.float64) * _of_inputs(change.shift, stored, group)
            bias = shifted.reshape(stored.shape[0], -1).sum(axis=1)
            bias = bias if added is None else bias + added.astype(np.float64)
            inputs.append(builder.constant(as_type(bias, dtype), "bias"))
        return (builder.copy(node, inputs, builder.shape(match.outputs[0])),)


def _of_inputs(values: NDArray[np.float64], weights: NDArray[Any], group: int) -> NDArray[np.float64]:
    """One value an input channel in the layout of the weights (outputs, channels of a group, *kernel)."""
    outputs, channels, *kernel = weights.shape
    rows = np.broadcast_to(values, (group * channels,)).reshape(group, 1, channels)
    spread = np.broadcast_to(rows, (group, outputs // group, channels))
    return spread.reshape(outputs, channels, *[1] * len(kernel))


REWRITE = FuseScaleBeforeConv()
