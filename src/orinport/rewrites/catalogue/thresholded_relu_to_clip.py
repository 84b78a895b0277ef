"""`ThresholdedRelu(x) -> Mul(Relu(x), Clip(32768 Clip(32768 Clip(x - alpha))))`: a gate of 0 and 1.

## What it does
ThresholdedRelu becomes the product of its input with a gate: the input less alpha, clipped to 0 and 1, and twice
multiplied by 2^15 and clipped again. For an alpha of 0 it is a Relu; for a positive one the Relu in front keeps minus
infinity out.

## Why
The DLA refuses the activation, but takes sums, products and clips from 0 on.

## Example
`ThresholdedRelu(x, alpha=1)`: Relu, Add, three Clip and three Mul.

## Refused
Integers; shapes that are not known; an alpha that the element type does not hold.

## Safety
tolerance: the same for finite numbers that are not within 2^-30 above alpha: those come out smaller. FP16, in which the
DLA computes, tells numbers apart from 2^-24 on, so there the result is exact. NaN, which gives 0, would stay NaN.

## Source
Rows A01a, A03a, A05, E01 and E02 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._pointwise import refused_input
from orinport.rewrites.catalogue._scalars import add, number_like
from orinport.rewrites.catalogue._steps import step
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ThresholdedReluToClip"]


class ThresholdedReluToClip(Rewrite):
    """A threshold becomes a gate."""

    name = "thresholded-relu-to-clip"
    safety = Safety.TOLERANCE
    finite = True
    op_types = ("ThresholdedRelu",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if (refusal := refused_input(node, context)) is not None:
            return refusal
        return Match((node,), (node.outputs[0],), float(context.attribute(node, "alpha", 1.0)))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        value, alpha = match.nodes[0].inputs[0], match.data
        assert value is not None
        if alpha == 0.0:
            return (builder.op("Relu", value),)
        number_like(builder, value, alpha)
        kept = builder.op("Relu", value) if alpha > 0.0 else value
        return (builder.op("Mul", kept, step(add(builder, value, -alpha), builder)),)


REWRITE = ThresholdedReluToClip()
