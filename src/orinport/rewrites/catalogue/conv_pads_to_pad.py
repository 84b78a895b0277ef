"""`Conv(x, pads) -> Conv(Pad(x))`: padding as large as the kernel stands before the convolution.

## What it does
A convolution of which some padding is not smaller than its kernel, or above the limit, has none any more: a Pad before
it puts the zeros there.

## Why
The DLA asks for padding below the kernel, and dilation does not count. From TensorRT 10.4 on it takes a Pad with zeros,
as a slice that fills.

## Example
An atrous convolution of DeepLab, kernel 3x3, dilation 6, padding 6: Pad by 6, then the same convolution unpadded.

## Refused
Shapes that are not known; convolutions whose padding the DLA takes are left alone.

## Safety
exact: the same sums.

## Source
Rows C03a and V03c of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._windows import Window, build_conv, conv_window, pad_zeros
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ConvPadsToPad", "large_padding", "pads_too_much"]


class ConvPadsToPad(Rewrite):
    """Padding that the convolution cannot do goes into a Pad before it."""

    name = "conv-pads-to-pad"
    safety = Safety.EXACT
    op_types = ("Conv",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        window = large_padding(node, context)
        return None if window is None else Match((node,), (node.outputs[0],), window)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, window = match.nodes[0], match.data
        value, weights = node.inputs[0], node.inputs[1]
        assert value is not None
        assert weights is not None
        padded = pad_zeros(value, window, builder)
        bias, group = builder.context.input(node, 2), int(builder.context.attribute(node, "group", 1))
        return (build_conv(builder, padded, weights, bias, window.with_pads((0, 0), (0, 0)), group),)


def large_padding(node: ir.Node, context: RewriteContext) -> Window | None:
    """The window of a 2-D convolution whose padding the DLA does not take; None for any other."""
    window = conv_window(node, context)
    return window if window is not None and pads_too_much(window, context) else None


def pads_too_much(window: Window, context: RewriteContext) -> bool:
    """Some padding is as large as the kernel, or above the limit."""
    limit = context.limit("C03a", "max")
    return any(
        pad > limit or pad >= size
        for pads in (window.begin, window.end)
        for pad, size in zip(pads, window.kernel, strict=True)
    )


REWRITE = ConvPadsToPad()
