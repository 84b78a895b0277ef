"""`ReduceMean(x, channels) -> Conv(x, 1 / C)`: sums and means over any of channels, height and width.

## What it does
ReduceMean and ReduceSum become convolutions with constant weights where channels are summed up, and pools where height
or width are; ReduceL1 sums absolute values, ReduceSumSquare and ReduceL2 squares, ReduceL2 takes the root as a power of
0.5; GlobalLpPool is one of these two over all spatial dimensions. Tensors of other ranks are reshaped so that what is
reduced stands as channels, height or width of a 4-D tensor.

## Why
The DLA takes no reduction, or only a maximum with newer software. A 1x1 convolution of ones is a sum over the channels.

## Example
`ReduceSum((1, 64, 28, 28), axes=1)`: a 1x1 convolution with one output channel. `ReduceL1(x, axes=(1, 2, 3))`: Abs,
average pools, a 1x1 convolution.

## Refused
Reductions over the batch; axes that are not constant; kept and reduced dimensions that alternate more often than a 4-D
tensor has dimensions; integers; norms of another power than 1 and 2; more channels than the DLA's limit. ReduceMean
over height and width is left to reduce-to-pool.

## Safety
exact: the same terms in another order of summation.

## Source
Rows C02a, P02, P09, Q01c and Q01e of the acceptance catalogue; NVIDIA/Deep-Learning-Accelerator-SW,
operators/README.md, ReduceSum.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._reductions import Reduction, mean, on_board, read_reduction
from orinport.rewrites.catalogue._windows import Window, build_conv
from orinport.rewrites.limits import fits_buffer
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ReduceToConv"]


class ReduceToConv(Rewrite):
    """Sums and means become convolutions of constants, and pools."""

    name = "reduce-to-conv"
    safety = Safety.EXACT
    op_types = ("GlobalLpPool", "ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum", "ReduceSumSquare")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        reduction = read_reduction(node, "convolutions", context)
        if not isinstance(reduction, Reduction):
            return reduction
        kind = _kind(node, context)
        if kind is None:
            return Refusal(f"the norm of power {context.attribute(node, 'p', 2)} has no form on the DLA")
        if kind == "ReduceMean" and len(reduction.shape) in (3, 4) and min(reduction.axes) >= 2:
            return None
        return on_board(node, reduction, context)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        kind, data = _kind(match.nodes[0], builder.context), match.data
        value = builder.shuffle(data.source, data.into)
        if kind == "ReduceL1":
            value = builder.op("Abs", value)
        elif kind in ("ReduceL2", "ReduceSumSquare"):
            value = builder.op("Mul", value, value)
        value = _total(value, data.reduced, builder, averages=kind == "ReduceMean")
        if kind == "ReduceL2":
            value = builder.op("Pow", value, builder.like(value, 0.5))
        return (builder.reshape(value, builder.shape(match.outputs[0])),)


def _kind(node: ir.Node, context: RewriteContext) -> str | None:
    """The reduction that the node is; None if it is none of these."""
    if node.op_type != "GlobalLpPool":
        return node.op_type
    return {1: "ReduceL1", 2: "ReduceL2"}.get(context.attribute(node, "p", 2))


def _total(value: ir.Value, reduced: tuple[bool, bool, bool], builder: Builder, *, averages: bool) -> ir.Value:
    """The sum, or the mean, of a 4-D value over what is reduced."""
    _, channels, height, width = builder.shape(value)
    window = (height if reduced[1] else 1, width if reduced[2] else 1)
    context = builder.context
    direct = max(window) <= context.limit("C02a", "max") and fits_buffer(context, channels, width, window)
    count = 1 if averages else prod(window)
    if reduced[0] and direct:
        return _ones(value, window, (prod(window) * channels) if averages else 1, builder)
    value = mean(value, window, builder)
    if reduced[0]:
        return _ones(value, (1, 1), channels / count if averages else 1 / count, builder)
    return value if count == 1 else builder.op("Mul", value, builder.like(value, count))


def _ones(value: ir.Value, window: tuple[int, int], divisor: float, builder: Builder) -> ir.Value:
    """The sum over all channels under a window, divided."""
    channels = builder.shape(value)[1]
    weights = np.full((1, channels, *window), 1.0 / divisor, builder.numpy_dtype(value))
    plain = Window(window, (1, 1), (0, 0), (0, 0), (1, 1))
    return build_conv(builder, value, builder.constant(weights, "ones"), None, plain)


REWRITE = ReduceToConv()
