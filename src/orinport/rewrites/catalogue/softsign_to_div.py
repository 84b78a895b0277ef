"""`Softsign(x) -> Div(x, 1 + Abs(x))`: by the division that the DLA has.

## What it does
Softsign becomes an absolute value, a sum and a division.

## Why
The DLA refuses the activation. It divides from TensorRT 10.3 on, and has the absolute value in every version.

## Example
`Softsign(x)` after a convolution: Abs, Add and Div.

## Refused
Targets whose DLA lacks DIV: the reason says so. Integers; shapes that are not known.

## Safety
exact: the same arithmetic, rounded between the steps. Infinities give NaN, as in ONNX.

## Source
Rows A05, E01, E03b, E05 and U01a of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._pointwise import refused_input
from orinport.rewrites.catalogue._scalars import add
from orinport.rewrites.catalogue.reciprocal_to_div import has_division
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "SoftsignToDiv"]


class SoftsignToDiv(Rewrite):
    """A soft sign becomes a division."""

    name = "softsign-to-div"
    safety = Safety.EXACT
    op_types = ("Softsign",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if (refusal := refused_input(node, context)) is not None:
            return refusal
        if not has_division(context):
            return Refusal("the DLA lacks DIV before TensorRT 10.3, or 8.6.12 on DRIVE")
        return Match((node,), (node.outputs[0],))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        value = match.nodes[0].inputs[0]
        assert value is not None
        return (builder.op("Div", value, add(builder, builder.op("Abs", value), 1.0)),)


REWRITE = SoftsignToDiv()
