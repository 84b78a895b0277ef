"""`CumSum(x, axis) -> Conv(x, ones)`: running sums as convolutions of each channel.

## What it does
The axis becomes the height or width of a 4-D tensor. A depthwise convolution with a kernel of ones as long as the axis,
padded before it (`reverse`: behind it), sums up what lies before each element.

## Why
The DLA has no CumSum. The kernel holds no zeros, so an infinity reaches the elements behind it and no others.

## Example
`CumSum((1, 16, 20, 4), axis=2)`: a depthwise 20x1 convolution with 19 rows of padding before.

## Refused
`exclusive`, whose padding would be as large as the kernel; axes longer than 32, the DLA's largest kernel; an axis known
at run time only; integers; dimensions above the DLA's limit.

## Safety
exact: the same terms in another order of summation.

## Source
Rows C02a, C03a, C07 and X05 of the acceptance catalogue; NVIDIA/Deep-Learning-Accelerator-SW, operators/README.md,
CumSum.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._movers import absorb
from orinport.rewrites.catalogue._windows import Window, build_conv
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "CumSumToConv"]


class CumSumToConv(Rewrite):
    """CumSum becomes a depthwise convolution."""

    name = "cumsum-to-conv"
    safety = Safety.EXACT
    op_types = ("CumSum",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value = node.inputs[0]
        shape = context.shape(value)
        given = context.constant(node.inputs[1])
        if value is None or shape is None or not shape:
            return Refusal("the shape is not known")
        if given is None:
            return Refusal("the axis is known at run time only")
        if not context.is_float(value) or 0 in shape:
            return Refusal(f"convolutions do not take {context.dtype(value)}")
        if context.attribute(node, "exclusive", 0):
            return Refusal("an exclusive sum needs padding as large as the kernel")
        axis = int(given.reshape(-1)[0]) % len(shape)
        limit, most = context.limit("C02a", "max"), context.limit("G05", "max")
        if shape[axis] > limit:
            return Refusal(f"the axis has {shape[axis]} elements, more than the DLA's largest kernel of {limit}")
        batch = shape[0] if axis > 0 else 1
        board = (batch, prod(shape[1:axis]), shape[axis], prod(shape[axis + 1 :]))
        if max(board[1:]) > most:
            return Refusal(f"a dimension of {max(board[1:])} exceeds the DLA's limit of {most}")
        source, into, movers = absorb(value, Shuffle.reshape(shape, board), context)
        return Match((node, *movers), (node.outputs[0],), (source, into, bool(context.attribute(node, "reverse", 0))))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        source, into, backwards = match.data
        value = builder.shuffle(source, into)
        _, channels, length, _ = into.shape
        weights = builder.constant(np.ones((channels, 1, length, 1), builder.numpy_dtype(value)), "ones")
        begin, end = ((0, 0), (length - 1, 0)) if backwards else ((length - 1, 0), (0, 0))
        window = Window((length, 1), (1, 1), begin, end, (1, 1))
        made = build_conv(builder, value, weights, None, window, channels)
        return (builder.reshape(made, builder.shape(match.outputs[0])),)


REWRITE = CumSumToConv()
