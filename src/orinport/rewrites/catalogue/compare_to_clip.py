"""`Cast(Greater(x, y)) -> Clip(32768 Clip(32768 Clip(x - y)))`, to 0 and 1: comparisons as numbers.

## What it does
A Cast to numbers of comparisons, and of And, Or, Xor and Not of them, becomes arithmetic: the difference of the
operands is clipped to 0 and 1, and twice multiplied by 2^15 and clipped again. Less takes the difference the other way
round, Equal its absolute value; GreaterOrEqual, LessOrEqual and Equal are 1 less the result. Logic is products, maxima
and differences of that.

## Why
The DLA compares in INT8 only, from TensorRT 10.3 on (Equal from 8.5 on, on DRIVE all from 8.6.12 on), and only if a
Cast to FP16 follows. Differences, products and clips from 0 on it takes in every version and precision.

## Example
`x * Cast(Greater(x, 0.5))`: Sub, Clip, Mul, Clip, Mul, Clip and Mul.

## Refused
Comparisons of integers; shapes that are not known; trees of more than 64 nodes. Truth values that something else than
a Cast reads stay as they are for it; `where-to-arithmetic` puts such a Cast behind the condition of a Where.

## Safety
tolerance: the same for finite numbers that are equal or at least 2^-30 apart: closer ones give a number between 0 and
1. FP16, in which the DLA computes, tells numbers apart from 2^-24 on, so there the result is always 0 or 1. NaN, which
no comparison holds for, would stay NaN.

## Source
Rows A01a, A03a, E01, E02, K01a to K02 and K11 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from orinport.rewrites.catalogue._steps import compared
from orinport.rewrites.catalogue.logic_to_arithmetic import LOGIC, as_number, combined
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["COMPARISONS", "REWRITE", "CompareToClip"]

COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_LARGEST = 64
"""Nodes of a tree of comparisons and logic."""


class CompareToClip(Rewrite):
    """A comparison becomes a difference, amplified and clipped."""

    name = "compare-to-clip"
    safety = Safety.TOLERANCE
    finite = True
    op_types = ("Cast",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        truth = node.inputs[0]
        if truth is None or context.dtype(truth) is not ir.DataType.BOOL or not context.is_float(node.outputs[0]):
            return None
        tree = _tree(truth, context)
        if not any(each.op_type in COMPARISONS for each in tree):
            return None
        if len(tree) > _LARGEST:
            return Refusal(f"it would take more than {_LARGEST} comparisons and logic apart")
        if any(context.shape(value) is None for each in tree for value in each.inputs):
            return Refusal("the shape is not known")
        if not any(_is_float(each, context) for each in tree):
            return Refusal("it compares integers or truth values, and the DLA has none")
        return Match((node, *tree), (node.outputs[0],), truth)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        dtype = builder.context.dtype(match.outputs[0])
        assert dtype is not None
        return (_number(match.data, dtype, {}, builder),)


def _tree(truth: ir.Value, context: RewriteContext) -> list[ir.Node]:
    """Comparisons and logic that lead to a truth value, up to one more than the largest tree."""
    found: dict[ir.Node, None] = {}
    stack = [truth]
    while stack and len(found) <= _LARGEST:
        node = stack.pop().producer()
        if node is None or node in found or node.graph is not context.graph or not context.standard(node):
            continue
        if node.op_type in COMPARISONS:
            found[node] = None
        elif node.op_type in LOGIC:
            found[node] = None
            stack.extend(value for value in node.inputs if value is not None)
    return list(found)


def _is_float(node: ir.Node, context: RewriteContext) -> bool:
    return (
        node.op_type in COMPARISONS
        and context.is_float(node.inputs[0])
        and not all(map(context.is_constant, node.inputs))
    )


def _number(truth: ir.Value, dtype: ir.DataType, done: dict[ir.Value, ir.Value], builder: Builder) -> ir.Value:
    """A truth value as 0 and 1 in `dtype`; what cannot be taken apart is cast."""
    if truth not in done:
        done[truth] = _made(truth, dtype, done, builder)
    return done[truth]


def _made(truth: ir.Value, dtype: ir.DataType, done: dict[ir.Value, ir.Value], builder: Builder) -> ir.Value:
    node, context = truth.producer(), builder.context
    if context.is_constant(truth) or node is None or node.graph is not context.graph or not context.standard(node):
        return as_number(builder, truth, dtype)
    operands = [value for value in node.inputs if value is not None]
    if _is_float(node, context):
        result = compared(node.op_type, operands[0], operands[1], builder)
        return result if context.dtype(result) is dtype else builder.op("Cast", result, to=int(dtype))
    if node.op_type not in LOGIC:
        return as_number(builder, truth, dtype)
    return combined(node.op_type, [_number(value, dtype, done, builder) for value in operands], builder)


REWRITE = CompareToClip()
