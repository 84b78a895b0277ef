"""Operators that work on each element alone, and how their operands move with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._constants import shrink
from orinport.rewrites.rewrite import Refusal

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext
    from orinport.rewrites.shuffle import Shuffle

__all__ = ["POINTWISE", "from_shape", "moved_constant", "operands", "refused_input"]

POINTWISE = (
    "Abs", "Add", "Cast", "Ceil", "Celu", "Clip", "Cos", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid",
    "HardSwish", "Identity", "LeakyRelu", "Log", "Max", "Mean", "Min", "Mish", "Mul", "Neg", "Pow", "PRelu",
    "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum",
    "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip

_BROADCASTS = frozenset({"Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "PRelu", "Sub", "Sum"})


def operands(node: ir.Node, context: RewriteContext) -> list[ir.Value] | None:
    """The run-time operands of a pointwise node if each has the shape of the result; else None.

    Dimensions of 1 in front may be left out, as broadcasting allows.
    """
    result = context.shape(node.outputs[0])
    values = [value for value in node.inputs if value is not None and not context.is_constant(value)]
    if result is None or not values:
        return None
    for value in values:
        shape = context.shape(value)
        if shape is None or (1,) * (len(result) - len(shape)) + shape != result:
            return None
    return values


def refused_input(node: ir.Node, context: RewriteContext) -> Refusal | None:
    """Why a function of each element cannot be written by others: an input of unknown shape, or of integers."""
    if context.shape(node.inputs[0]) is None:
        return Refusal("the shape is not known")
    if not context.is_float(node.inputs[0]):
        return Refusal(f"the DLA does not compute in {context.dtype(node.inputs[0])}")
    return None


def from_shape(shuffle: Shuffle, shape: tuple[int, ...]) -> Shuffle:
    """The same rearrangement of elements, of a tensor of another shape."""
    return type(shuffle).make(shape, shuffle.expand, shuffle.perm, shuffle.shape)


def moved_constant(node: ir.Node, value: ir.Value, shuffle: Shuffle, builder: Builder) -> ir.Value:
    """A constant operand of `node` for the place where its result was moved by `shuffle`."""
    array = builder.context.constant(value)
    assert array is not None
    if node.op_type not in _BROADCASTS:
        return value  # bounds of Clip and the like
    if array.size == 1:
        return builder.constant(array.reshape(()))
    return builder.constant(shrink(shuffle.apply(np.broadcast_to(array, shuffle.before))))
