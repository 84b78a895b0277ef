"""`Slice(x, step 2) -> Conv(Slice(x), stride 2)`: every second row and column by a strided convolution.

## What it does
A Slice with steps above 1 along height and width becomes a Slice without steps and a depthwise 1x1 convolution of that
stride whose weights are 1. A step along the channels, or a negative one (a flip), becomes a Slice for each element and
a Concat.

## Why
The DLA slices with a step of 1 only.

## Example
The Focus of YOLOv5, `x[:, :, ::2, 1::2]`: a Slice from column 1 on and a convolution with stride 2.

## Refused
Bounds known at run time; steps along the batch, other ranks than 4, integers; more elements than are worth a slice
each.

## Safety
exact: bit-equal, the only weight is 1.

## Source
Rows V02, V07 and C04 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._selection import take
from orinport.rewrites.catalogue._slices import numbers_of
from orinport.rewrites.catalogue._windows import Window, build_conv
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "SliceStepToConv"]


class SliceStepToConv(Rewrite):
    """Slices with steps become strided convolutions."""

    name = "slice-step-to-conv"
    safety = Safety.EXACT
    op_types = ("Slice",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if context.opset < 10 or len(node.inputs) < 5 or context.is_constant(node.inputs[0]):
            return None
        value, shape = node.inputs[0], context.shape(node.inputs[0])
        steps = numbers_of(node, "steps", 4, context)
        if steps is not None and all(step == 1 for step in steps):
            return None
        starts, ends = (numbers_of(node, name, place, context) for name, place in (("starts", 1), ("ends", 2)))
        axes = numbers_of(node, "axes", 3, context) if node.inputs[3] is not None else range(len(starts or ()))
        if steps is None or starts is None or ends is None or axes is None:
            return Refusal("where it slices is known at run time only")
        if shape is None or len(shape) != 4 or 0 in shape or 0 in (context.shape(node.outputs[0]) or (0,)):
            return Refusal("the DLA takes rank 4, and no empty or unknown shape")
        if not context.is_float(value):
            return Refusal(f"the DLA does not compute in {context.dtype(value)}")
        chosen = {axis: range(shape[axis]) for axis in range(4)}
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            place = int(axis) % 4
            chosen[place] = range(shape[place])[slice(*_bounds(start, end, step, shape[place]))]
        if chosen[0] != range(shape[0]):
            return Refusal("it slices the batch")
        return Match((node,), (node.outputs[0],), chosen)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        value = match.nodes[0].inputs[0]
        assert value is not None
        chosen: dict[int, range] = match.data
        most = int(builder.context.limit("C04", "max"))
        strides = [1, 1]
        for axis, indices in chosen.items():
            if axis >= 2 and 1 < indices.step <= most and len(indices) > 1:
                strides[axis - 2] = indices.step
                indices = range(indices[0], indices[-1] + 1)
            if axis:
                value = take(builder, value, axis, indices)
        if strides == [1, 1]:
            return (value,)
        channels = builder.shape(value)[1]
        ones = builder.constant(np.ones((channels, 1, 1, 1), builder.numpy_dtype(value)), "ones")
        window = Window((1, 1), (strides[0], strides[1]), (0, 0), (0, 0), (1, 1))
        return (build_conv(builder, value, ones, None, window, channels),)


def _bounds(start: int, end: int, step: int, size: int) -> tuple[int, int | None, int]:
    """ONNX's start and end for Python: past the front, a slice backwards has no end."""
    return int(start), None if step < 0 and int(end) < -size else int(end), int(step)


REWRITE = SliceStepToConv()
