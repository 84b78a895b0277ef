"""`Linear1(x), Linear2(x), ... -> Split(Linear(x))`: linear layers that read one tensor as one layer.

## What it does
Linear layers (MatMul with constant weights, with or without a constant Add behind it, or Gemm) that read the same
tensor become one, whose weights are theirs side by side; a Split gives each its columns back. A bias that one of
them lacks is zero. Weights that are shared with other layers stay as they are: new ones are made.

## Why
One wide product reads its input once and fills a GPU better than several narrow ones. It pays where the Split
disappears, because the reader takes the undivided result: so `fuse-dcnv4-projections` does.

## Example
Query, key and value of an attention layer, `(197, 384) x (384, 384)` three times, become one
`(197, 384) x (384, 1152)` and a Split.

## Refused
Layers on tensors of different contents.

## Safety
exact: the same products, summed in the order that the runtime takes for the wider matrix. Applied on request only: the
DLA gains nothing by it, and the Split may cost more than the products save.

## Source
NVIDIA/DL4AGX, AV-Solutions/dcnv4-trt, which does it for the two projections of DCNv4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._linear import Linear, build_linear, linear_at, moves_to, same_tensor
from orinport.rewrites.rewrite import Match, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "FuseParallelLinear"]


class FuseParallelLinear(Rewrite):
    """Linear layers on one tensor become one layer and a Split."""

    name = "fuse-parallel-linear"
    safety = Safety.EXACT
    op_types = ("MatMul", "Gemm")
    on_request = True

    def match(self, node: ir.Node, context: RewriteContext) -> Match | None:
        first = linear_at(node, context)
        if first is None or context.opset < 13:
            return None
        parts = [linear for each in _readers(first.source, context) if (linear := linear_at(each, context)) is not None]
        parts = [part for part in parts if _fits(part, first, context)]
        if len(parts) < 2 or parts[0].nodes[0] is not node:
            return None
        moves = moves_to([part.source for part in parts], context)
        nodes = (*moves, *(each for part in parts for each in part.nodes))
        return Match(nodes, tuple(part.output for part in parts), parts)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        parts: list[Linear] = match.data
        whole = build_linear(builder, parts)
        first = builder.op(
            "Split",
            whole,
            builder.ints([part.columns for part in parts]),
            outputs=len(parts),
            axis=(builder.context.rank(whole) or 0) - 1,
        )
        producer = first.producer()
        assert producer is not None
        return producer.outputs


def _readers(value: ir.Value, context: RewriteContext) -> list[ir.Node]:
    """Nodes that read `value`, or an equal reshape of what it was reshaped from, in the order of the graph."""
    roots = {value}
    producer = value.producer()
    if producer is not None and producer.op_type == "Reshape" and producer.inputs[0] is not None:
        siblings = (use.node for use in producer.inputs[0].uses())
        roots |= {each.outputs[0] for each in siblings if each.op_type == "Reshape"}
    found = {use.node for root in roots if same_tensor(root, value, context) for use in root.uses()}
    return [node for node in context.graph if node in found]


def _fits(part: Linear, first: Linear, context: RewriteContext) -> bool:
    return (
        same_tensor(part.source, first.source, context)
        and part.inner == first.inner
        and context.dtype(part.weight) == context.dtype(first.weight)
        and context.dtype(part.output) == context.dtype(first.output)
    )


REWRITE = FuseParallelLinear()
