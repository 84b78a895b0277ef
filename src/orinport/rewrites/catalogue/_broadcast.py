"""Copies of a 4-D value along its channels, height and width, as layers of the DLA."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.builder import RefusedError
from orinport.rewrites.catalogue._windows import Window, build_conv
from orinport.rewrites.limits import factors

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.rewrites.builder import Builder

__all__ = ["spread"]


def spread(value: ir.Value, shape: tuple[int, ...], builder: Builder) -> ir.Value:
    """`value` copied until it has `shape`: channels by a convolution of ones, height and width by nearest Resize.

    A height or width with a prime factor above the limit of Resize is copied as channels and transposed into place, and
    before that out of it: a reshape may not stand next to a Slice (N05).
    Raises RefusedError where the batch would have to be copied.
    """
    batch, channels, height, width = builder.shape(value)
    if batch != shape[0]:
        raise RefusedError("the batch would have to be copied")
    if channels != shape[1]:
        value = _copies(value, shape[1], builder)
    limit = builder.context.limit("Z02a", "max")
    plans = [factors(size, limit) for size in (shape[2] // height, shape[3] // width)]
    if plans[0] is None:
        copied = _copies(builder.transpose(value, (0, 2, 1, 3)), shape[2], builder)
        value = builder.transpose(copied, (0, 2, 1, 3))
    if plans[1] is None:
        copied = _copies(builder.transpose(value, (0, 3, 1, 2)), shape[3], builder)
        value = builder.transpose(copied, (0, 2, 3, 1))
    done = [plan or () for plan in plans]
    count = max(map(len, done))
    rows_by, columns_by = ((*plan, *[1] * (count - len(plan))) for plan in done)
    for row, column in zip(rows_by, columns_by, strict=True):
        value = _resize(value, row, column, builder)
    return value


def _copies(value: ir.Value, count: int, builder: Builder) -> ir.Value:
    """`count` copies of the only channel of a value."""
    ones = builder.constant(np.ones((count, 1, 1, 1), builder.numpy_dtype(value)), "ones")
    return build_conv(builder, value, ones, None, Window((1, 1), (1, 1), (0, 0), (0, 0), (1, 1)))


def _resize(value: ir.Value, row: int, column: int, builder: Builder) -> ir.Value:
    batch, channels, height, width = builder.shape(value)
    scales = builder.constant(np.asarray([1, 1, row, column], np.float32), "scales")
    shape, dtype = (batch, channels, height * row, width * column), builder.context.dtype(value)
    opset = builder.context.opset
    if opset < 11:
        op_type = "Upsample" if opset < 10 else "Resize"
        return builder.op(op_type, value, scales, mode="nearest", shape=shape, dtype=dtype)
    region = builder.constant(np.zeros(0, np.float32), "roi") if opset < 13 else None
    return builder.op(
        "Resize",
        value,
        region,
        scales,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
        shape=shape,
        dtype=dtype,
    )
