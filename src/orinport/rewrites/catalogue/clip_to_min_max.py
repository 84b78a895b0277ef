"""`Clip(x, -1, 1) -> Min(Max(x, -1), 1)`: clips with any bounds.

## What it does
A Clip whose two bounds the DLA's own activation does not have becomes a Max and a Min with one constant each; from 0 on
a Relu takes the place of the Max.

## Why
The DLA's clip goes from 0 to a number from 1 to 127; maxima and minima with a constant take any.

## Example
`Clip(x, -128, 127)` of an emulated quantisation; `Clip(x, 0, 0.5)`.

## Refused
Bounds known at run time only; integers; below opset 12 FP16, because Max and Min do not take it there.

## Safety
exact: bit-equal. Where the lower bound is above the upper one, all elements are the upper one, as ONNX defines it. A
Clip with one bound is for `clip-to-relu`.

## Source
Rows A03a, A03b, E01 and E09 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["HALF_MAXIMA", "REWRITE", "ClipToMinMax", "clip_bounds"]

HALF_MAXIMA = 12
"""Opset from which Max and Min take FP16."""


class ClipToMinMax(Rewrite):
    """A clip becomes Relu, Max or Min."""

    name = "clip-to-min-max"
    safety = Safety.EXACT
    op_types = ("Clip",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if not context.is_float(node.inputs[0]):
            return Refusal(f"the DLA does not compute in {context.dtype(node.inputs[0])}")
        bounds = clip_bounds(node, context)
        if isinstance(bounds, Refusal):
            return bounds
        low, high = bounds
        if low is None or high is None:
            return None
        smallest, largest = (float(context.limit("A03a", key)) for key in ("min", "max"))
        if low == 0.0 and smallest <= high <= largest:
            return None
        if context.opset < HALF_MAXIMA and context.dtype(node.inputs[0]) != ir.DataType.FLOAT:
            return Refusal(f"below opset {HALF_MAXIMA} Max and Min do not take {context.dtype(node.inputs[0])}")
        return Match((node,), (node.outputs[0],), bounds)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        low, high = match.data
        value = match.nodes[0].inputs[0]
        assert value is not None
        raised = builder.op("Relu", value) if low == 0.0 else builder.op("Max", value, builder.like(value, low))
        return (builder.op("Min", raised, builder.like(value, high)),)


def clip_bounds(node: ir.Node, context: RewriteContext) -> tuple[float | None, float | None] | Refusal:
    """The bounds of a Clip; None for one that is not given, or is infinite."""
    found: list[float | None] = []
    for place, name in ((1, "min"), (2, "max")):
        given: Any = context.attribute(node, name)
        operand = context.input(node, place)
        if operand is not None:
            constant = context.constant(operand)
            if constant is None:
                return Refusal("a bound is known at run time only")
            given = float(constant.reshape(-1)[0])
        if given is not None and np.isnan(given):
            return Refusal("a bound is no number")
        found.append(None if given is None or np.isinf(given) else float(given))
    return found[0], found[1]


REWRITE = ClipToMinMax()
