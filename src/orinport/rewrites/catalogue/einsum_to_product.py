"""`Einsum(A, B) -> Conv(A)`, or Mul and Conv: sums of products that Einsum writes with letters.

## What it does
An Einsum of two operands in which every letter is a batch dimension, a dimension of one operand that stays, or one that
is summed over, is a product of matrices side by side. With a constant operand it becomes a 1x1 convolution, grouped
where there are batch dimensions; with two run-time operands what matmul-to-elementwise makes of them. The letters that
are summed over become the channels.

## Why
The parser makes an Einsum layer of it, which the DLA does not have.

## Example
`Einsum("bthd,hdo->bto", x, W)`, the output projection of attention: a 1x1 convolution of h d channels.

## Refused
One or more than two operands; an ellipsis; a letter twice in one operand (a diagonal); a letter of one operand alone
that is summed over; integers; more channels than the DLA's limit; what matmul-to-elementwise refuses.

## Safety
exact: the same products in another order of summation.

## Source
ONNX operator specification, Einsum; rows X02 and X05 of the acceptance catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.builder import RefusedError
from orinport.rewrites.catalogue._product import positions
from orinport.rewrites.catalogue._runtime_product import Operand, RuntimeProduct, multiply, network_batch, operand
from orinport.rewrites.catalogue._windows import Window, build_conv
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "EinsumToProduct"]


@dataclass(frozen=True, slots=True)
class _Letters:
    """An equation of two operands, and what its letters are for."""

    first: str
    second: str
    result: str
    size: dict[str, int]

    @property
    def batch(self) -> str:
        return "".join(each for each in self.first if each in self.second and each in self.result)

    @property
    def summed(self) -> str:
        return "".join(each for each in self.first if each in self.second and each not in self.result)

    def only(self, text: str, other: str) -> str:
        """Letters that one operand alone has."""
        return "".join(each for each in text if each not in other)

    def volume(self, text: str) -> int:
        return prod(self.size[each] for each in text)

    def into(self, text: str, order: Sequence[str]) -> Shuffle:
        """From an operand with the letters `text` to one dimension for each group of `order`."""
        shape = [self.size[each] for each in text]
        perm = [text.index(each) for group in order for each in group]
        return Shuffle.make(shape, shape, perm, [self.volume(group) for group in order])

    def out_of(self, order: Sequence[str]) -> Shuffle:
        """From one dimension for each group of `order` to the result."""
        joined = "".join(order)
        return Shuffle.make(
            [self.volume(group) for group in order],
            [self.size[each] for each in joined],
            [joined.index(each) for each in self.result],
            [self.size[each] for each in self.result],
        )


@dataclass(frozen=True, slots=True)
class _Constant:
    """A product with a constant operand: the run-time one, the kernel's letters, and the way to the result."""

    value: Operand
    weights: ir.Value
    kernel: Shuffle
    """From the constant to (g, P, K)."""
    out: Shuffle


class EinsumToProduct(Rewrite):
    """Einsum becomes a convolution or a product of run-time tensors."""

    name = "einsum-to-product"
    safety = Safety.EXACT
    op_types = ("Einsum",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if all(context.is_constant(value) for value in node.inputs):
            return None
        if len(node.inputs) != 2:
            return Refusal(f"it has {len(node.inputs)} operands, and only a product of two has a form on the DLA")
        one, two = node.inputs
        if one is None or two is None:
            return None
        shapes = context.shape(one), context.shape(two)
        if shapes[0] is None or shapes[1] is None or context.shape(node.outputs[0]) is None:
            return Refusal("shapes are not known")
        if not context.is_float(one) or 0 in shapes[0] + shapes[1]:
            return Refusal(f"the DLA does not multiply {context.dtype(one)}")
        letters = _read(context.attribute(node, "equation"), shapes[0], shapes[1])
        if isinstance(letters, Refusal):
            return letters
        if context.is_constant(one):
            one, two = two, one
            letters = _Letters(letters.second, letters.first, letters.result, letters.size)
        if context.is_constant(two):
            constant = _with_constant(letters, one, two, context)
            return Match((node, *constant.value.movers), (node.outputs[0],), constant)
        product = _with_two(letters, one, two, context)
        nodes = dict.fromkeys((node, *product.left.movers, *product.right.movers))
        return Match(tuple(nodes), (node.outputs[0],), product)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        if isinstance(match.data, RuntimeProduct):
            return (multiply(match.data, builder),)
        return (_convolve(match.data, builder),)


def _read(equation: str, first: tuple[int, ...], second: tuple[int, ...]) -> _Letters | Refusal:
    text = equation.replace(" ", "")
    if "." in text:
        return Refusal("the equation holds an ellipsis")
    operands, arrow, result = text.partition("->")
    one, _, two = operands.partition(",")
    if not arrow:
        result = "".join(sorted(each for each in set(one + two) if (one + two).count(each) == 1))
    if len(set(one)) < len(one) or len(set(two)) < len(two):
        return Refusal("a letter stands twice in one operand")
    size = {**dict(zip(one, first, strict=True)), **dict(zip(two, second, strict=True))}
    alone = [each for each in one + two if (one + two).count(each) == 1 and each not in result]
    if alone:
        return Refusal(f"the letter {alone[0]} of one operand alone is summed over")
    if any(size[each] != number for each, number in zip(one, first, strict=True)):
        return Refusal("a letter has two sizes")
    return _Letters(one, two, result, size)


def _with_constant(letters: _Letters, value: ir.Value, weights: ir.Value, context: RewriteContext) -> _Constant:
    mine, its = letters.only(letters.first, letters.second), letters.only(letters.second, letters.first)
    image = letters.first[0] if letters.first[0] in mine else ""
    batch, summed = letters.batch, letters.summed
    rest = mine.replace(image, "") if image else mine
    return _Constant(
        operand(value, letters.into(letters.first, (image, batch, rest, summed)), context),
        weights,
        letters.into(letters.second, (batch, its, summed)),
        letters.out_of((image, batch, rest, its)),
    )


def _with_two(letters: _Letters, one: ir.Value, two: ir.Value, context: RewriteContext) -> RuntimeProduct:
    mine, its = letters.only(letters.first, letters.second), letters.only(letters.second, letters.first)
    first = letters.first[0]
    image = first if first in letters.batch and letters.size[first] == network_batch(context) else ""
    batch, summed = letters.batch.replace(image, "") if image else letters.batch, letters.summed
    return RuntimeProduct(
        operand(one, letters.into(letters.first, (image, batch, mine, summed)), context),
        operand(two, letters.into(letters.second, (image, batch, summed, its)), context),
        letters.out_of((image, batch, mine, its)),
    )


def _convolve(data: _Constant, builder: Builder) -> ir.Value:
    n, g, m, k = data.value.into.shape
    context = builder.context
    stored = context.constant(data.weights)
    assert stored is not None
    kernel = np.ascontiguousarray(data.kernel.apply(stored))
    outputs = kernel.shape[1]
    limit = context.limit("G05", "max")
    if max(g * k, g * outputs) > limit:
        raise RefusedError(f"it would have {max(g * k, g * outputs)} channels, more than the DLA's limit of {limit}")
    height, width = positions(m, g * k, context)
    board = data.value.board((0, 1, 3, 2), (n, g * k, height, width), builder)
    weights = builder.constant(kernel.reshape(g * outputs, k, 1, 1), "weights")
    made = build_conv(builder, board, weights, None, Window((1, 1), (1, 1), (0, 0), (0, 0), (1, 1)), g)
    back = Shuffle.make((n, g * outputs, height, width), (n, g, outputs, m), (0, 1, 3, 2), (n, g, m, outputs))
    total = back.then(data.out)
    if total is not None:
        return builder.shuffle(made, total)
    return builder.shuffle(builder.shuffle(made, back), data.out)


REWRITE = EinsumToProduct()
