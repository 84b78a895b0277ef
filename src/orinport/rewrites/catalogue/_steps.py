"""Which of two numbers is larger, as 0 and 1, by what the DLA computes in every version: products and clips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._scalars import multiply, number_like

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.rewrites.builder import Builder

__all__ = ["compared", "complement", "step"]

_GAIN = 2.0**15
"""The largest power of two that FP16 holds."""
_STAGES = 2
"""Gains one after the other: together they lift 2^-24, FP16's smallest number, above 1."""


def step(value: ir.Value, builder: Builder) -> ir.Value:
    """1 for values above 0, 0 for all others; between 0 and 2^-30 something between.

    The first clip keeps the products within FP16, and other factors from being multiplied into the gain.
    """
    value = builder.clip(value, 0.0, 1.0)
    for _ in range(_STAGES):
        value = builder.clip(multiply(builder, value, _GAIN), 0.0, 1.0)
    return value


def complement(value: ir.Value, builder: Builder) -> ir.Value:
    """1 less the value."""
    return builder.op("Sub", number_like(builder, value, 1.0), value)


def compared(op_type: str, first: ir.Value, second: ir.Value, builder: Builder) -> ir.Value:
    """The comparison of ONNX of that name as 0 and 1."""
    if op_type == "Equal":
        return complement(step(builder.op("Abs", builder.op("Sub", first, second)), builder), builder)
    if op_type in ("Less", "GreaterOrEqual"):
        first, second = second, first
    above = step(builder.op("Sub", first, second), builder)
    return above if op_type in ("Greater", "Less") else complement(above, builder)
