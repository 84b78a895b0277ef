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

from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "MergeEqualNodes"]

Signature = tuple[Any, ...]

_ELEMENTS = 1024
"""Constants up to this size are compared by content."""
_COMPARED = (
    ir.AttributeType.FLOAT,
    ir.AttributeType.INT,
    ir.AttributeType.STRING,
    ir.AttributeType.FLOATS,
    ir.AttributeType.INTS,
    ir.AttributeType.STRINGS,
)


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
        for other in _twins(node, first, context):
            one, two = sorted((node.outputs[0], other.outputs[0]), key=context.is_output)
            if not context.is_output(one):  # the last keeps its name
                return Match((node, other), (one, two))
        return None

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, output = match.nodes[0], match.outputs[0]
        merged = builder.copy(node, tuple(node.inputs), builder.shape(output))
        return (merged, merged)


def _twins(node: ir.Node, first: ir.Value, context: RewriteContext) -> list[ir.Node]:
    """Other nodes that read `first` and are equal to `node`: none if all are outputs of the network, as `node` is."""
    key = (REWRITE.name, first)
    groups: dict[Signature, tuple[list[ir.Node], list[ir.Node]]]
    changes, groups = context.memo.get(key, (-1, {}))
    if changes != context.changes:
        groups = {}
        for consumer in context.consumers(first):
            if consumer.graph is context.graph and len(consumer.outputs) == 1:
                inside, outputs = groups.setdefault(_signature(consumer, context), ([], []))
                (outputs if context.is_output(consumer.outputs[0]) else inside).append(consumer)
        context.memo[key] = (context.changes, groups)
    inside, outputs = groups.get(_signature(node, context), ([], []))
    if context.is_output(node.outputs[0]):
        return inside
    return [*(other for other in inside[:2] if other is not node), *outputs[:1]]


def _signature(node: ir.Node, context: RewriteContext) -> Signature:
    """What equal nodes have in common. A node's operator and attributes never change, its inputs may."""
    key = (REWRITE.name, node)
    inputs, signature = context.memo.get(key, (None, None))
    if signature is None or inputs != node.inputs:
        attributes = [(name, each.type, each.value) for name, each in sorted(node.attributes.items())]
        known = all(kind in _COMPARED for _, kind, _ in attributes)
        operands = tuple(_operand(value, context) for value in node.inputs)
        own: Signature = (
            node.domain,
            node.op_type,
            tuple((name, kind, tuple(v) if isinstance(v, list) else v) for name, kind, v in attributes),
            operands,
        )
        signature = own if known else (node,)
        context.memo[key] = (node.inputs, signature)
    found: Signature = signature
    return found


def _operand(value: ir.Value | None, context: RewriteContext) -> Signature:
    """The value itself, or the content of a small constant."""
    tensor = context.constant_tensor(value)
    if tensor is None or tensor.size > _ELEMENTS:
        return (value,)
    return (tensor.dtype, tuple(tensor.shape), tensor.numpy().tobytes())


REWRITE = MergeEqualNodes()
