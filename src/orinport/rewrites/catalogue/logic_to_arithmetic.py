"""`And(a, b) -> Cast(Mul(Cast(a), Cast(b)))`: logic as arithmetic with 0 and 1.

## What it does
And, Or, Xor and Not on truth values become arithmetic on values of 0 and 1: a product, a maximum, the absolute
difference, and 1 less the value. A Cast to numbers behind them is replaced together with all logic in front of it;
where truth values are needed, Casts before and after keep the types.

## Why
The DLA has no logic on truth values; products, maxima and differences it takes.

## Example
`And(Greater(x, 0), Less(x, 1))`: the comparisons are cast to FP32 and multiplied.

## Refused
Shapes that are not known; constants on both sides, which are folded.

## Safety
exact: 0 and 1 are exact in every type, and so are the results.

## Source
Rows E01, E02, K03, K11 and U01a of the acceptance catalogue; NVIDIA/Deep-Learning-Accelerator-SW, operators/README.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from orinport.rewrites.piece import in_order
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["LOGIC", "REWRITE", "LogicToArithmetic", "as_number", "becomes_number", "combined"]


_LARGEST = 64
"""Nodes of logic in front of one Cast."""
LOGIC = ("And", "Not", "Or", "Xor")


class LogicToArithmetic(Rewrite):
    """Logic becomes arithmetic."""

    name = "logic-to-arithmetic"
    safety = Safety.EXACT
    op_types = (*LOGIC, "Cast")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if node.op_type == "Cast":
            tree = _tree(node, context)
            return Match((node, *tree), (node.outputs[0],)) if tree else None
        if becomes_number(node.outputs[0], context):
            return None
        if all(context.is_constant(value) for value in node.inputs):
            return Refusal("it is constant")
        if any(context.shape(value) is None for value in node.inputs):
            return Refusal("the shape is not known")
        return Match((node,), (node.outputs[0],))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, tree = match.nodes[0], match.nodes[1:]
        if not tree:
            numbers = [as_number(builder, value) for value in node.inputs if value is not None]
            result = combined(node.op_type, numbers, builder)
            return (builder.op("Cast", result, to=int(ir.DataType.BOOL)),)
        dtype = builder.context.dtype(match.outputs[0])
        assert dtype is not None
        made: dict[ir.Value, ir.Value] = {}
        for each in in_order(tree):
            operands = [value for value in each.inputs if value is not None]
            for value in operands:
                if value not in made:
                    made[value] = as_number(builder, value, dtype)
            made[each.outputs[0]] = combined(each.op_type, [made[value] for value in operands], builder)
        truth = node.inputs[0]
        assert truth is not None
        return (made[truth],)


def becomes_number(value: ir.Value, context: RewriteContext) -> bool:
    """Nothing but Casts to numbers reads the truth value, at once or behind more logic, or what becomes such a Cast."""
    stack, seen = [value], {value}
    while stack:
        current = stack.pop()
        if context.is_output(current) or len(seen) > _LARGEST:
            return False
        for reader in context.consumers(current):
            result = reader.outputs[0]
            if reader.graph is not context.graph or not context.standard(reader):
                return False
            if reader.op_type in LOGIC:
                if result not in seen:
                    seen.add(result)
                    stack.append(result)
            elif not context.is_float(result) or not (
                reader.op_type == "Cast" or (reader.op_type == "Where" and Safety.TOLERANCE in context.consent)
            ):
                return False
    return True


def _tree(cast: ir.Node, context: RewriteContext) -> list[ir.Node]:
    """The logic in front of a Cast to numbers; empty if there is none, or too much."""
    if not context.is_float(cast.outputs[0]):
        return []
    found: dict[ir.Node, None] = {}
    stack = [cast.inputs[0]]
    while stack:
        value = stack.pop()
        node = None if value is None else value.producer()
        if node is None or node in found or node.op_type not in LOGIC:
            continue
        if not context.standard(node) or node.graph is not context.graph:
            continue
        if any(context.shape(each) is None for each in node.inputs) or len(found) >= _LARGEST:
            return []
        found[node] = None
        stack.extend(node.inputs)
    return list(found)


def combined(op_type: str, numbers: Sequence[ir.Value], builder: Builder) -> ir.Value:
    """The logic of ONNX of that name, on 0 and 1."""
    if op_type == "Not":
        return builder.op("Sub", builder.like(numbers[0], 1.0), numbers[0])
    if op_type == "Xor":
        return builder.op("Abs", builder.op("Sub", *numbers))
    return builder.op("Mul" if op_type == "And" else "Max", *numbers)


def as_number(builder: Builder, value: ir.Value, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Value:
    """A truth value as 0 and 1; a constant as a constant."""
    constant = builder.context.constant(value)
    if constant is not None:
        return builder.constant(constant.astype(dtype.numpy()), "mask")
    return builder.op("Cast", value, to=int(dtype))


REWRITE = LogicToArithmetic()
