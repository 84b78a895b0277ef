"""`ConvTranspose(x, pads) -> Conv(ConvTranspose(x))`: a deconvolution without padding, groups and Slice.

## What it does
The deconvolution is done without padding, and a depthwise convolution with a single 1 in its kernel takes the wanted
rows and columns. Groups become zeros in a kernel over all channels. With stride 1 and dilation it is a convolution,
padded before by depthwise convolutions.

## Why
The DLA takes deconvolutions without padding only, and in INT8 it takes no Slice that could cut the border off, which is
what conv-transpose-to-unpadded does.

## Example
`ConvTranspose((1, 64, 20, 20), kernel 3x3, strides 2, pads 1, output_padding 1)`: unpadded it gives 41 x 41, a
depthwise 2x2 convolution takes 40 x 40.

## Refused
What conv-transpose-to-unpadded refuses, but for many groups; stride 1 without dilation is left to it.

## Safety
tolerance: the same for finite numbers. Products by zero turn an infinity, or NaN, into NaN in neighbouring rows,
columns and groups as well; tensors in INT8 hold neither.

## Source
Rows D06a, D07a, D09 and V01b of the acceptance catalogue; NVIDIA/TensorRT issue 3365.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._one_hot import crop, pad
from orinport.rewrites.catalogue.conv_transpose_to_unpadded import (
    Deconvolution,
    as_conv,
    unfit_deconvolution,
    unpadded,
)
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.catalogue._windows import Window
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ConvTransposeToUnsliced"]


class ConvTransposeToUnsliced(Rewrite):
    """Deconvolutions lose their padding and groups, and no Slice comes of it."""

    name = "conv-transpose-to-unsliced"
    safety = Safety.TOLERANCE
    finite = True
    op_types = ("ConvTranspose",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        found, after = unfit_deconvolution(node, context), context.shape(node.outputs[0])
        if found is None or after is None:
            return None
        data, full = found
        if data.strides == (1, 1) and data.dilations == (1, 1):
            return None
        if not context.is_constant(node.inputs[1]):
            return Refusal("the kernel is known at run time only")
        if data.dilations != (1, 1) and data.strides != (1, 1):
            return Refusal("dilation together with a stride above 1")
        if any(
            first < 0 or first + size > whole for first, size, whole in zip(data.begin, after[2:], full, strict=True)
        ):
            return Refusal("the output padding reaches past the last product, where the bias stands alone")
        return Match((node,), (node.outputs[0],), data)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        data: Deconvolution = match.data
        value, weights = node.inputs[0], node.inputs[1]
        assert value is not None
        assert weights is not None
        if data.strides == (1, 1):
            return (as_conv(node, data, _surround, builder),)
        if data.group > 1:
            weights = _dense(weights, data.group, builder)
        made = unpadded(value, weights, builder.context.input(node, 2), data, builder)
        size = builder.shape(match.outputs[0])[2:]
        return (crop(made, (data.begin[0], data.begin[1]), (size[0], size[1]), builder),)


def _surround(value: ir.Value, window: Window, builder: Builder) -> ir.Value:
    return pad(value, (window.begin[0], window.begin[1]), (window.end[0], window.end[1]), builder)


def _dense(weights: ir.Value, group: int, builder: Builder) -> ir.Value:
    """The kernels of all groups as one, zero between groups."""
    stored = builder.context.constant(weights)
    assert stored is not None
    channels, each, *kernel = stored.shape
    dense = np.zeros((group, channels // group, group, each, *kernel), stored.dtype)
    for index in range(group):
        dense[index, :, index] = stored.reshape(group, channels // group, each, *kernel)[index]
    return builder.constant(dense.reshape(channels, group * each, *kernel), "weights")


REWRITE = ConvTransposeToUnsliced()
