"""`Clip(x, 0) -> Relu(x)`: a clip with one bound as Relu, Max or Min.

## What it does
A Clip of which only one bound is given (the export of `clamp(min=0)`) becomes a Relu, or a Max or Min with a
constant.

## Why
The DLA's own clip ends at a number from 1 to 127; the missing bound of ONNX is the largest number of the type.

## Example
`Clip(x, 0, none)` is `Relu(x)`.

## Refused
Bounds known at run time only; integers; below opset 12 FP16 where Max or Min is needed.

## Safety
tolerance: the same for finite numbers. ONNX makes the largest finite number of an infinity on the open side, which here
stays an infinity.

## Source
Rows A01a, A03a and E01 of the acceptance catalogue; ONNX, operator Clip: the default of a bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from orinport.rewrites.catalogue.clip_to_min_max import HALF_MAXIMA, clip_bounds
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ClipToRelu"]


class ClipToRelu(Rewrite):
    """A clip with one bound becomes a Relu, Max or Min."""

    name = "clip-to-relu"
    safety = Safety.TOLERANCE
    finite = True
    op_types = ("Clip",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if not context.is_float(node.inputs[0]):
            return Refusal(f"the DLA does not compute in {context.dtype(node.inputs[0])}")
        bounds = clip_bounds(node, context)
        if isinstance(bounds, Refusal):
            return bounds
        if (bounds[0] is None) == (bounds[1] is None):
            return None
        half = context.opset < HALF_MAXIMA and context.dtype(node.inputs[0]) != ir.DataType.FLOAT
        if half and bounds[0] != 0.0:
            return Refusal(f"below opset {HALF_MAXIMA} Max and Min do not take {context.dtype(node.inputs[0])}")
        return Match((node,), (node.outputs[0],), bounds)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        low, high = match.data
        value = match.nodes[0].inputs[0]
        assert value is not None
        if low == 0.0:
            return (builder.op("Relu", value),)
        op_type, bound = ("Max", low) if low is not None else ("Min", high)
        return (builder.op(op_type, value, builder.like(value, bound)),)


REWRITE = ClipToRelu()
