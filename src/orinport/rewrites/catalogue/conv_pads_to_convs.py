"""`Conv(x, pads) -> Conv(Conv(Conv(x, 13x1), 1x13))`: zeros put around a tensor by depthwise convolutions.

## What it does
A convolution of which some padding is not smaller than its kernel, or above the limit, is done without padding. Two
depthwise convolutions before it, one along each axis, have a single 1 in a kernel that is larger than the padding: they
move the tensor and surround it with zeros. A Pad with zeros is written in the same way.

## Why
The DLA asks for padding below the kernel, and dilation does not count; before TensorRT 10.4 it has no Pad.

## Example
An atrous convolution of DeepLab, kernel 3x3, dilation 6, padding 6: depthwise 13x1 and 1x13, then the same convolution
unpadded.

## Refused
Padding of both sides together above 31, because the kernel is at most 32; Pad of other modes, values or dimensions.

## Safety
tolerance: the same for finite numbers. Products by zero turn an infinity, or NaN, into NaN in the same row and column
as well; tensors in INT8 hold neither.

## Source
Rows C02a, C03a and C07 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._one_hot import pad
from orinport.rewrites.catalogue._windows import build_conv
from orinport.rewrites.catalogue.conv_pads_to_pad import large_padding
from orinport.rewrites.catalogue.fuse_pad import moves_into_readers, pad_value, padding_of
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ConvPadsToConvs"]


class ConvPadsToConvs(Rewrite):
    """Padding becomes depthwise convolutions."""

    name = "conv-pads-to-convs"
    safety = Safety.TOLERANCE
    finite = True
    op_types = ("Conv", "Pad")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if node.op_type == "Conv":
            window = large_padding(node, context)
            return None if window is None else Match((node,), (node.outputs[0],), window)
        value = node.inputs[0]
        shape = context.shape(value)
        if value is None or shape is None or len(shape) != 4 or not context.is_float(value):
            return None
        added = padding_of(node, 4, context)
        if isinstance(added, Refusal):
            return added
        number = pad_value(node, context)
        if number != 0.0:
            return Refusal("it pads with something else than zeros, which pad-value-to-concat puts there")
        if not any(added) or moves_into_readers(node, context):
            return None
        return Match((node,), (node.outputs[0],), added)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        value = node.inputs[0]
        assert value is not None
        if node.op_type == "Pad":
            top, left, bottom, right = match.data
            return (pad(value, (top, left), (bottom, right), builder),)
        window, weights = match.data, node.inputs[1]
        assert weights is not None
        padded = pad(value, window.begin, window.end, builder)
        bias, group = builder.context.input(node, 2), int(builder.context.attribute(node, "group", 1))
        return (build_conv(builder, padded, weights, bias, window.with_pads((0, 0), (0, 0)), group),)


REWRITE = ConvPadsToConvs()
