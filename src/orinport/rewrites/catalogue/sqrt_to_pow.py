"""`Sqrt(x) -> Pow(x, 0.5)`: square roots as the power that the DLA has.

## What it does
Sqrt becomes a Pow with the exponent 0.5.

## Why
From TensorRT 10.3 on the DLA takes powers with a constant exponent, in INT8; Sqrt is a unary layer, which it refuses.

## Example
The norm of a vector: `Sqrt(ReduceSum(x * x))`.

## Refused
Targets and precisions for which no document names POW; integers.

## Safety
tolerance: the same for finite numbers, up to rounding. The root of minus infinity is no number, its power 0.5 infinity.

## Source
Rows E03b, E04, E10 and U03 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._scalars import number_like
from orinport.rewrites.catalogue.layer_norm_to_pow import why_no_power
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "SqrtToPow"]


class SqrtToPow(Rewrite):
    """A square root becomes a power."""

    name = "sqrt-to-pow"
    safety = Safety.TOLERANCE
    finite = True
    op_types = ("Sqrt",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if context.shape(node.inputs[0]) is None:
            return Refusal("the shape is not known")
        if not context.is_float(node.inputs[0]):
            return Refusal(f"the DLA does not compute in {context.dtype(node.inputs[0])}")
        reason = why_no_power(context)
        return Refusal(reason) if reason else Match((node,), (node.outputs[0],))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        value = match.nodes[0].inputs[0]
        assert value is not None
        return (builder.op("Pow", value, number_like(builder, value, 0.5)),)


REWRITE = SqrtToPow()
