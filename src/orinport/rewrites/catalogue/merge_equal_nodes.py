"""`f(x), f(x) -> f(x)`: the same computation on the same operands is done once.

## What it does
Two nodes of one operator with equal attributes that read the same values, or constants of equal content, become one.

## Why
Each is a layer. Rewrites make such pairs too: three projections of one tensor each bring it into the same form.

## Example
Query, key and value projections of a transformer: the transposes before the three convolutions become one.

## Refused
Operators that draw random numbers, hold subgraphs or are in training mode are left alone; results that are both outputs
of the network stay two.

## Safety
exact: bit-equal.

## Source
ONNX operator specification: nodes without state give equal results for equal operands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "MergeEqualNodes"]

_ELEMENTS = 1024
"""Constants up to this size are compared by content."""


class MergeEqualNodes(Rewrite):
    """Equal nodes become one."""

    name = "merge-equal-nodes"
    safety = Safety.EXACT
    op_types = (
        "Abs", "Add", "AveragePool", "BatchNormalization", "Cast", "Clip", "Concat", "Conv", "ConvTranspose", "Div",
        "Exp", "Expand", "Flatten", "Gather", "Gemm", "MatMul", "Max", "MaxPool", "Min", "Mul", "Neg", "Pad", "Pow",
        "ReduceMean", "ReduceSum", "Relu", "Reshape", "Resize", "Sigmoid", "Slice", "Softmax", "Sqrt", "Squeeze", "Sub",
        "Tanh", "Transpose", "Unsqueeze",
    )  # fmt: skip

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        first = next((value for value in node.inputs if value is not None and not context.is_constant(value)), None)
        if first is None or len(node.outputs) > 1:
            return None
        for other in context.consumers(first):
            if other is node or other.graph is not context.graph or not _equal(node, other, context):
                continue
            one, two = sorted((node.outputs[0], other.outputs[0]), key=context.is_output)
            if not context.is_output(one):  # the last keeps its name
                return Match((node, other), (one, two))
        return None

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, output = match.nodes[0], match.outputs[0]
        merged = builder.copy(node, tuple(node.inputs), builder.shape(output))
        return (merged, merged)


def _equal(node: ir.Node, other: ir.Node, context: RewriteContext) -> bool:
    if node.op_type != other.op_type or node.domain != other.domain or len(other.outputs) > 1:
        return False
    if len(node.inputs) != len(other.inputs) or node.attributes.keys() != other.attributes.keys():
        return False
    if any(node.attributes[name].value != other.attributes[name].value for name in node.attributes):
        return False
    if any(attribute.type == ir.AttributeType.TENSOR for attribute in node.attributes.values()):
        return False
    return all(_same(mine, its, context) for mine, its in zip(node.inputs, other.inputs, strict=True))


def _same(first: ir.Value | None, second: ir.Value | None, context: RewriteContext) -> bool:
    if first is second:
        return True
    one, two = context.constant_tensor(first), context.constant_tensor(second)
    if one is None or two is None or one.dtype != two.dtype or one.size > _ELEMENTS or one.size != two.size:
        return False
    a, b = one.numpy(), two.numpy()
    return a.shape == b.shape and np.array_equal(a.view(np.uint8) if a.ndim else a, b.view(np.uint8) if b.ndim else b)


REWRITE = MergeEqualNodes()
