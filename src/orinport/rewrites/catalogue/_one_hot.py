"""Padding and cropping as depthwise convolutions with a single 1: equal for finite numbers, no Slice and no Pad."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.builder import RefusedError
from orinport.rewrites.catalogue._windows import Window, build_conv

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.rewrites.builder import Builder

__all__ = ["crop", "pad"]


def crop(value: ir.Value, begin: tuple[int, int], size: tuple[int, int], builder: Builder) -> ir.Value:
    """`size` rows and columns of a 4-D value from `begin` on. Raises RefusedError if too many are cut off."""
    whole = builder.shape(value)[2:]
    kernel = tuple(old - new + 1 for old, new in zip(whole, size, strict=True))
    _require(max(kernel), builder)
    return _pick(value, (kernel[0], kernel[1]), begin, (0, 0), builder) if kernel != (1, 1) else value


def pad(value: ir.Value, begin: tuple[int, int], end: tuple[int, int], builder: Builder) -> ir.Value:
    """A 4-D value with zeros around it, one axis after the other.

    A kernel of begin + end + 1 elements with its 1 at `end`, padded by begin + end on both sides, moves the tensor
    without cutting it. Raises RefusedError if that is larger than the largest kernel.
    """
    for axis in (0, 1):
        total = begin[axis] + end[axis]
        if not total:
            continue
        _require(total + 1, builder)
        kernel, place, around = [1, 1], [0, 0], [0, 0]
        kernel[axis], place[axis], around[axis] = total + 1, end[axis], total
        value = _pick(value, (kernel[0], kernel[1]), (place[0], place[1]), (around[0], around[1]), builder)
    return value


def _require(kernel: int, builder: Builder) -> None:
    limit = builder.context.limit("C02a", "max")
    if kernel > limit:
        raise RefusedError(f"it would need a kernel of {kernel}, larger than the DLA's limit of {limit}")


def _pick(
    value: ir.Value, kernel: tuple[int, int], place: tuple[int, int], around: tuple[int, int], builder: Builder
) -> ir.Value:
    channels = builder.shape(value)[1]
    weights = np.zeros((channels, 1, *kernel), builder.numpy_dtype(value))
    weights[:, :, place[0], place[1]] = 1.0
    window = Window(kernel, (1, 1), around, around, (1, 1))
    return build_conv(builder, value, builder.constant(weights, "one"), None, window, channels)
