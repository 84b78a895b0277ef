"""What scales and shifts each channel of a tensor: BatchNormalization, and arithmetic with one constant a channel."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.rewrites.builder import RefusedError
from orinport.rewrites.rewrite import Refusal

if TYPE_CHECKING:
    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.context import RewriteContext

__all__ = ["AFFINE", "Affine", "affine", "as_type", "chain_of"]

AFFINE = ("Add", "BatchNormalization", "Div", "Mul", "Sub")


@dataclass(frozen=True, slots=True)
class Affine:
    """`factor * x + shift` for each channel of `value`; both have one value or one a channel, in FP64."""

    value: ir.Value
    factor: NDArray[np.float64]
    shift: NDArray[np.float64]

    def then(self, other: Affine) -> Affine:
        """Both, one after the other."""
        return Affine(self.value, self.factor * other.factor, self.shift * other.factor + other.shift)


def affine(node: ir.Node, value: ir.Value, context: RewriteContext) -> Affine | Refusal | None:
    """What `node` does to each channel of `value`; None if it computes with two run-time operands."""
    shape = context.shape(value)
    if shape is None or len(shape) < 3:
        return None
    if node.op_type == "BatchNormalization":
        return _normalization(node, value, context)
    other = node.inputs[1] if node.inputs[0] is value else node.inputs[0]
    constant = context.constant(other)
    if constant is None:
        return None
    values = _per_channel(constant, shape)
    if values is None or context.shape(node.outputs[0]) != shape:
        return Refusal(f"the constant of shape {list(constant.shape)} is not one value a channel")
    one, zero = np.ones(1), np.zeros(1)
    if node.op_type == "Mul":
        return Affine(value, values, zero)
    if node.op_type == "Add":
        return Affine(value, one, values)
    first = node.inputs[0] is value
    if node.op_type == "Sub":
        return Affine(value, one, -values) if first else Affine(value, -one, values)
    if not first:
        return Refusal("the value divides")
    return Affine(value, 1.0 / values, zero) if values.all() else Refusal("it divides by 0")


def _per_channel(constant: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float64] | None:
    """The constant as one value, or one for each channel; None if it is neither."""
    if constant.ndim > len(shape):
        return None
    dims = (1,) * (len(shape) - constant.ndim) + constant.shape
    if prod(dims) != dims[1] or dims[1] not in (1, shape[1]):
        return None
    return constant.reshape(-1).astype(np.float64)


def _normalization(node: ir.Node, value: ir.Value, context: RewriteContext) -> Affine | Refusal | None:
    if node.inputs[0] is not value:
        return None
    if context.attribute(node, "training_mode", 0) or any(
        output.uses() or context.is_output(output) for output in node.outputs[1:]
    ):
        return Refusal("BatchNormalization is in training mode")
    if not context.attribute(node, "spatial", 1):
        return Refusal("BatchNormalization has statistics for each position")
    parts = [context.constant(each) for each in node.inputs[1:5]]
    if any(part is None for part in parts):
        return Refusal("the statistics are known at run time only")
    scale, bias, mean, variance = (np.asarray(part, np.float64) for part in parts)
    root = np.sqrt(variance + float(context.attribute(node, "epsilon", 1e-5)))
    if not root.all() or not np.isfinite(root).all():
        return Refusal("the variance is 0 or no number")
    factor = scale / root
    return Affine(value, factor, bias - mean * factor)


def chain_of(node: ir.Node, value: ir.Value, context: RewriteContext) -> tuple[list[ir.Node], Affine]:
    """`node` and all that scales and shifts behind it and alone reads what it does, and what they do to `value`.

    `affine(node, value)` must have found something.
    """
    found = affine(node, value, context)
    assert isinstance(found, Affine)
    nodes = [node]
    while True:
        further = context.only_consumer(nodes[-1].outputs[0])
        if further is None or further.op_type not in AFFINE or not context.standard(further):
            return nodes, found
        more = affine(further, nodes[-1].outputs[0], context)
        if not isinstance(more, Affine):
            return nodes, found
        nodes.append(further)
        found = found.then(more)


def as_type(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """`array` in another type; RefusedError if a number is too large for it."""
    with np.errstate(over="ignore"):
        cast: NDArray[Any] = array.astype(dtype)
    if not np.isfinite(cast.astype(np.float64)).all():
        raise RefusedError("a weight or bias would be too large for its type")
    return cast
