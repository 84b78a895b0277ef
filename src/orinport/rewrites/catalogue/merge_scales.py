"""`Add(Mul(BatchNormalization(x))) -> BatchNormalization(x)`: scales and shifts in a row become one.

## What it does
Two or more of BatchNormalization, Mul, Div, Add and Sub in a row, each with one constant a channel, become one
BatchNormalization with their product and sum, mean 0 and variance 1.

## Why
Each is a layer with a pass over the whole tensor; BatchNormalization is one Scale layer.

## Example
The BatchNormalization, Mul and Add of networks that come from Caffe: DenseNet has one before every convolution.

## Refused
Constants that are not one value a channel; results in between that something else reads are left alone; a product that
is too large for its type.

## Safety
exact: the constants are multiplied beforehand.

## Source
Rows S01 and X06 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._affine import AFFINE, Affine, affine, as_type, chain_of
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "MergeScales"]


class MergeScales(Rewrite):
    """Scales and shifts in a row become one BatchNormalization."""

    name = "merge-scales"
    safety = Safety.EXACT
    op_types = AFFINE

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value = next((each for each in node.inputs if each is not None and not context.is_constant(each)), None)
        if value is None or not context.is_float(value) or context.opset < 9:
            return None
        if not isinstance(affine(node, value, context), Affine):
            return None
        nodes, change = chain_of(node, value, context)
        if len(nodes) < 2 or context.shape(nodes[-1].outputs[0]) is None:
            return None
        return Match(tuple(nodes), (nodes[-1].outputs[0],), change)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        change: Affine = match.data
        output = match.outputs[0]
        channels, dtype = builder.shape(output)[1], builder.numpy_dtype(output)
        parts = (change.factor, change.shift, np.zeros(1), np.ones(1))
        constants = [
            builder.constant(as_type(np.broadcast_to(part, (channels,)), dtype), name)
            for part, name in zip(parts, ("scale", "shift", "mean", "variance"), strict=True)
        ]
        return (
            builder.op(
                "BatchNormalization",
                change.value,
                *constants,
                epsilon=0.0,
                shape=builder.shape(output),
                dtype=builder.context.dtype(output),
            ),
        )


REWRITE = MergeScales()
