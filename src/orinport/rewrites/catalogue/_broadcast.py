"""Copies of a 4-D value along its channels, height and width, as layers of the DLA."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.builder import RefusedError
from orinport.rewrites.catalogue._windows import Window, build_conv

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.rewrites.builder import Builder

__all__ = ["spread", "steps_of"]


def spread(value: ir.Value, shape: tuple[int, ...], builder: Builder) -> ir.Value:
    """`value` copied until it has `shape`: channels by a convolution of ones, height and width by nearest Resize.

    Raises RefusedError where the batch would have to be copied, or a size has a prime factor above the limit of
    Resize.
    """
    batch, channels, height, width = builder.shape(value)
    if batch != shape[0]:
        raise RefusedError("the batch would have to be copied")
    if channels != shape[1]:
        ones = builder.constant(np.ones((shape[1], channels, 1, 1), builder.numpy_dtype(value)), "ones")
        value = build_conv(builder, value, ones, None, Window((1, 1), (1, 1), (0, 0), (0, 0), (1, 1)))
    limit = builder.context.limit("Z02a", "max")
    plans = [steps_of(after // before, limit) for before, after in zip((height, width), shape[2:], strict=True)]
    count = max(map(len, plans))
    rows, columns = ((*plan, *[1] * (count - len(plan))) for plan in plans)
    for row, column in zip(rows, columns, strict=True):
        value = _resize(value, row, column, builder)
    return value


def steps_of(factor: int, limit: int) -> tuple[int, ...]:
    """`factor` as a product of numbers up to `limit`; RefusedError if a prime factor is larger."""
    steps: list[int] = []
    while factor > 1:
        step = next((each for each in range(min(limit, factor), 1, -1) if factor % each == 0), None)
        if step is None:
            raise RefusedError(f"a scale of {factor} has no factors up to the limit of {limit}")
        steps.append(step)
        factor //= step
    return tuple(steps)


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
