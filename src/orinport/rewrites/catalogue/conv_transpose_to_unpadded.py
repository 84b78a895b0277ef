"""`ConvTranspose(x, pads) -> Slice(ConvTranspose(x))`: a deconvolution without padding, groups and dilation.

## What it does
With stride 1 a deconvolution is a convolution with the kernel turned around, whatever its padding, groups and dilation;
where that reaches out further than its kernel is long, a Pad stands before. With a larger stride it is done without
padding and a Slice cuts the border off; output padding then only cuts less. Groups become one deconvolution each, over
a slice of the channels, and are concatenated.

## Why
The DLA takes deconvolutions with padding 0, one group and dilation 1 only. Most exported networks have padding:
PyTorch's kernel 3, stride 2, padding 1, output padding 1, or "same" of Keras.

## Example
`ConvTranspose((1, 64, 20, 20), kernel 4x4, strides 2, pads 1)`: unpadded it gives 42 x 42, the Slice takes 40 x 40.

## Refused
Output padding that reaches past the last product (those rows hold the bias alone); dilation together with a stride
above 1; more groups than slices pay for; kernels that are known at run time only.

## Safety
exact: the same sums; with stride 1 in another order.

## Source
Rows D06a, D07a, D07b and D09 of the acceptance catalogue; NVIDIA/TensorRT issue 3365.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.builder import RefusedError
from orinport.rewrites.catalogue._slices import crop, split
from orinport.rewrites.catalogue._windows import Window, build_conv, pad_zeros
from orinport.rewrites.catalogue.conv_pads_to_pad import pads_too_much
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = [
    "REWRITE",
    "ConvTransposeToUnpadded",
    "Deconvolution",
    "as_conv",
    "full_size",
    "unfit_deconvolution",
    "unpadded",
]

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Deconvolution:
    """What a ConvTranspose does, output padding and automatic padding worked out."""

    kernel: Ints
    strides: Ints
    dilations: Ints
    begin: Ints
    """Rows and columns of the unpadded result before those that are wanted."""
    group: int


class ConvTransposeToUnpadded(Rewrite):
    """Deconvolutions lose their padding, groups and dilation."""

    name = "conv-transpose-to-unpadded"
    safety = Safety.EXACT
    op_types = ("ConvTranspose",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value, output = node.inputs[0], node.outputs[0]
        weights = context.shape(context.input(node, 1))
        before, after = context.shape(value), context.shape(output)
        if before is None or after is None or weights is None:
            return Refusal("the shape is not known")
        if len(before) != 4 or 0 in before or 0 in after:
            return None
        if len(after) != 4:
            return Refusal(f"its result has {len(after)} dimensions")
        data = read_deconvolution(node, before, after, weights, context)
        full = [full_size(before[2 + i], data, i) for i in range(2)]
        if (data.group, data.dilations, list(after[2:])) == (1, (1, 1), full):
            return None
        if not context.is_constant(node.inputs[1]):
            return Refusal("the kernel is known at run time only")
        if any(first < 0 for first in data.begin):
            return Refusal("output_shape is larger than the product")
        if any(first + size > whole for first, size, whole in zip(data.begin, after[2:], full, strict=True)):
            return Refusal("the output padding reaches past the last product, where the bias stands alone")
        if data.strides == (1, 1):
            return Match((node,), (output,), data)
        if data.dilations != (1, 1):
            return Refusal("dilation together with a stride above 1 has no form on the DLA without products by zero")
        most = context.figure("deconvolution_groups", "max")
        if data.group > most:
            return Refusal(f"{data.group} groups would take as many deconvolutions, and more than {most} do not pay")
        return Match((node,), (output,), data)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, data = match.nodes[0], match.data
        if data.strides == (1, 1):
            return (as_conv(node, data, pad_zeros, builder),)
        made = _deconvolve(node, data, builder)
        return (crop(made, data.begin, builder.shape(match.outputs[0])[2:], builder),)


def read_deconvolution(
    node: ir.Node, before: Ints, after: Ints, weights: Ints, context: RewriteContext
) -> Deconvolution:
    """What the ConvTranspose `node` does.

    `before`, `after` and `weights` are the shapes of its input, output (N, C, H, W) and kernel (C, M / group, kH, kW).
    A dilation along an axis on which the kernel is 1 long counts as 1.
    """
    kernel = weights[2:]
    strides = tuple(int(step) for step in context.attribute(node, "strides", (1, 1)))
    dilations = tuple(
        int(step) if size > 1 else 1
        for step, size in zip(context.attribute(node, "dilations", (1, 1)), kernel, strict=True)
    )
    pads = tuple(int(pad) for pad in context.attribute(node, "pads", (0, 0, 0, 0)))
    data = Deconvolution(kernel, strides, dilations, pads[:2], int(context.attribute(node, "group", 1)))
    mode = context.attribute(node, "auto_pad", "NOTSET")
    sizes = context.attribute(node, "output_shape")
    if mode == "VALID":
        return Deconvolution(kernel, strides, dilations, (0, 0), data.group)
    if mode in ("NOTSET", "") and sizes is None:
        return data
    more = context.attribute(node, "output_padding", (0, 0))
    total = [full_size(before[2 + i], data, i) + more[i] - after[2 + i] for i in range(2)]
    upper = mode == "SAME_UPPER"
    begin = tuple(pad // 2 if upper else pad - pad // 2 for pad in (max(0, each) for each in total))
    return Deconvolution(kernel, strides, dilations, begin, data.group)


def unfit_deconvolution(node: ir.Node, context: RewriteContext) -> tuple[Deconvolution, list[int]] | None:
    """What a ConvTranspose of 4-D tensors does, and the height and width of its unpadded result.

    None where a shape is not known or empty, and for one that is in the form of the DLA already.
    """
    weights = context.shape(context.input(node, 1))
    before, after = context.shape(node.inputs[0]), context.shape(node.outputs[0])
    if before is None or after is None or weights is None or len(before) != 4 or len(after) != 4:
        return None
    if 0 in before + after:
        return None
    data = read_deconvolution(node, before, after, weights, context)
    full = [full_size(before[2 + axis], data, axis) for axis in range(2)]
    if data.group == 1 and data.dilations == (1, 1) and list(after[2:]) == full:
        return None
    return data, full


def full_size(size: int, data: Deconvolution, axis: int) -> int:
    """Length of the result without padding."""
    return (size - 1) * data.strides[axis] + (data.kernel[axis] - 1) * data.dilations[axis] + 1


def as_conv(
    node: ir.Node, data: Deconvolution, surround: Callable[[ir.Value, Window, Builder], ir.Value], builder: Builder
) -> ir.Value:
    """Stride 1: a convolution over the kernel turned around, padded by what the kernel reaches out.

    `surround` does the padding where the convolution cannot, because the kernel is dilated.
    """
    value, stored = node.inputs[0], builder.context.constant(node.inputs[1])
    assert value is not None
    assert stored is not None
    size, result = builder.shape(value)[2:], builder.shape(node.outputs[0])[2:]
    reach = [(k - 1) * d for k, d in zip(data.kernel, data.dilations, strict=True)]
    begin = tuple(far - first for far, first in zip(reach, data.begin, strict=True))
    end = tuple(new - old + far - first for new, old, far, first in zip(result, size, reach, begin, strict=True))
    if min(begin + end) < 0:
        raise RefusedError("more is cut off than the kernel reaches out")
    channels, each, *kernel = stored.shape
    turned = stored[:, :, ::-1, ::-1].reshape(data.group, channels // data.group, each, *kernel)
    weights = builder.constant(np.swapaxes(turned, 1, 2).reshape(-1, channels // data.group, *kernel), "weights")
    window = Window(data.kernel, data.strides, begin, end, data.dilations)
    if pads_too_much(window, builder.context):
        value = surround(value, window, builder)
        window = window.with_pads((0, 0), (0, 0))
    return build_conv(builder, value, weights, builder.context.input(node, 2), window, data.group)


def _deconvolve(node: ir.Node, data: Deconvolution, builder: Builder) -> ir.Value:
    """The unpadded result of one deconvolution for each group."""
    value, weights, bias = node.inputs[0], node.inputs[1], builder.context.input(node, 2)
    assert value is not None
    assert weights is not None
    if data.group == 1:
        return unpadded(value, weights, bias, data, builder)
    stored = builder.context.constant(weights)
    addend = builder.context.constant(bias)
    assert stored is not None
    if bias is not None and addend is None:
        raise RefusedError("the bias is known at run time only")
    channels, each = stored.shape[0] // data.group, stored.shape[1]
    parts = []
    for index, part in enumerate(split(value, 1, [channels] * data.group, builder)):
        own = builder.constant(stored[index * channels : (index + 1) * channels], "weights")
        added = None if addend is None else builder.constant(addend[index * each : (index + 1) * each], "bias")
        parts.append(unpadded(part, own, added, data, builder))
    return builder.op("Concat", *parts, axis=1)


def unpadded(
    value: ir.Value, weights: ir.Value, bias: ir.Value | None, data: Deconvolution, builder: Builder
) -> ir.Value:
    """A deconvolution of (N, C, H, W) in one group with kernel (C, M, kH, kW), nothing of its result cut off.

    Of `data` it takes kernel size and strides; the kernel is not dilated.
    """
    batch, _, *size = builder.shape(value)
    return builder.op(
        "ConvTranspose",
        value,
        weights,
        *([] if bias is None else [bias]),
        kernel_shape=list(data.kernel),
        strides=list(data.strides),
        pads=[0, 0, 0, 0],
        dilations=[1, 1],
        group=1,
        shape=(batch, builder.shape(weights)[1], *(full_size(length, data, axis) for axis, length in enumerate(size))),
        dtype=builder.context.dtype(value),
    )


REWRITE = ConvTransposeToUnpadded()
