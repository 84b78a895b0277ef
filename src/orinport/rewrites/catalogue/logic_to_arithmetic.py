"""`And(a, b) -> Cast(Mul(Cast(a), Cast(b)))`: logic as arithmetic with 0 and 1.

## What it does
And, Or, Xor and Not on truth values become arithmetic on FP32 values of 0 and 1: a product, a maximum, the absolute
difference, and 1 less the value. Casts before and after keep every other reader's type.

## Why
The DLA has no logic on truth values; products, maxima and differences it takes.

## Example
`And(Greater(x, 0), Less(x, 1))`: the comparisons are cast to FP32 and multiplied.

## Refused
Shapes that are not known; constants on both sides, which are folded.

## Safety
exact: 0 and 1 are exact in every type, and so are the results.

## Source
Rows E01, E02, K03, K11 and U01a of the acceptance catalogue; NVIDIA/Deep-Learning-Accelerator-SW, operators/README.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "LogicToArithmetic", "as_number"]


class LogicToArithmetic(Rewrite):
    """Logic becomes arithmetic."""

    name = "logic-to-arithmetic"
    safety = Safety.EXACT
    op_types = ("And", "Not", "Or", "Xor")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if all(context.is_constant(value) for value in node.inputs):
            return Refusal("it is constant")
        if any(context.shape(value) is None for value in node.inputs):
            return Refusal("the shape is not known")
        return Match((node,), (node.outputs[0],))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        numbers = [as_number(builder, value) for value in node.inputs if value is not None]
        if node.op_type == "And":
            result = builder.op("Mul", *numbers)
        elif node.op_type == "Or":
            result = builder.op("Max", *numbers)
        elif node.op_type == "Xor":
            result = builder.op("Abs", builder.op("Sub", *numbers))
        else:
            result = builder.op("Sub", builder.constant(np.asarray(1.0, np.float32)), numbers[0])
        return (builder.op("Cast", result, to=int(ir.DataType.BOOL)),)


def as_number(builder: Builder, value: ir.Value, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Value:
    """A truth value as 0 and 1; a constant as a constant."""
    constant = builder.context.constant(value)
    if constant is not None:
        return builder.constant(constant.astype(dtype.numpy()), "mask")
    return builder.op("Cast", value, to=int(dtype))


REWRITE = LogicToArithmetic()
