"""`Reciprocal(x) -> Div(1, x)`: reciprocals as the division that the DLA has.

## What it does
Reciprocal, and Pow with the constant exponent -1, become a Div of 1.

## Why
From TensorRT 10.3 on the DLA divides, also a constant by a tensor; Reciprocal is a unary layer, which it refuses.

## Example
The normalisation of linear attention: `Mul(n, Reciprocal(d))`.

## Refused
Targets on which the DLA has no division, with the version that has it; integers.

## Safety
exact: bit-equal for Reciprocal, equal up to rounding for Pow.

## Source
Rows E03a, E03b, E03d, E05 and U03 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._scalars import number_like
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.targets.catalogue import rows_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ReciprocalToDiv", "has_division"]


class ReciprocalToDiv(Rewrite):
    """A reciprocal becomes a division."""

    name = "reciprocal-to-div"
    safety = Safety.EXACT
    op_types = ("Pow", "Reciprocal")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if node.op_type == "Pow":
            exponents = context.constant(node.inputs[1])
            if exponents is None or exponents.size != 1 or float(exponents.reshape(-1)[0]) != -1.0:
                return None
        if not context.is_float(node.inputs[0]):
            return Refusal(f"the DLA does not compute in {context.dtype(node.inputs[0])}")
        if context.shape(node.inputs[0]) is None or context.shape(node.inputs[0]) != context.shape(node.outputs[0]):
            return Refusal("the exponent changes the shape, or the shape is not known")
        if not has_division(context):
            return Refusal("the DLA divides from TensorRT 10.3 on only, or on DRIVE from 8.6.12 on")
        return Match((node,), (node.outputs[0],))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        value = match.nodes[0].inputs[0]
        assert value is not None
        return (builder.op("Div", number_like(builder, value, 1.0), value),)


def has_division(context: RewriteContext) -> bool:
    """The target's DLA divides; without a target that is assumed."""
    if context.target is None:
        return True
    rows = rows_for(context.target, context.precision)
    return "E03b" in rows or "E03c" in rows


REWRITE = ReciprocalToDiv()
