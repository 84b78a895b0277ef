"""`Div(x, c) -> Mul(x, 1 / c)`: division by a constant, and Neg, as multiplication.

## What it does
A Div whose divisor is a constant becomes a Mul with the reciprocals; Neg a Mul with -1.

## Why
The DLA divides from TensorRT 10.3 on only, and negates nowhere; products with a constant it takes as a scale in every
version.

## Example
`Div(x, [0.229, 0.224, 0.225])` of a normalised picture: `Mul(x, [4.37, 4.46, 4.44])`.

## Refused
Divisors of which one is 0 or no number, or whose reciprocal the element type does not hold in full precision; integers.

## Safety
exact: equal up to the rounding of the reciprocals.

## Source
Rows E01, E03a, E08 and U03 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "DivToMul"]


class DivToMul(Rewrite):
    """Division by a constant becomes multiplication."""

    name = "div-to-mul"
    safety = Safety.EXACT
    op_types = ("Div", "Neg")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value = node.inputs[0]
        if value is None or context.is_constant(value):
            return None
        dtype = context.dtype(value)
        if dtype is None or not context.is_float(value):
            return Refusal(f"the DLA does not compute in {dtype}")
        if node.op_type == "Neg":
            return Match((node,), (node.outputs[0],), np.asarray(-1.0))
        divisor = context.constant(node.inputs[1])
        if divisor is None:
            return None
        wide = divisor.astype(np.float64)
        if not np.isfinite(wide).all() or not wide.all():
            return Refusal("a divisor is 0, infinite or no number")
        factors = 1.0 / wide
        limits = np.finfo(np.float32 if dtype.numpy() == np.dtype(np.float32) else np.float16)
        if factors.size and (np.abs(factors).min() < limits.tiny or np.abs(factors).max() > limits.max):
            return Refusal(f"{dtype} does not hold the reciprocal of a divisor in full precision")
        return Match((node,), (node.outputs[0],), factors)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        value = match.nodes[0].inputs[0]
        assert value is not None
        factors = builder.constant(match.data.astype(builder.numpy_dtype(value)), "factors")
        return (builder.op("Mul", value, factors),)


REWRITE = DivToMul()
