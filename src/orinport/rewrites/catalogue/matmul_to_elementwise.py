"""`MatMul(A, B) -> Conv(Mul(Resize(A), Resize(B)), ones)`: a product of two tensors known at run time only.

## What it does
Both operands are copied, by nearest Resize, to one tensor that holds every pair of factors, with K as the channels;
they are multiplied element by element, and a 1x1 convolution of ones sums over the channels. Products side by side,
such as the heads of attention, become groups of that convolution. Where it costs less, the columns of one operand are
taken one by one instead. Gemm is treated alike, with its transposes, alpha, beta and C.

## Why
The DLA has no matrix multiplication, and a convolution takes its kernel at build time only. The products are few in
small attention and in bilinear layers, and the way to the GPU and back costs more.

## Example
The scores of attention over 64 tokens, `(1, 4, 64, 32) x (1, 4, 32, 64)`: two Resize of each operand, one Mul over
`(1, 128, 64, 64)`, one convolution with 4 groups.

## Refused
A constant operand (matmul-to-conv, gemm-to-conv); integers; operands that broadcast against each other; copies of more
elements than pay; dimensions above the DLA's limit.

## Safety
exact: the same products in another order of summation.

## Source
Rows X02, Z02a, E01 and C07 of the acceptance catalogue.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from orinport.rewrites.builder import RefusedError
from orinport.rewrites.catalogue._broadcast import spread
from orinport.rewrites.catalogue._runtime_product import RuntimeProduct, multiply, network_batch, operand
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "MatMulToElementwise"]


class MatMulToElementwise(Rewrite):
    """MatMul and Gemm of two run-time operands become copies, a product and a sum."""

    name = "matmul-to-elementwise"
    safety = Safety.EXACT
    op_types = ("Gemm", "MatMul")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        left, right = node.inputs[0], node.inputs[1]
        if left is None or right is None or context.is_constant(left) or context.is_constant(right):
            return None
        if not context.is_float(left):
            return Refusal(f"the DLA does not multiply {context.dtype(left)}")
        shapes = context.shape(left), context.shape(right)
        result = context.shape(node.outputs[0])
        if shapes[0] is None or shapes[1] is None or result is None:
            return Refusal("shapes are not known")
        if 0 in shapes[0] + shapes[1]:
            return Refusal("an operand holds no elements")
        product = _plan(node, left, right, shapes[0], shapes[1], result, context)
        if isinstance(product, Refusal):
            return product
        nodes = dict.fromkeys((node, *product.left.movers, *product.right.movers))
        return Match(tuple(nodes), (node.outputs[0],), product)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        if node.op_type == "MatMul":
            return (multiply(match.data, builder),)
        context = builder.context
        made = multiply(match.data, builder, float(context.attribute(node, "alpha", 1.0)))
        addend, beta = context.input(node, 2), float(context.attribute(node, "beta", 1.0))
        if addend is None or beta == 0.0:
            return (made,)
        return (_add(made, addend, beta, builder),)


def _plan(
    node: ir.Node,
    left: ir.Value,
    right: ir.Value,
    a: tuple[int, ...],
    b: tuple[int, ...],
    result: tuple[int, ...],
    context: RewriteContext,
) -> RuntimeProduct | Refusal:
    turn_a = node.op_type == "Gemm" and bool(context.attribute(node, "transA", 0))
    turn_b = node.op_type == "Gemm" and bool(context.attribute(node, "transB", 0))
    rows = (1, a[0]) if len(a) == 1 else a[-2:]
    columns = (b[0], 1) if len(b) == 1 else b[-2:]
    m, k = (rows[1], rows[0]) if turn_a else rows
    p = columns[0] if turn_b else columns[1]
    batch, other = a[:-2], b[:-2]
    if prod(other) == 1:
        m, batch = (m, batch) if prod(batch) == 1 else (prod(batch) * m, ())
    elif _without_ones(batch) != _without_ones(other):
        return Refusal("the operands broadcast against each other")
    first, groups = 1, prod(batch)
    if len(batch) > 1 or (len(batch) == 1 and batch[0] == network_batch(context)):
        first, groups = batch[0], prod(batch[1:])
    into_a = Shuffle.make(a, (first, groups, k, m), (0, 1, 3, 2), (first, groups, m, k)) if turn_a else None
    into_b = Shuffle.make(b, (first, groups, p, k), (0, 1, 3, 2), (first, groups, k, p)) if turn_b else None
    return RuntimeProduct(
        operand(left, into_a or Shuffle.reshape(a, (first, groups, m, k)), context),
        operand(right, into_b or Shuffle.reshape(b, (first, groups, k, p)), context),
        Shuffle.reshape((first, groups, m, p), result),
    )


def _without_ones(dims: tuple[int, ...]) -> tuple[int, ...]:
    while dims and dims[0] == 1:
        dims = dims[1:]
    return dims


def _add(value: ir.Value, addend: ir.Value, beta: float, builder: Builder) -> ir.Value:
    """`value` plus beta times C, which broadcasts to it, added on 4-D tensors."""
    rows, columns = builder.shape(value)
    dims = (1, 1, *builder.shape(addend))[-2:]
    if len(builder.shape(addend)) > 2:
        raise RefusedError("C has more than two dimensions")
    array = builder.context.constant(addend)
    four = (
        builder.reshape(addend, (1, 1, *dims)) if array is None else builder.constant(array.reshape(1, 1, *dims), "c")
    )
    if beta != 1.0:
        four = builder.op("Mul", four, builder.like(value, beta))
    if array is None:
        four = spread(four, (1, 1, rows, columns), builder)
    total = builder.op("Add", builder.reshape(value, (1, 1, rows, columns)), four)
    return builder.reshape(total, (rows, columns))


REWRITE = MatMulToElementwise()
