"""`Identity(x) -> x`: nodes that give their input unchanged go away.

## What it does
Removes Identity; Dropout as it is at inference; Cast to the type that the value has; Concat, Sum, Mean, Max and Min of
one input; Expand to the same shape; Pad by nothing; Slice of everything.

## Why
Each becomes a layer that the DLA may not take (a cast, a one-input concatenation, a fill), and splits a loadable.

## Example
`Dropout(x, ratio=0.5)` between two convolutions: both are now joined directly.

## Refused
Dropout whose mask is used or that is in training mode; a node that joins an input of the network to an output, where
something has to stay between them.

## Safety
exact: bit-equal.

## Source
ONNX operator specification, Dropout, Identity; MSG07 of the builder on one-input concatenation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "RemoveIdentity"]

_OF_ONE = ("Concat", "Sum", "Mean", "Max", "Min")


class RemoveIdentity(Rewrite):
    """Nodes that change nothing are removed."""

    name = "remove-identity"
    safety = Safety.EXACT
    op_types = ("Identity", "Dropout", "Cast", "Expand", "Pad", "Slice", *_OF_ONE)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value, output = node.inputs[0], node.outputs[0]
        if value is None or context.is_constant(value):
            return None
        if node.op_type == "Dropout":
            refusal = _trains(node, context)
            if refusal is not None:
                return refusal
        elif not _changes_nothing(node, value, context):
            return None
        shape = context.shape(value)
        if shape is None or shape != context.shape(output) or context.dtype(value) != context.dtype(output):
            return Refusal("shape or type is not known") if node.op_type in ("Identity", "Dropout") else None
        return Match((node,), (output,), value)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:  # noqa: ARG002
        return (match.data,)


def _trains(node: ir.Node, context: RewriteContext) -> Refusal | None:
    if len(node.outputs) > 1 and (node.outputs[1].uses() or context.is_output(node.outputs[1])):
        return Refusal("the mask of Dropout is used")
    mode = context.input(node, 2)
    if mode is None:
        return None
    value = context.constant(mode)
    if value is None:
        return Refusal("whether Dropout is in training mode is known at run time only")
    return Refusal("Dropout is in training mode") if bool(value.reshape(-1)[0]) else None


def _changes_nothing(node: ir.Node, value: ir.Value, context: RewriteContext) -> bool:
    if node.op_type in _OF_ONE:
        return len(node.inputs) == 1
    if node.op_type in ("Identity", "Cast", "Expand"):
        return True  # equal shape and type are checked for all
    if node.op_type == "Slice":
        return context.shape(value) == context.shape(node.outputs[0]) and not _steps_back(node, context)
    pads = context.constant(context.input(node, 1)) if context.opset >= 11 else context.attribute(node, "pads")
    return pads is not None and not any(int(pad) for pad in pads)


def _steps_back(node: ir.Node, context: RewriteContext) -> bool:
    """A Slice of equal shape may still reverse a dimension."""
    given = context.input(node, 4)
    if given is None:
        return False
    steps = context.constant(given)
    return steps is None or bool((steps < 0).any())


REWRITE = RemoveIdentity()
