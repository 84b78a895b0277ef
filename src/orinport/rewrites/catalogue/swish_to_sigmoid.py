"""`Swish(x) -> Mul(x, Sigmoid(alpha x))`: Swish, which is SiLU, by the functions that the DLA has.

## What it does
Swish becomes Sigmoid of alpha times its input, and a product with the input.

## Why
Parsers before TensorRT 10.16 do not know the operator, which is new in opset 24. The DLA takes its parts in all
versions.

## Example
`Swish(x)`, as exporters write SiLU from opset 24 on: Sigmoid and Mul.

## Refused
Integers; inputs of unknown shape.

## Safety
exact: what ONNX defines Swish by.

## Source
ONNX operator Swish, version 24; row A01a of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._pointwise import refused_input
from orinport.rewrites.catalogue._scalars import multiply
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "SwishToSigmoid"]


class SwishToSigmoid(Rewrite):
    """Swish becomes a sigmoid and a product."""

    name = "swish-to-sigmoid"
    safety = Safety.EXACT
    op_types = ("Swish",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if (refusal := refused_input(node, context)) is not None:
            return refusal
        return Match((node,), (node.outputs[0],))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        value = node.inputs[0]
        assert value is not None
        alpha = float(builder.context.attribute(node, "alpha", 1.0))
        inner = value if alpha == 1.0 else multiply(builder, value, alpha)
        return (builder.op("Mul", value, builder.op("Sigmoid", inner)),)


REWRITE = SwishToSigmoid()
