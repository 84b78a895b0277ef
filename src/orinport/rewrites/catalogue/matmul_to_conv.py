"""`MatMul(X, W) -> Conv(X as 4-D, W as 1x1 kernel)`: a product with a constant operand as a convolution.

## What it does
`W` is constant, on either side. Its inner dimension K becomes the channels of the convolution, the other
dimension of `X` becomes H x W, a leading dimension of `X` stays the batch. Batched constants become a grouped
convolution. Reshapes and transposes around it bring `X` into `(N, K, H, W)` and the result back; where `X`
is a flattened feature map they disappear into a kernel that covers the map. A constant bias that is added
right behind becomes the bias of the convolution.

## Why
The DLA has no matrix multiplication: the builder says that it is unsupported and names the convolution layer
instead. A 1x1 convolution is the same sum over K.

## Example
`(128, 1024) x (1024, 128)`, the right-hand side constant: one 1x1 convolution with 1024 input and 128 output
channels over 4 x 32 positions.

## Refused
Two run-time operands (a convolution's kernel is fixed at build time); integers; more than 8192 channels; operands
that broadcast against each other in both directions; shapes that are not known.

## Safety
exact: the same products in another order of summation.

## Source
NVIDIA/Deep-Learning-Accelerator-SW, operators/README.md; builder message "MatMul is unsupported on DLA".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.rewrites.catalogue._movers import chain_into
from orinport.rewrites.catalogue._product import Product, convolve, is_batch, plan_nodes
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "MatMulToConv"]


@dataclass(frozen=True, slots=True)
class _Data:
    product: Product
    weights: ir.Value
    left: bool
    bias: ir.Value | None


class MatMulToConv(Rewrite):
    """MatMul with one constant operand becomes a convolution."""

    name = "matmul-to-conv"
    safety = Safety.EXACT
    op_types = ("MatMul",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        left, right = node.inputs
        if left is None or right is None:
            return None
        constants = (context.is_constant(left), context.is_constant(right))
        if all(constants):
            return None
        if not any(constants):
            return Refusal(
                "both operands are known at run time only, and a convolution's kernel is fixed at build time"
            )
        value, weights = (right, left) if constants[0] else (left, right)
        if not context.is_float(value):
            return Refusal(f"a convolution does not take {context.dtype(value)}")
        shapes = context.shape(value), context.shape(weights), context.shape(node.outputs[0])
        if shapes[0] is None or shapes[1] is None or shapes[2] is None:
            return Refusal("shapes are not known")
        if 0 in shapes[0] or 0 in shapes[1]:
            return Refusal("an operand holds no elements")
        steps = not constants[0] and _is_sequence(node, shapes[0], context)
        product = _plan(value, shapes[0], shapes[1], shapes[2], context, left=constants[0], steps=steps)
        if product is None:
            return Refusal("the operands broadcast against each other in a way that no grouped convolution has")
        nodes = [node, *plan_nodes(product, context)]
        output, bias = node.outputs[0], None
        addition = context.only_consumer(output)
        if addition is not None and not constants[0] and product.groups == 1:
            bias = _bias(addition, output, shapes[1][-1] if len(shapes[1]) > 1 else 1, context)
            if bias is not None:
                nodes.append(addition)
                output = addition.outputs[0]
        return Match(tuple(nodes), (output,), _Data(product, weights, constants[0], bias))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        data: _Data = match.data
        weights = builder.context.constant(data.weights)
        assert weights is not None
        kernel = _kernel(weights, data.product, left=data.left)
        bias = None
        if data.bias is not None:
            values = builder.context.constant(data.bias)
            assert values is not None
            bias = np.resize(values.reshape(-1), kernel.shape[0])  # again for each matrix
        result, back = convolve(data.product, kernel, bias, builder)
        return (builder.shuffle(result, back),)


def _plan(
    value: ir.Value,
    operand: tuple[int, ...],
    weights: tuple[int, ...],
    result: tuple[int, ...],
    context: RewriteContext,
    *,
    left: bool,
    steps: bool,
) -> Product | None:
    """How the product maps to a convolution; None if it does not."""
    rows, inner = _matrix(operand, left=left)
    outputs = _matrix(weights, left=not left)[0]
    batch, groups = operand[:-2], _without_ones(weights[:-2])
    shared = prod(batch) == 1 and bool(groups)
    if not groups or shared:
        count, places = (1, rows) if shared else _places(value, operand, rows, context, left=left)
        if steps:
            return Product(value, operand[1], 1, operand[0], inner, outputs, 1, True, True, result, steps_first=True)
        return Product(value, count, 1, places, inner, outputs * prod(groups), prod(groups), not left, not left, result)
    lead, tail = batch[: max(0, len(batch) - len(groups))], batch[max(0, len(batch) - len(groups)) :]
    if len(tail) == len(groups) and prod(tail) == 1:  # every matrix of the constant times each of the operand
        total = prod(groups)
        return Product(value, prod(lead), 1, rows, inner, outputs * total, total, not left, not left, result)
    if tail != groups:
        return None
    return Product(
        value,
        prod(batch[: len(batch) - len(groups)]),
        prod(groups),
        rows,
        inner,
        outputs,
        prod(groups),
        not left,
        not left,
        result,
    )


def _matrix(shape: tuple[int, ...], *, left: bool) -> tuple[int, int]:
    """(other dimension, K) of an operand; a vector is a matrix of one row, or of one column on the right."""
    if len(shape) == 1:
        return 1, shape[0]
    return (shape[-1], shape[-2]) if left else (shape[-2], shape[-1])


def _without_ones(dims: tuple[int, ...]) -> tuple[int, ...]:
    while dims and dims[0] == 1:
        dims = dims[1:]
    return dims


def _places(
    value: ir.Value, operand: tuple[int, ...], rows: int, context: RewriteContext, *, left: bool
) -> tuple[int, int]:
    """(batch, positions): the first of three or more dimensions is the batch, and so are the rows of features."""
    if left:
        return prod(operand[:-2]), rows
    if len(operand) >= 3:
        if operand[0] == 1 < rows and _images(value, context) == prod(operand[:-1]):
            return prod(operand[:-1]), 1
        if operand[0] > 1 == prod(operand[1:-1]) and _is_one_image(value, context):
            return 1, operand[0]
        return operand[0], prod(operand[1:-2]) * rows
    if rows > 1 and is_batch(value, rows, context):
        return rows, 1
    return 1, rows


def _is_one_image(value: ir.Value, context: RewriteContext) -> bool:
    """The first dimension was another one before: the operand is a single image with its tokens moved to the front."""
    chain = chain_into(value, context)
    return chain is not None and len(chain[1].before) >= _SEQUENCE and chain[1].before[0] == 1


def _images(value: ir.Value, context: RewriteContext) -> int:
    """The batch of the 4-D tensor of one pixel that the operand is a reshape of; 0 if it is no such one."""
    chain = chain_into(value, context, rank=4)
    if chain is None or not chain[1].keeps_order or prod(chain[1].before[2:]) != 1:
        return 0
    return chain[1].before[0]


def _is_sequence(node: ir.Node, operand: tuple[int, ...], context: RewriteContext) -> bool:
    """The first dimension counts the steps of a sequence, not images: the result is taken apart into all of them.

    So PyTorch writes out a recurrent layer: (steps, images, K), and a slice for each step; in the backward direction
    of the reversed tensor.
    """
    if len(operand) != _SEQUENCE or operand[0] == 1:
        return False
    value = node.outputs[0]
    while (reader := context.only_consumer(value)) is not None:
        reverses = reader.op_type == "Slice" and context.shape(reader.outputs[0]) == context.shape(value)
        if reader.op_type != "Add" and not reverses:
            break
        value = reader.outputs[0]
    readers = context.consumers(value)
    if context.is_output(value) or not all(reader.op_type in ("Slice", "Split") for reader in readers):
        return False
    results = [context.shape(output) for reader in readers for output in reader.outputs]
    return len(results) == operand[0] and all(result is not None and result[0] == 1 for result in results)


_SEQUENCE = 3
"""Dimensions of a sequence: steps, images, features."""


def _kernel(weights: NDArray[Any], product: Product, *, left: bool) -> NDArray[Any]:
    """The constant as (output channels, K)."""
    matrix = weights.reshape(1, -1) if left and weights.ndim == 1 else weights
    matrix = matrix.reshape(-1, 1) if matrix.ndim == 1 else matrix
    if not left:
        matrix = np.swapaxes(matrix, -1, -2)
    return matrix.reshape(-1, product.channels)


def _bias(addition: ir.Node, output: ir.Value, width: int, context: RewriteContext) -> ir.Value | None:
    """The constant of an Add behind the product, if it holds one value a column."""
    if addition.op_type != "Add" or not context.standard(addition) or addition.inputs[0] is addition.inputs[1]:
        return None
    other = next((value for value in addition.inputs if value is not output), None)
    shape = context.shape(other)
    if other is None or shape is None or not context.is_constant(other) or len(shape) > (context.rank(output) or 0):
        return None
    if prod(shape) not in (1, width) or (prod(shape) > 1 and shape[-1] != width):
        return None
    return other


REWRITE = MatMulToConv()
