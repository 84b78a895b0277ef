"""Kernel, stride, padding and dilation of convolutions and pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orinport.model.lower.arguments import has, integer, integers, text
from orinport.model.lower.network import Refused

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Window", "window_of"]


@dataclass(slots=True)
class Window:
    """The spatial parameters of a layer; all tuples have one value per spatial dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pre: tuple[int, ...]
    post: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    mode: str
    """TensorRT's padding mode: EXPLICIT_ROUND_DOWN, EXPLICIT_ROUND_UP, SAME_UPPER or SAME_LOWER."""
    exclusive: bool

    def extent(self, index: int) -> int:
        """How many input elements the kernel spans in dimension `index`."""
        return (self.kernel[index] - 1) * self.dilation[index] + 1

    def settle(self, spatial: tuple[int, ...] | None, *, transposed: bool = False) -> None:
        """For the SAME modes, work out the padding that TensorRT will use on an input of this size."""
        if self.mode not in {"SAME_UPPER", "SAME_LOWER"} or spatial is None:
            return
        pre, post = [], []
        for i, size in enumerate(spatial):
            if transposed:
                total = max(self.extent(i) - self.stride[i], 0)
            else:
                count = -(-size // self.stride[i])
                total = max((count - 1) * self.stride[i] + self.extent(i) - size, 0)
            less, more = total // 2, total - total // 2
            pre.append(less if self.mode == "SAME_UPPER" else more)
            post.append(more if self.mode == "SAME_UPPER" else less)
        self.pre, self.post = tuple(pre), tuple(post)

    def result(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        """The size of the output."""
        sizes = []
        for i, size in enumerate(spatial):
            free = size + self.pre[i] + self.post[i] - self.extent(i)
            up = self.mode == "EXPLICIT_ROUND_UP"
            sizes.append((-(-free // self.stride[i]) if up else free // self.stride[i]) + 1)
        return tuple(sizes)

    def transposed_result(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        """The size of a deconvolution's output."""
        return tuple(
            (size - 1) * self.stride[i] + self.extent(i) - self.pre[i] - self.post[i] for i, size in enumerate(spatial)
        )

    def with_trailing_one(self) -> Window:
        """The window of a 1-D operator on an input with a dimension of size 1 put behind."""
        return Window(
            (*self.kernel, 1),
            (*self.stride, 1),
            (*self.pre, 0),
            (*self.post, 0),
            (*self.dilation, 1),
            (*self.output_padding, 0),
            self.mode,
            self.exclusive,
        )


def _padded(values: tuple[int, ...] | None, count: int, default: int) -> tuple[int, ...]:
    if values is None:
        return (default,) * count
    return values if len(values) == count else (values + (default,) * count)[:count]


def window_of(node: ir.Node, kernel: tuple[int, ...], *, ceil: bool = False, exclusive: bool = True) -> Window:
    """Read a node's spatial attributes; `kernel` holds where there is no kernel_shape.

    Attributes with fewer values than there are spatial dimensions are filled up, as the parser does it.
    Source: getKernelParams, onnx-tensorrt 8.5 to 10.10.
    """
    count = len(kernel)
    given = integers(node, "kernel_shape")
    if given is not None:
        kernel = _padded(given, count, 1)
    if exclusive and has(node, "count_include_pad"):
        exclusive = integer(node, "count_include_pad", 0) != 1
    mode = "EXPLICIT_ROUND_UP" if ceil else "EXPLICIT_ROUND_DOWN"
    auto = text(node, "auto_pad", "NOTSET")
    pre = post = (0,) * count
    pads = integers(node, "pads")
    if auto in {"SAME_UPPER", "SAME_LOWER"}:
        if pads is not None:
            raise Refused("pads must not be given together with auto_pad SAME_UPPER or SAME_LOWER.")
        mode = auto
    elif pads is not None:
        half = len(pads) // 2
        pre = _padded(pads[:half], count, 0)
        post = _padded(pads[half:], count, 0)
    stride, dilation = (_padded(integers(node, name), count, 1) for name in ("strides", "dilations"))
    if count and min(kernel + stride + dilation) < 1:
        raise Refused("A kernel, stride or dilation of less than 1.")
    return Window(
        kernel=kernel,
        stride=stride,
        pre=pre,
        post=post,
        dilation=dilation,
        output_padding=_padded(integers(node, "output_padding"), count, 0),
        mode=mode,
        exclusive=exclusive,
    )
