"""`TopK(x, 1) -> ReduceMax(x)`: the largest value alone, without its place.

## What it does
TopK with k = 1 of which only the values are used becomes a ReduceMax, or a ReduceMin for the smallest, over the same
axis.

## Why
TopK is no layer of the DLA. Maxima are from TensorRT 10.3 on, and pools do the same before.

## Example
The score of the best class, `TopK(x, 1, axis=1)`: `ReduceMax(x, axis=1)`.

## Refused
k above 1, for `topk-to-max-min`, or known at run time only; places that are used, because the DLA returns no integers
(ArgMax has no form on it for the same reason); integers.

## Safety
exact: bit-equal for all but NaN, for which ONNX leaves the order open.

## Source
Rows Q01a, Q01b and X01b of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "TopkToReduceMax", "chosen_count"]

_AXES_AS_INPUT = 18


class TopkToReduceMax(Rewrite):
    """The first of the largest becomes a maximum."""

    name = "topk-to-reduce-max"
    safety = Safety.EXACT
    op_types = ("ArgMax", "TopK")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if node.op_type == "ArgMax":
            return Refusal("the DLA returns no places: its results are FP16 or INT8")
        value = node.inputs[0]
        if not context.is_float(value) or context.shape(value) is None:
            return Refusal("the DLA computes in floating-point types, on shapes that are known")
        count = chosen_count(node, context)
        if isinstance(count, Refusal):
            return count
        return Match((node,), (node.outputs[0],)) if count == 1 else None

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, context = match.nodes[0], builder.context
        axis = int(context.attribute(node, "axis", -1))
        op_type = "ReduceMax" if context.attribute(node, "largest", 1) else "ReduceMin"
        if context.opset < _AXES_AS_INPUT:
            return (builder.op(op_type, node.inputs[0], axes=[axis], keepdims=1),)
        return (builder.op(op_type, node.inputs[0], builder.ints([axis], "axes"), keepdims=1),)


def chosen_count(node: ir.Node, context: RewriteContext) -> int | Refusal:
    """k of a TopK of which only the values are used."""
    count = context.attribute(node, "k")
    if len(node.inputs) > 1:
        numbers = context.constant(node.inputs[1])
        if numbers is None:
            return Refusal("k is known at run time only")
        count = int(numbers.reshape(-1)[0])
    places = node.outputs[1]
    if places.uses() or context.is_output(places):
        return Refusal("the places are used, and the DLA returns no integers")
    return int(count)


REWRITE = TopkToReduceMax()
