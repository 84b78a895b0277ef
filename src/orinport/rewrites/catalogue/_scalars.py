"""Arithmetic with one number, and powers of polynomials: what an elementwise layer does with a constant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.builder import RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder

__all__ = ["add", "multiply", "number_like", "polynomial"]


def number_like(builder: Builder, value: ir.Value, number: float) -> ir.Value:
    """`number` as a constant of the type of `value`; RefusedError if the type does not hold it."""
    dtype = builder.numpy_dtype(value)
    with np.errstate(over="ignore", under="ignore"):
        cast = np.asarray(number, np.float64).astype(dtype)
    if np.isfinite(number) and (not np.isfinite(cast.astype(np.float64)) or (number != 0.0 and cast == 0)):
        raise RefusedError(f"{dtype} does not hold the constant {number:g}")
    return builder.constant(cast, "value")


def add(builder: Builder, value: ir.Value, number: float) -> ir.Value:
    """`value + number`; `value` itself for 0."""
    return value if number == 0.0 else builder.op("Add", value, number_like(builder, value, number))


def multiply(builder: Builder, value: ir.Value, number: float) -> ir.Value:
    """`value * number`; `value` itself for 1."""
    return value if number == 1.0 else builder.op("Mul", value, number_like(builder, value, number))


def polynomial(builder: Builder, value: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """`c0 + c1 x + c2 x^2 + ...` in Horner's form; at least two coefficients, of which the last is not 0."""
    *rest, last = coefficients
    result = add(builder, multiply(builder, value, last), rest[-1])
    for coefficient in reversed(rest[:-1]):
        result = add(builder, builder.op("Mul", result, value), coefficient)
    return result
