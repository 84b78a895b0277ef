"""`Pow(x, 2) -> Mul(x, x)`: whole powers as products.

## What it does
Pow with the constant exponent 2, 3 or 4 becomes one or two products.

## Why
The DLA takes powers from TensorRT 10.3 on, and in which precisions is not documented; products it takes in every
version.

## Example
The square of a variance, the cube of GELU: `Pow(x, 3)` is `Mul(Mul(x, x), x)`.

## Refused
Exponents known at run time, other exponents, and several different ones; integers. Where the exponent 0.5 or -1 stands
for a square root or a reciprocal, the DLA's own Pow or Div, from TensorRT 10.3 on, is the only way.

## Safety
exact: equal up to rounding.

## Source
Rows E01, E03a, E03e, E04 and E10 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "PowToMul"]

_POWERS = (2.0, 3.0, 4.0)


class PowToMul(Rewrite):
    """A small whole power becomes products."""

    name = "pow-to-mul"
    safety = Safety.EXACT
    op_types = ("Pow",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value, exponents = node.inputs[0], context.constant(node.inputs[1])
        if not context.is_float(value):
            return Refusal(f"the DLA does not compute in {context.dtype(value)}")
        if exponents is None or exponents.size == 0:
            return Refusal("the exponent is known at run time only" if exponents is None else "it holds no elements")
        exponent = float(exponents.reshape(-1)[0])
        if (exponents != exponents.reshape(-1)[0]).any():
            return Refusal("there are several exponents")
        if exponent not in _POWERS:
            return Refusal(f"the exponent {exponent:g} is not 2, 3 or 4")
        if context.shape(value) is None or context.shape(value) != context.shape(node.outputs[0]):
            return Refusal("the exponents change the shape, or the shape is not known")
        return Match((node,), (node.outputs[0],), exponent)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        value = match.nodes[0].inputs[0]
        square = builder.op("Mul", value, value)
        if match.data == 2.0:
            return (square,)
        return (builder.op("Mul", square, value if match.data == 3.0 else square),)


REWRITE = PowToMul()
