"""Kernel, stride, padding and dilation of convolutions and pools, and convolutions built from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orinport.rewrites.builder import RefusedError

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["Window", "build_conv", "conv_window", "pad_zeros", "read_window"]

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """One value for each spatial dimension; `begin` and `end` are the padding before and after."""

    kernel: Ints
    strides: Ints
    begin: Ints
    end: Ints
    dilations: Ints

    @property
    def pads(self) -> list[int]:
        """Padding as ONNX writes it."""
        return [*self.begin, *self.end]

    @property
    def padded(self) -> bool:
        """There is padding on some side."""
        return any(self.pads)

    def extent(self, axis: int) -> int:
        """Positions that the kernel spans."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def result(self, size: Ints) -> Ints:
        """Spatial size of a convolution's or pool's output, rounded down."""
        return tuple(
            (length + self.begin[axis] + self.end[axis] - self.extent(axis)) // self.strides[axis] + 1
            for axis, length in enumerate(size)
        )

    def with_pads(self, begin: Ints, end: Ints) -> Window:
        """The same with other padding."""
        return replace(self, begin=begin, end=end)


def read_window(node: ir.Node, kernel: Ints, size: Ints, context: RewriteContext) -> Window:
    """The window of a Conv or a pool over a tensor of spatial `size`, `auto_pad` worked out.

    Raises RefusedError where ONNX Runtime reads `auto_pad` in another way than its definition.
    """
    ones = (1,) * len(kernel)
    strides = tuple(int(step) for step in context.attribute(node, "strides", ones))
    dilations = tuple(int(step) for step in context.attribute(node, "dilations", ones))
    zeros = (0,) * len(kernel)
    window = Window(kernel, strides, zeros, zeros, dilations)
    mode = context.attribute(node, "auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = tuple(int(pad) for pad in context.attribute(node, "pads", (*zeros, *zeros)))
        return window.with_pads(pads[: len(kernel)], pads[len(kernel) :])
    if mode == "VALID":
        return window
    total = [
        (-(-length // strides[axis]) - 1) * strides[axis] + window.extent(axis) - length
        for axis, length in enumerate(size)
    ]
    if min(total) < 0:
        raise RefusedError("its windows do not touch, and runtimes differ on where auto_pad puts them")
    small = tuple(pad // 2 for pad in total)
    large = tuple(pad - half for pad, half in zip(total, small, strict=True))
    return window.with_pads(small, large) if mode == "SAME_UPPER" else window.with_pads(large, small)


def conv_window(node: ir.Node, context: RewriteContext) -> Window | None:
    """The window of a 2-D convolution whose shapes are known; None for any other. Raises as `read_window` does."""
    shape, weights = context.shape(node.inputs[0]), context.shape(node.inputs[1])
    if shape is None or weights is None or len(shape) != 4 or context.shape(node.outputs[0]) is None:
        return None
    return read_window(node, weights[2:], shape[2:], context)


def build_conv(
    builder: Builder,
    value: ir.Value,
    weights: ir.Value,
    bias: ir.Value | None,
    window: Window,
    group: int = 1,
    suffix: str = "",
) -> ir.Value:
    """A convolution of a 4-D value; `weights` (outputs, channels of a group, *kernel)."""
    batch, _, *size = builder.shape(value)
    return builder.op(
        "Conv",
        value,
        weights,
        *([] if bias is None else [bias]),
        suffix=suffix,
        kernel_shape=list(window.kernel),
        strides=list(window.strides),
        pads=window.pads,
        dilations=list(window.dilations),
        group=group,
        shape=(batch, builder.shape(weights)[0], *window.result(tuple(size))),
        dtype=builder.context.dtype(value),
    )


def pad_zeros(value: ir.Value, window: Window, builder: Builder) -> ir.Value:
    """`value` with the window's padding put around it by a Pad."""
    full = [0, 0, *window.begin, 0, 0, *window.end]
    if builder.context.opset < 11:
        return builder.op("Pad", value, pads=full, mode="constant", value=0.0)
    return builder.op("Pad", value, builder.ints(full, "pads"), mode="constant")
