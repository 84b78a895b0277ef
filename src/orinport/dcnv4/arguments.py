"""The arguments of DCNv4 and FlashDeformAttn: meaning, derived sizes, and every check on them.

All forms of the operators (reference, PyTorch, ONNX, CUDA, TensorRT) are described by these values, so a
combination of arguments that one form refuses is refused by all, in the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from sys import float_info
from typing import TYPE_CHECKING, Any

from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

__all__ = [
    "DeformAttnArguments",
    "Geometry",
    "check_attention_shapes",
    "check_gradient",
    "offset_mask_width",
    "require_whole",
]

_ALIGNMENT = 8
"""The width of offset_mask is a multiple of this, so that rows can be read by vector loads."""
_LARGEST = 1 << 20
_MOST_TAPS = 1024
_LARGEST_EXTENT = 2**31 - 1
"""The plugins' limits on fields, on the kernel's sides and points, and on extents: products fit into 64 bits."""


def offset_mask_width(group: int, taps: int) -> int:
    """P = 8*ceil(3*G*K/8), the smallest width of `offset_mask` for `group` groups and `taps` taps."""
    return -(-3 * group * taps // _ALIGNMENT) * _ALIGNMENT


@dataclass(frozen=True, slots=True)
class Geometry:
    """What a DCNv4 operator is, apart from its data. Pairs are (height, width).

    Raises OrinportError if a value makes no sense by itself.
    """

    group: int
    group_channels: int
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    offset_scale: float = 1.0
    remove_center: bool = False

    def __post_init__(self) -> None:
        require_whole("group", self.group, 1)
        require_whole("group_channels", self.group_channels, 1)
        for name, low in (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            pair = getattr(self, name)
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise OrinportError(f"DCNv4: {name} must be a pair (height, width), not {pair!r}.")
            for number in pair:
                require_whole(name, number, low, high=_MOST_TAPS if name == "kernel" else _LARGEST)
        if not isinstance(self.offset_scale, Real) or not abs(self.offset_scale) <= float_info.max:
            raise OrinportError(f"DCNv4: offset_scale must be finite, not {self.offset_scale!r:.20}.")
        if self.taps == 0:
            raise OrinportError("DCNv4: a 1x1 kernel without its centre has no taps.")

    @classmethod
    def of_arguments(cls, arguments: Sequence[Any]) -> Geometry:
        """From the arguments of the PyTorch operators, in the order of `keywords`."""
        *pairs, group, group_channels, offset_scale, remove_center = arguments
        return _cached(group, group_channels, *map(tuple, pairs), float(offset_scale), bool(remove_center))

    @property
    def keywords(self) -> dict[str, Any]:
        """The keyword arguments of `orinport.dcnv4.reference` and of the operators, in the operators' order."""
        return {
            "kernel": self.kernel,
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "group": self.group,
            "group_channels": self.group_channels,
            "offset_scale": self.offset_scale,
            "remove_center": self.remove_center,
        }

    @property
    def window(self) -> tuple[int, ...]:
        """Kernel, stride, padding and dilation as eight numbers."""
        return (*self.kernel, *self.stride, *self.padding, *self.dilation)

    @property
    def channels(self) -> int:
        """C = G*D."""
        return self.group * self.group_channels

    @property
    def taps(self) -> int:
        """K, the number of sampling points of one output pixel and group."""
        return self.kernel[0] * self.kernel[1] - int(self.remove_center)

    @property
    def used_width(self) -> int:
        """3*G*K, the numbers of one `offset_mask` vector that are read."""
        return 3 * self.group * self.taps

    @property
    def width(self) -> int:
        """P, the smallest legal length of one `offset_mask` vector."""
        return offset_mask_width(self.group, self.taps)

    @property
    def tap_positions(self) -> tuple[tuple[int, int], ...]:
        """(j, i), row and column in the kernel, of every tap in the order of the packing: down a column first."""
        rows, columns = self.kernel
        centre = (rows // 2, columns // 2)
        return tuple(
            (j, i) for i in range(columns) for j in range(rows) if not (self.remove_center and (j, i) == centre)
        )

    @property
    def origin(self) -> tuple[int, int]:
        """(y, x) of the input pixel under the kernel's centre at output pixel (0, 0)."""
        half_h, half_w = self._half
        return half_h - self.padding[0], half_w - self.padding[1]

    @property
    def tap_offsets(self) -> tuple[tuple[int, int], ...]:
        """(y, x) of every tap from the kernel's centre in pixels, before `offset_scale`, in packing order."""
        (half_h, half_w), (dilation_h, dilation_w) = self._half, self.dilation
        return tuple((j * dilation_h - half_h, i * dilation_w - half_w) for j, i in self.tap_positions)

    @property
    def _half(self) -> tuple[int, int]:
        """From the kernel's first row and column to its centre, in pixels."""
        (dilation_h, dilation_w), (kernel_h, kernel_w) = self.dilation, self.kernel
        return dilation_h * (kernel_h - 1) // 2, dilation_w * (kernel_w - 1) // 2

    @property
    def keeps_size(self) -> bool:
        """Whether output pixel and input pixel correspond: stride 1 and padding that keeps H and W.

        Only then may value and offset_mask lie in one tensor (the fused form).
        """
        return self.stride == (1, 1) and all(
            2 * pad == dilation * (kernel - 1)
            for pad, dilation, kernel in zip(self.padding, self.dilation, self.kernel, strict=True)
        )

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """(Ho, Wo) for an input of height x width. Raises OrinportError if the kernel does not fit."""
        rows, columns = (
            (size + 2 * pad - (dilation * (kernel - 1) + 1)) // stride + 1
            for size, pad, dilation, kernel, stride in zip(
                (height, width), self.padding, self.dilation, self.kernel, self.stride, strict=True
            )
        )
        if rows < 1 or columns < 1:
            raise OrinportError(
                f"DCNv4: a {self.kernel[0]}x{self.kernel[1]} kernel with dilation {self.dilation} and padding "
                f"{self.padding} does not fit into {height}x{width} pixels."
            )
        return rows, columns

    def check(self, value: Sequence[int], offset_mask: Sequence[int]) -> tuple[int, int, int, int]:
        """(N, Ho, Wo, P) for these shapes of `value` (N, H, W, C) and `offset_mask` (N, Ho, Wo, P).

        Raises OrinportError, with the numbers, if they do not belong together.
        """
        if len(value) != 4:
            raise OrinportError(f"DCNv4: value must have shape (N, H, W, C), not {tuple(value)}.")
        if len(offset_mask) != 4:
            raise OrinportError(f"DCNv4: offset_mask must have shape (N, Ho, Wo, P), not {tuple(offset_mask)}.")
        batch, height, width, channels = value
        if min(value) < 1:
            raise OrinportError(f"DCNv4: value of shape {tuple(value)} is empty.")
        if channels != self.channels:
            raise OrinportError(
                f"DCNv4: value has {channels} channels, but {self.group} groups of {self.group_channels} "
                f"need {self.channels}."
            )
        rows, columns = self.output_size(height, width)
        if tuple(offset_mask[:3]) != (batch, rows, columns):
            raise OrinportError(
                f"DCNv4: offset_mask has shape {tuple(offset_mask)}, but value of shape {tuple(value)} "
                f"needs ({batch}, {rows}, {columns}, P)."
            )
        self.check_width(offset_mask[3])
        return batch, rows, columns, offset_mask[3]

    def check_width(self, width: int) -> None:
        """Raise OrinportError if P is too small or no multiple of 8."""
        if width < self.used_width:
            raise OrinportError(
                f"DCNv4: offset_mask has {width} numbers a pixel, but {self.group} groups with {self.taps} taps "
                f"need {self.used_width}."
            )
        if width % _ALIGNMENT:
            raise OrinportError(
                f"DCNv4: offset_mask has {width} numbers a pixel, which is no multiple of {_ALIGNMENT}; "
                f"pad them to {-(-width // _ALIGNMENT) * _ALIGNMENT}."
            )

    def check_fused(self, value_offset_mask: Sequence[int]) -> tuple[int, int, int, int]:
        """(N, H, W, P) for the fused input (N, H, W, C+P), whose value comes first.

        Raises OrinportError if the shape does not fit, or if input and output pixels do not correspond.
        """
        if not self.keeps_size:
            raise OrinportError(
                f"DCNv4: value and offset_mask can lie in one tensor only if the output has the input's size; "
                f"kernel {self.kernel}, stride {self.stride}, padding {self.padding} and dilation {self.dilation} "
                "change it."
            )
        if len(value_offset_mask) != 4:
            raise OrinportError(
                f"DCNv4: the fused input must have shape (N, H, W, C+P), not {tuple(value_offset_mask)}."
            )
        if min(value_offset_mask) < 1:
            raise OrinportError(f"DCNv4: the fused input of shape {tuple(value_offset_mask)} is empty.")
        batch, height, width, row = value_offset_mask
        self.check_width(row - self.channels)
        return batch, height, width, row - self.channels


@lru_cache(maxsize=1024)
def _cached(*fields: Any) -> Geometry:
    return Geometry(*fields)


@dataclass(frozen=True, slots=True)
class DeformAttnArguments:
    """What a FlashDeformAttn operator is, apart from its data: (H, W) of every level, and points per level."""

    levels: tuple[tuple[int, int], ...]
    points: int = 8

    def __post_init__(self) -> None:
        require_whole("points", self.points, 1, "FlashDeformAttn", _MOST_TAPS)
        if not self.levels:
            raise OrinportError("FlashDeformAttn: there must be at least one level.")
        for level in self.levels:
            if len(level) != 2:
                raise OrinportError(f"FlashDeformAttn: a level is (height, width), not {tuple(level)}.")
            for number in level:
                require_whole("a level's size", number, 1, "FlashDeformAttn", _LARGEST_EXTENT)

    @property
    def starts(self) -> tuple[int, ...]:
        """First row of every level in `value`, if the levels follow each other without gaps."""
        starts = [0]
        for height, width in self.levels[:-1]:
            starts.append(starts[-1] + height * width)
        return tuple(starts)

    @property
    def rows(self) -> int:
        """The sum of H*W over all levels."""
        return sum(height * width for height, width in self.levels)

    @property
    def width(self) -> int:
        """3*L*K, the last dimension of `sampling_loc_attn`."""
        return 3 * len(self.levels) * self.points

    def check(
        self, value: Sequence[int], starts: Sequence[int], sampling_loc_attn: Sequence[int]
    ) -> tuple[int, int, int, int]:
        """(B, Q, G, D) for `value` (B, N, G, D) and `sampling_loc_attn` (B, Q, G, 3*L*K).

        Raises OrinportError, with the numbers, if they do not belong together.
        """
        batch, queries, group, channels = check_attention_shapes(
            value, sampling_loc_attn, len(self.levels), self.points
        )
        rows = value[1]
        if len(starts) != len(self.levels):
            raise OrinportError(f"FlashDeformAttn: {len(self.levels)} levels, but {len(starts)} level starts.")
        for (height, width), start in zip(self.levels, starts, strict=True):
            if start < 0 or start + height * width > rows:
                raise OrinportError(
                    f"FlashDeformAttn: a level of {height}x{width} that starts at row {start} does not lie inside "
                    f"the {rows} rows of value."
                )
        return batch, queries, group, channels


def check_attention_shapes(
    value: Sequence[int], sampling_loc_attn: Sequence[int], levels: int, points: int
) -> tuple[int, int, int, int]:
    """(B, Q, G, D) for `value` (B, N, G, D) and `sampling_loc_attn` (B, Q, G, 3*L*K), without the levels' sizes.

    Raises OrinportError, with the numbers, if they do not belong together.
    """
    if len(value) != 4:
        raise OrinportError(f"FlashDeformAttn: value must have shape (B, N, G, D), not {tuple(value)}.")
    if len(sampling_loc_attn) != 4:
        raise OrinportError(
            f"FlashDeformAttn: sampling_loc_attn must have shape (B, Q, G, 3*L*K), not {tuple(sampling_loc_attn)}."
        )
    batch, _, group, channels = value
    if min(value) < 1 or min(sampling_loc_attn) < 1:
        raise OrinportError(
            f"FlashDeformAttn: value of shape {tuple(value)} or sampling_loc_attn of shape "
            f"{tuple(sampling_loc_attn)} is empty."
        )
    width = 3 * levels * points
    if (sampling_loc_attn[0], sampling_loc_attn[2], sampling_loc_attn[3]) != (batch, group, width):
        raise OrinportError(
            f"FlashDeformAttn: sampling_loc_attn has shape {tuple(sampling_loc_attn)}, but value of shape "
            f"{tuple(value)}, {levels} levels and {points} points need ({batch}, Q, {group}, {width})."
        )
    return batch, sampling_loc_attn[1], group, channels


def check_gradient(operator: str, gradient: torch.Tensor, value: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Raise OrinportError unless `gradient` is one of an output of this shape, in `value`'s type and on its device.

    Kernels take its address alone, and would read beyond a smaller one.
    """
    if gradient.shape != shape or gradient.dtype != value.dtype or gradient.device != value.device:
        raise OrinportError(
            f"{operator}: the gradient must be {value.dtype} of shape {shape} on {value.device}, "
            f"not {gradient.dtype} of shape {tuple(gradient.shape)} on {gradient.device}."
        )


def require_whole(name: str, number: Any, low: int, operator: str = "DCNv4", high: int = _LARGEST) -> None:
    """Raise OrinportError unless `number` is a whole number from `low` to `high`."""
    if isinstance(number, bool) or not hasattr(number, "__index__") or number < low:
        raise OrinportError(f"{operator}: {name} must be a whole number of at least {low}, not {number!r}.")
    if number > high:
        raise OrinportError(f"{operator}: {name} must be at most {high}.")
