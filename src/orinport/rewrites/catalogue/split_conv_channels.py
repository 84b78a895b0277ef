"""`Conv(x) -> Add(Conv(x[:C/2]), Conv(x[C/2:]))`: convolutions too large for the buffer, in parts of their channels.

## What it does
Where one kernel and the rows under it do not fit the convolution buffer, the input channels are cut into as few equal
parts as fit. Each part has a convolution of its own, and the results are added up; the parts of a grouped convolution
are its groups, and are concatenated.

## Why
TensorRT estimates the buffer before it offers a convolution to the DLA, and refuses what does not fit: "reduce size of
input or weights".

## Example
`Conv((1, 1024, 80, 160), kernel 3x3)` in FP16: three convolutions over 341 or 342 channels, two additions.

## Refused
Kernels known at run time only; rows so long that not even a few channels fit; more parts than pay.

## Safety
exact: the same products in another order of summation.

## Source
Rows C09, C10a, C10b and CF05 of the acceptance catalogue; NVIDIA/TensorRT issue 3499.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._slices import split
from orinport.rewrites.catalogue._windows import Window, build_conv, conv_window
from orinport.rewrites.limits import fits_buffer
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "SplitConvChannels"]


class SplitConvChannels(Rewrite):
    """Convolutions that do not fit the buffer are split over their input channels."""

    name = "split-conv-channels"
    safety = Safety.EXACT
    op_types = ("Conv",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        shape, window = context.shape(node.inputs[0]), conv_window(node, context)
        if shape is None or window is None:
            return None
        if _fits(shape[1], shape[3], window, context):
            return None
        if not context.is_constant(node.inputs[1]):
            return Refusal("the kernel is known at run time only")
        bias, group = context.input(node, 2), int(context.attribute(node, "group", 1))
        if group > 1 and bias is not None and not context.is_constant(bias):
            return Refusal("the bias of a grouped convolution is known at run time only")
        parts = _parts(shape[1], shape[3], group, window, context)
        if parts is None:
            most = context.figure("convolution_parts", "max")
            return Refusal(f"rows of {shape[3]} do not fit the convolution buffer in {most} parts or fewer")
        return Match((node,), (node.outputs[0],), (window, group, parts))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        window, group, parts = match.data
        value = node.inputs[0]
        context = builder.context
        stored, bias = context.constant(node.inputs[1]), context.input(node, 2)
        assert value is not None
        assert stored is not None
        channels, results, start = builder.shape(value)[1], [], 0
        each_output, each_channel = stored.shape[0] // group, stored.shape[1]
        added = context.constant(bias)
        sizes = _sizes(group if group > 1 else channels, parts)
        widths = [size * each_channel for size in sizes] if group > 1 else sizes
        for index, (size, part) in enumerate(zip(sizes, split(value, 1, widths, builder), strict=True)):
            end = start + size
            if group == 1:
                weights = builder.constant(stored[:, start:end], "weights")
                own = bias if index == 0 else None
            else:
                rows = slice(start * each_output, end * each_output)
                weights = builder.constant(stored[rows], "weights")
                own = None if added is None else builder.constant(added[rows], "bias")
            results.append(build_conv(builder, part, weights, own, window, 1 if group == 1 else size))
            start = end
        if group > 1:
            return (builder.op("Concat", *results, axis=1),)
        total = results[0]
        for result in results[1:]:
            total = builder.op("Add", total, result)
        return (total,)


def _fits(channels: int, width: int, window: Window, context: RewriteContext) -> bool:
    return fits_buffer(context, channels, width, (window.kernel[0], window.kernel[1]), window.dilations[0])


def _parts(channels: int, width: int, group: int, window: Window, context: RewriteContext) -> int | None:
    """The smallest number of parts that fit; None if that is past the limit."""
    whole = group if group > 1 else channels
    for parts in range(2, min(whole, context.figure("convolution_parts", "max")) + 1):
        if _fits(ceil(whole / parts) * (channels // whole), width, window, context):
            return parts
    return None


def _sizes(whole: int, parts: int) -> list[int]:
    """`whole` cut into nearly equal parts."""
    return [whole // parts + (index < whole % parts) for index in range(parts)]


REWRITE = SplitConvChannels()
