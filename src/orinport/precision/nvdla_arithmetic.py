"""NVDLA v1's integer arithmetic in NumPy, bit for bit: what the fast emulation is held against.

All values are integers in int64 arrays; INT8 means that they lie in -128 ... 127. Sources: nvdla/doc, precision.rst
(number formats, rounding and saturation of the converters), nvdla/hw, cmod/pdp/NV_NVDLA_pdp.cpp, and nvdla/sw,
kmd/firmware/pdp.c (average pooling; the circuit in vmod/nvdla/pdp/NV_NVDLA_PDP_CORE_cal2d.v rounds the same way).
The DLA of Orin is a later design whose post-processing runs in a format called FP19 that is not public; see
`orinport.precision.emulate` for what that leaves open.

Everywhere a shift to the right rounds to the nearest, ties away from zero (AC_RND_INF), and what does not fit
saturates (AC_SAT).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "INT8",
    "INT32",
    "Multiplier",
    "add",
    "average_pool",
    "bias_of",
    "convert",
    "convolve",
    "matmul",
    "max_pool",
    "multiply",
    "post_process",
    "quantize",
    "reciprocal",
    "round_shift",
    "saturate",
]

INT8 = (-128, 127)
INT32 = (-(1 << 31), (1 << 31) - 1)
_SCALE_BITS = 15
"""Value bits of the converters' INT16 scale."""
_MAX_SHIFT = 63
"""The shift registers of the point-wise unit have 6 bits."""
_OPERAND_BITS = 15
"""Value bits of the point-wise unit's 16-bit operand."""
_RECIPROCAL = 1 << 16
"""Average pooling multiplies by 65536 / window (nvdla/hw, register PDP_D_RECIP_KERNEL_WIDTH)."""


@dataclass(frozen=True, slots=True)
class Multiplier:
    """A positive real factor as the hardware holds it: `scale / 2**shift`, scale INT16, shift of 6 bits."""

    scale: int
    shift: int

    @classmethod
    def of(cls, factor: float) -> Multiplier:
        """The nearest one with 15 significant bits; the largest there is if `factor` is 32767 or more."""
        if not factor > 0 or not np.isfinite(factor):
            raise ValueError(f"{factor!r} is not a positive factor")
        shift = min(max(_SCALE_BITS - frexp(factor)[1], 0), _MAX_SHIFT)
        scale = int(np.floor(np.ldexp(factor, shift) + 0.5))
        if scale >> _SCALE_BITS and shift:
            shift -= 1
            scale = int(np.floor(np.ldexp(factor, shift) + 0.5))
        return cls(min(scale, (1 << _SCALE_BITS) - 1), shift)

    @property
    def value(self) -> float:
        """What it stands for, exact in binary64."""
        return float(np.ldexp(float(self.scale), -self.shift))


def saturate(values: NDArray[np.int64], limits: tuple[int, int]) -> NDArray[np.int64]:
    """`values` within `limits`, both included."""
    result: NDArray[np.int64] = np.clip(values, *limits)
    return result


def round_shift(values: NDArray[np.int64], shift: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """`values / 2**shift` rounded to the nearest, ties away from zero. |values| must be below 2**62."""
    shift = np.asarray(shift, np.int64)
    magnitude = np.abs(values)
    one = np.int64(1)
    half = np.where(shift > 0, np.left_shift(one, np.maximum(shift - 1, 0)), 0)
    result: NDArray[np.int64] = np.sign(values) * np.right_shift(magnitude + half, shift)
    return result


def convert(
    values: NDArray[np.int64], multiplier: Multiplier | Sequence[Multiplier], limits: tuple[int, int] = INT8
) -> NDArray[np.int64]:
    """A converter: times `multiplier`, rounded, saturated. Several multipliers are one for each index of axis 1."""
    if isinstance(multiplier, Multiplier):
        return saturate(round_shift(values * multiplier.scale, multiplier.shift), limits)
    shape = (-1, *[1] * (values.ndim - 2))
    scale = np.array([each.scale for each in multiplier], np.int64).reshape(shape)
    shift = np.array([each.shift for each in multiplier], np.int64).reshape(shape)
    return saturate(round_shift(values * scale, shift), limits)


def quantize(values: NDArray[np.float32], scale: float, limits: tuple[int, int] = INT8) -> NDArray[np.int64]:
    """Real values as integers of step `scale`: the quotient in binary64, rounded, ties away from zero."""
    quotient = np.asarray(values, np.float64) / np.float64(scale)
    rounded = np.sign(quotient) * np.floor(np.abs(quotient) + 0.5)
    result: NDArray[np.int64] = np.clip(rounded, *limits).astype(np.int64)
    return result


def bias_of(bias: float, step: float) -> int:
    """A bias in steps of the accumulator, as the point-wise unit adds it: a 16-bit operand, shifted to the left."""
    wanted = bias / step
    shift = 0
    while abs(wanted) / (1 << shift) >= (1 << _OPERAND_BITS) - 0.5 and shift < _OPERAND_BITS:
        shift += 1
    operand = int(np.sign(wanted) * np.floor(abs(wanted) / (1 << shift) + 0.5))
    largest = (1 << _OPERAND_BITS) - 1
    return max(-largest, min(largest, operand)) << shift


def convolve(
    values: NDArray[np.int64],
    weights: NDArray[np.int64],
    *,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> NDArray[np.int64]:
    """Convolution sums as the accumulator hands them on, saturated to INT32.

    `values` is (N, C, H, W), `weights` (K, C / groups, kh, kw), `padding` (top, left, bottom, right) with zeros.
    """
    top, left, bottom, right = padding
    padded = np.pad(values, ((0, 0), (0, 0), (top, bottom), (left, right)))
    kernels, _, kh, kw = weights.shape
    height = (padded.shape[2] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    width = (padded.shape[3] - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    batch, channels = values.shape[0], values.shape[1] // groups
    grouped = weights.reshape(groups, kernels // groups, channels, kh, kw)
    sums = np.zeros((batch, groups, kernels // groups, height, width), np.int64)
    for row in range(kh):
        for column in range(kw):
            y, x = row * dilation[0], column * dilation[1]
            taken = padded[:, :, y : y + stride[0] * height : stride[0], x : x + stride[1] * width : stride[1]]
            taken = taken[:, :, :height, :width].reshape(batch, groups, channels, height, width)
            sums += np.einsum("ngchw,gkc->ngkhw", taken, grouped[:, :, :, row, column])
    return saturate(sums.reshape(batch, kernels, height, width), INT32)


def matmul(values: NDArray[np.int64], weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """(N, C) by (C, K): a fully connected layer's sums, saturated to INT32."""
    return saturate(values @ weights, INT32)


def post_process(
    sums: NDArray[np.int64],
    multipliers: Sequence[Multiplier],
    bias: NDArray[np.int64] | None = None,
    *,
    relu: bool = False,
) -> NDArray[np.int64]:
    """From the accumulator to INT8: bias, one multiplier a channel, ReLU, saturation."""
    if bias is not None:
        sums = sums + bias.reshape((-1, *[1] * (sums.ndim - 2)))
    result = convert(sums, multipliers)
    return np.maximum(result, 0) if relu else result


def add(
    left: NDArray[np.int64], right: NDArray[np.int64], multiplier: Multiplier, *, relu: bool = False
) -> NDArray[np.int64]:
    """Sum of two INT8 tensors of one scale, in 33 bits, then converted."""
    result = convert(left + right, multiplier)
    return np.maximum(result, 0) if relu else result


def multiply(left: NDArray[np.int64], right: NDArray[np.int64], multiplier: Multiplier) -> NDArray[np.int64]:
    """Product of two INT8 tensors, then converted."""
    return convert(left * right, multiplier)


def max_pool(
    values: NDArray[np.int64],
    window: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> NDArray[np.int64]:
    """Largest value of each window; padding takes no part."""
    result: NDArray[np.int64] = _windows(values, window, stride, padding, INT8[0]).max(axis=(-2, -1))
    return result


def average_pool(
    values: NDArray[np.int64],
    window: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> NDArray[np.int64]:
    """Average of each window, zeros of the padding counted: the sum by the width, rounded, then by the height."""
    sums = _windows(values, window, stride, padding, 0).sum(axis=(-2, -1))
    for length in (window[1], window[0]):
        sums = round_shift(sums * reciprocal(length), 16)
    return saturate(sums, INT8)


def reciprocal(length: int) -> int:
    """65536 / length without its fraction, as NVDLA's driver has it (nvdla/sw, kmd/firmware/pdp.c, recip_kernel_size).

    So half a step behind a window of 6 is rounded to zero: 3 * 10922 / 65536 is below 0.5.
    """
    return _RECIPROCAL // length


def _windows(
    values: NDArray[np.int64],
    window: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    fill: int,
) -> NDArray[np.int64]:
    top, left, bottom, right = padding
    padded = np.pad(values, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(padded, window, axis=(2, 3))
    result: NDArray[np.int64] = view[:, :, :: stride[0], :: stride[1]]
    return result
