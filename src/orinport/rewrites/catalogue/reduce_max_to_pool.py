"""`ReduceMax(x, channels) -> MaxPool(Transpose(x))`: maxima and minima over any of channels, height and width.

## What it does
Channels are moved to the height and pooled there, in a chain of windows within the limit. ReduceMin is the negative of
the maximum of the negative. Tensors of other ranks are reshaped so that what is reduced stands as channels, height or
width of a 4-D tensor.

## Why
Before TensorRT 8.6.12 the DLA takes no reduction, later a maximum only.

## Example
`ReduceMax((1, 64, 28, 28), axes=1)`: Transpose, two max pools of 8x1, Transpose.

## Refused
Reductions over the batch; axes that are not constant; kept and reduced dimensions that alternate more often than a 4-D
tensor has dimensions; integers; dimensions above the DLA's limit; values that may all be -inf (for ReduceMin +inf),
which a max pool does not keep. ReduceMax over height and width is left to reduce-to-pool.

## Safety
exact: bit-equal.

## Source
Rows F01, P02, Q01a, Q01b, Q01c and Q01e of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._infinity import may_be_minus_infinity
from orinport.rewrites.catalogue._reductions import Reduction, maximum, on_board, read_reduction
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ReduceMaxToPool"]


class ReduceMaxToPool(Rewrite):
    """Maxima and minima become max pools."""

    name = "reduce-max-to-pool"
    safety = Safety.EXACT
    op_types = ("ReduceMax", "ReduceMin")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        reduction = read_reduction(node, "pools", context)
        if not isinstance(reduction, Reduction):
            return reduction
        if node.op_type == "ReduceMax" and len(reduction.shape) in (3, 4) and min(reduction.axes) >= 2:
            return None
        if may_be_minus_infinity(reduction.value, context):
            return Refusal("the values may all be infinite, which a max pool does not keep")
        return on_board(node, reduction, context)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, data = match.nodes[0], match.data
        value = builder.shuffle(data.source, data.into)
        lowest = node.op_type == "ReduceMin"
        if lowest:
            value = builder.op("Mul", value, builder.like(value, -1.0))
        _, _, height, width = builder.shape(value)
        channels, tall, wide = data.reduced
        value = maximum(value, (height if tall else 1, width if wide else 1), builder)
        if channels:
            value = builder.transpose(value, (0, 2, 1, 3))
            value = maximum(value, (builder.shape(value)[2], 1), builder)
            value = builder.transpose(value, (0, 2, 1, 3))
        if lowest:
            value = builder.op("Mul", value, builder.like(value, -1.0))
        return (builder.reshape(value, builder.shape(match.outputs[0])),)


REWRITE = ReduceMaxToPool()
