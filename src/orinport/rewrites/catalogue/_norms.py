"""Normalisations found in a graph, and the layers of the DLA that they are made of."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from math import log, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.rewrites.catalogue._broadcast import spread
from orinport.rewrites.catalogue._movers import absorb
from orinport.rewrites.catalogue._product import positions
from orinport.rewrites.catalogue._reductions import mean, reduced_axes
from orinport.rewrites.catalogue._scalars import add, multiply
from orinport.rewrites.catalogue._windows import Window, build_conv
from orinport.rewrites.catalogue.reciprocal_to_div import has_division
from orinport.rewrites.rewrite import Match, Refusal, Rewrite
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = [
    "NORMALISATIONS",
    "Norm",
    "NormRewrite",
    "build_deviation",
    "build_scaled",
    "norm_at",
    "point",
    "root_by_division",
    "shape_to_divide",
]

NORMALISATIONS = (
    "GroupNormalization",
    "InstanceNormalization",
    "LayerNormalization",
    "RMSNormalization",
    "ReduceMean",
)
"""Where they begin; ReduceMean is the first node of one that is written out."""

_POINT = Window((1, 1), (1, 1), (0, 0), (0, 0), (1, 1))
_ROUNDS = 5
_TANGENTS = 3
_LARGEST = 65536.0
"""Variance up to which the root is exact to 1e-6."""


def shape_to_divide(value: ir.Value | None, context: RewriteContext, lacking: str) -> tuple[int, ...] | Refusal:
    """The shape of an operand that is computed with by divisions; `lacking` says what is missing without them."""
    shape = context.shape(value)
    if value is None or not shape or 0 in shape:
        return Refusal("the shape is not known, or has no axes")
    if not context.is_float(value):
        return Refusal(f"the DLA does not compute in {context.dtype(value)}")
    return shape if has_division(context) else Refusal(lacking)


@dataclass(frozen=True, slots=True)
class Norm:
    """`(x - mean) / sqrt(variance + epsilon) * scale + bias` on a 4-D tensor.

    Without `centred` the mean counts as 0, in the variance too. Statistics go over the channels of a group, and over
    height and width too where `spatial`. `scale` and `bias` have one value a channel, or are None.
    """

    nodes: tuple[ir.Node, ...]
    source: ir.Value
    into: Shuffle
    groups: int
    spatial: bool
    epsilon: float
    scale: NDArray[Any] | None
    bias: NDArray[Any] | None
    output: ir.Value
    centred: bool = True


class NormRewrite(Rewrite):
    """A normalisation, of any form, becomes other operators; the subclass says when not, and builds them."""

    error = 2e-4
    op_types = NORMALISATIONS

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        norm = norm_at(node, context)
        if norm is None or isinstance(norm, Refusal):
            return norm
        if not self.is_called_for(context):
            return None
        reason = self.why_not(norm, context)
        return Refusal(reason) if reason else Match(norm.nodes, (norm.output,), norm)

    def is_called_for(self, context: RewriteContext) -> bool:  # noqa: ARG002, others ask for it
        """False where another rewrite does better; nothing is reported then."""
        return True

    @abstractmethod
    def why_not(self, norm: Norm, context: RewriteContext) -> str:
        """Why the target or the normalisation does not allow it; empty if they do."""


def norm_at(node: ir.Node, context: RewriteContext) -> Norm | Refusal | None:
    """The normalisation that begins at `node`; None if none does."""
    value = node.inputs[0]
    shape = context.shape(value)
    written_out = _written_out(node, context) if node.op_type == "ReduceMean" else None
    if node.op_type == "ReduceMean" and written_out is None:
        return None
    if value is None or shape is None or 0 in shape or len(shape) < 2:
        return Refusal("the shape is not known, or has no place for channels")
    if not context.is_float(value):
        return Refusal(f"the DLA does not compute in {context.dtype(value)}")
    if written_out is not None:
        nodes, epsilon = written_out
        return _last_axes(nodes, value, len(shape) - 1, epsilon, (None, None), context)
    if any(output.uses() or context.is_output(output) for output in node.outputs[1:]):
        return Refusal("its mean or deviation is used")
    constants = [context.constant(context.input(node, place)) for place in (1, 2)]
    if constants[0] is None or (constants[1] is None and context.input(node, 2) is not None):
        return Refusal("scale or bias is known at run time only")
    epsilon = float(context.attribute(node, "epsilon", 1e-5))
    if node.op_type in ("LayerNormalization", "RMSNormalization"):
        axis = int(context.attribute(node, "axis", -1)) % len(shape)
        found = _last_axes((node,), value, axis, epsilon, (constants[0], constants[1]), context)
        return found if isinstance(found, Refusal) else replace(found, centred=node.op_type == "LayerNormalization")
    return _grouped(node, value, shape, epsilon, constants, context)


def _last_axes(
    nodes: tuple[ir.Node, ...],
    value: ir.Value,
    axis: int,
    epsilon: float,
    constants: tuple[NDArray[Any] | None, NDArray[Any] | None],
    context: RewriteContext,
) -> Norm | Refusal:
    shape = context.shape(value) or ()
    size, limit = prod(shape[axis:]), int(context.limit("G05", "max"))
    if axis == 0:
        return Refusal("it normalises over the batch")
    if size > limit:
        return Refusal(f"it normalises over {size} elements, more than the DLA's limit of {limit} for channels")
    flat = []
    for constant in constants:
        if constant is not None and constant.size not in (1, size):
            return Refusal(f"scale or bias of shape {list(constant.shape)} is not one for each element")
        flat.append(None if constant is None else np.resize(constant.reshape(-1), size))
    batch, middle = shape[0], prod(shape[1:axis])
    board = (batch, size, *positions(middle, size, context))
    into = Shuffle.make(shape, (batch, middle, size), (0, 2, 1), board)
    source, into, movers = absorb(value, into, context)
    return Norm((*nodes, *movers), source, into, 1, False, epsilon, flat[0], flat[1], nodes[-1].outputs[0])


def _grouped(
    node: ir.Node,
    value: ir.Value,
    shape: tuple[int, ...],
    epsilon: float,
    constants: list[NDArray[Any] | None],
    context: RewriteContext,
) -> Norm | Refusal:
    if len(shape) < 3:
        return Refusal(f"its input has rank {len(shape)}, without a place for height and width")
    channels = shape[1]
    groups = channels if node.op_type == "InstanceNormalization" else int(context.attribute(node, "num_groups"))
    factors = []
    for constant in constants:
        assert constant is not None
        flat = constant.reshape(-1)
        if flat.size not in (groups, channels):
            return Refusal(f"scale or bias has {flat.size} values, neither one a group nor one a channel")
        factors.append(flat if flat.size == channels else np.repeat(flat, channels // groups))
    board = (*shape[:3], prod(shape[3:]))
    source, into, movers = absorb(value, Shuffle.reshape(shape, board), context)
    nodes = (node, *movers)
    return Norm(nodes, source, into, groups, True, epsilon, factors[0], factors[1], node.outputs[0])


def _written_out(node: ir.Node, context: RewriteContext) -> tuple[tuple[ir.Node, ...], float] | None:
    """ReduceMean, Sub, Pow or Mul, ReduceMean, Add, Sqrt and Div over the last axis, and what Add adds."""
    value, average = node.inputs[0], node.outputs[0]
    subtract = context.only_consumer(average)
    if value is None or subtract is None or subtract.op_type != "Sub" or not _over_last(node, context):
        return None
    if subtract.inputs[0] is not value or subtract.inputs[1] is not average:
        return None
    deviation = subtract.outputs[0]
    readers = context.consumers(deviation)
    square = next((each for each in readers if _squares(each, deviation, context)), None)
    second = None if square is None else context.only_consumer(square.outputs[0])
    if square is None or second is None or second.op_type != "ReduceMean" or not _over_last(second, context):
        return None
    addition = context.only_consumer(second.outputs[0])
    if addition is None or addition.op_type != "Add":
        return None
    constants = [context.constant(each) for each in addition.inputs]
    epsilon = next((each for each in constants if each is not None and each.size == 1), None)
    root = context.only_consumer(addition.outputs[0])
    division = None if root is None else context.only_consumer(root.outputs[0])
    if epsilon is None or root is None or root.op_type != "Sqrt" or division is None or division.op_type != "Div":
        return None
    if division.inputs[0] is not deviation or division.inputs[1] is not root.outputs[0]:
        return None
    if set(readers) != {square, division} or context.is_output(deviation):
        return None
    nodes = (node, subtract, square, second, addition, root, division)
    return nodes, float(epsilon.reshape(-1)[0])


def _over_last(node: ir.Node, context: RewriteContext) -> bool:
    shape = context.shape(node.inputs[0])
    kept = bool(context.attribute(node, "keepdims", 1))
    return shape is not None and kept and len(shape) > 1 and reduced_axes(node, shape, context) == (len(shape) - 1,)


def _squares(node: ir.Node, value: ir.Value, context: RewriteContext) -> bool:
    if node.op_type == "Mul":
        return all(each is value for each in node.inputs)
    exponent = context.constant(node.inputs[1]) if node.op_type == "Pow" and node.inputs[0] is value else None
    return exponent is not None and exponent.size == 1 and float(exponent.reshape(-1)[0]) == 2.0


def build_deviation(norm: Norm, builder: Builder) -> tuple[ir.Value, ir.Value]:
    """`x - mean` in four dimensions, and `variance + epsilon` with a single element where it is the same."""
    value = builder.shuffle(norm.source, norm.into)
    _, channels, height, width = builder.shape(value)
    members = channels // norm.groups
    if norm.spatial:
        average = _over_groups(mean(value, (height, width), builder), norm.groups, 0.0, builder)
        deviation = builder.op("Sub", value, spread(average, builder.shape(value), builder))
        square = mean(builder.op("Mul", deviation, deviation), (height, width), builder)
        return deviation, _over_groups(square, norm.groups, norm.epsilon, builder)
    deviation = value
    if norm.centred:
        deviation = point(value, np.eye(channels) - 1.0 / channels, None, 1, builder)
    square = builder.op("Mul", deviation, deviation)
    return deviation, point(square, np.full((1, members), 1.0 / members), norm.epsilon, 1, builder)


def _over_groups(value: ir.Value, groups: int, epsilon: float, builder: Builder) -> ir.Value:
    """For each channel the mean over the channels of its group, plus `epsilon`."""
    channels = builder.shape(value)[1]
    members = channels // groups
    if members == 1:
        return add(builder, value, epsilon)
    return point(value, np.full((channels, members), 1.0 / members), epsilon or None, groups, builder)


def point(value: ir.Value, matrix: NDArray[Any], bias: float | None, groups: int, builder: Builder) -> ir.Value:
    """A 1x1 convolution with the weights `matrix`, of shape (outputs, inputs of a group), and one bias for all."""
    dtype = builder.numpy_dtype(value)
    weights = builder.constant(matrix.reshape(*matrix.shape, 1, 1).astype(dtype), "mean")
    shift = None if bias is None else builder.constant(np.full(len(matrix), bias, dtype), "epsilon")
    return build_conv(builder, value, weights, shift, _POINT, groups)


def build_scaled(norm: Norm, value: ir.Value, builder: Builder) -> ir.Value:
    """`value * scale + bias` in the shape of the normalisation's output."""
    for op_type, constant, idle in (("Mul", norm.scale, 1.0), ("Add", norm.bias, 0.0)):
        if constant is not None and not (constant == idle).all():
            factors = constant.reshape(1, -1, 1, 1).astype(builder.numpy_dtype(value))
            value = builder.op(op_type, value, builder.constant(factors, op_type.lower()))
    shape = builder.shape(norm.output)
    if norm.spatial:
        return builder.reshape(value, shape)
    board, last = builder.shape(value), builder.shape(value)[1]
    count = board[2] * board[3]
    return builder.shuffle(value, Shuffle.make(board, (board[0], last, count), (0, 2, 1), shape))


def root_by_division(value: ir.Value, smallest: float, builder: Builder) -> ir.Value:
    """The square root of values from `smallest` on: the least of a few tangents, then Heron's `(s + v / s) / 2`.

    Tangents touch the root at points in equal ratios between the roots of `smallest` and of the largest value.
    """
    low, high = log(smallest) / 2.0, log(_LARGEST) / 2.0
    guess: ir.Value | None = None
    for index in range(_TANGENTS):
        point = float(np.exp(low + (high - low) * (2 * index + 1) / (2 * _TANGENTS)))
        line = add(builder, multiply(builder, value, 0.5 / point), 0.5 * point)
        guess = line if guess is None else builder.op("Min", guess, line)
    assert guess is not None
    for _ in range(_ROUNDS):
        guess = multiply(builder, builder.op("Add", guess, builder.op("Div", value, guess)), 0.5)
    return guess
