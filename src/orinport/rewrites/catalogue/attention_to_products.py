"""`Attention(Q, K, V) -> Conv(Mul(Softmax(Conv(Mul(Q, K))), V))`: attention as its two products and the softmax.

## What it does
The scores are the product of queries and keys, times the scale; a mask is added, also the one of `is_causal`, which
lets no later key count by the lowest number of the type; behind Softmax comes the product with the values. Both
products are made as `matmul-to-elementwise` makes them. Tensors of three dimensions are taken apart into heads before
that and put together again.

## Why
Parsers before TensorRT 10.14 do not know the operator, which is new in opset 23, and later ones make two layers of it
that the DLA does not have. Its parts it has.

## Example
`Attention((1, 8, 64, 32), (1, 8, 64, 32), (1, 8, 64, 32))`: Resize, Mul and Conv for the scores, Softmax, and Resize,
Mul and Conv for the result.

## Refused
Fewer heads of keys than of queries; a cache, or any result but the first; softcap; softmax in another type; attributes
of later versions, such as windows; a mask known at run time only that is Boolean or stands beside `is_causal`; masks
without a column for each key; `is_causal` where queries and keys differ in number; three dimensions without numbers of
heads; products past the limits of `matmul-to-elementwise`.

## Safety
exact: equal up to rounding; the scale is multiplied once into the scores and not by its root into queries and keys, so
FP16 scores overflow without it. Infinities and NaN spread as the definition says, which is tested; the proof leaves
them out, because ONNX Runtime's own kernel lets rows of them become 0.

## Source
ONNX operator Attention, versions 23 and 24; row X02 of the acceptance catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.rewrites.catalogue._runtime_product import Operand, RuntimeProduct, multiply
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "AttentionToProducts"]

_Shape = tuple[int, ...]
_ATTRIBUTES = frozenset(
    ("is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap", "softmax_precision")
)
"""Of versions 23 and 24; version 25 adds windows."""


@dataclass(frozen=True, slots=True)
class _Data:
    shapes: tuple[_Shape, _Shape, _Shape]
    """Of queries, keys and values as (N, heads, positions, features)."""
    scale: float
    mask: ir.Value | None
    causal: bool


class AttentionToProducts(Rewrite):
    """Attention becomes two products and a softmax."""

    name = "attention-to-products"
    safety = Safety.EXACT
    finite = True
    op_types = ("Attention",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        given = [context.shape(value) for value in node.inputs[:3]]
        if any(shape is None or 0 in shape for shape in given):
            return Refusal("shapes are not known")
        if not context.is_float(node.inputs[0]):
            return Refusal(f"the DLA does not compute in {context.dtype(node.inputs[0])}")
        heads = [int(context.attribute(node, name, 0)) for name in ("q_num_heads", "kv_num_heads")]
        shapes = [
            _heads(shape or (), count) for shape, count in zip(given, (heads[0], heads[1], heads[1]), strict=True)
        ]
        if any(shape is None for shape in shapes):
            return Refusal("its inputs have three dimensions, and no number of heads says how to take them apart")
        queries, keys, values = (shape or () for shape in shapes)
        data = _Data(
            (queries, keys, values),
            float(context.attribute(node, "scale", 1.0 / sqrt(queries[3]))),
            context.input(node, 3),
            bool(context.attribute(node, "is_causal", 0)),
        )
        reason = _why_not(node, data, context)
        return Refusal(reason) if reason else Match((node,), (node.outputs[0],), data)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, data = match.nodes[0], match.data
        queries, keys, values = data.shapes
        given = [_operand(value, shape, builder) for value, shape in zip(node.inputs[:3], data.shapes, strict=True)]
        swap = given[1].into.then(Shuffle.transpose(keys, (0, 1, 3, 2)))
        assert swap is not None
        board = (*queries[:3], keys[2])
        same = Shuffle.reshape(board, board)
        scores = multiply(RuntimeProduct(given[0], Operand(given[1].source, swap), same), builder, data.scale)
        mask = _mask(data, builder.numpy_dtype(scores), board, builder)
        if mask is not None:
            scores = builder.op("Add", scores, mask)
        weights = builder.op("Softmax", scores, axis=-1)
        result, shape = (*queries[:3], values[3]), builder.shape(node.outputs[0])
        perm = (0, 1, 2, 3) if len(shape) == 4 else (0, 2, 1, 3)
        out = Shuffle.make(result, result, perm, shape)
        return (multiply(RuntimeProduct(Operand(weights, same), given[2], out), builder),)


def _heads(shape: _Shape, heads: int) -> _Shape | None:
    """(N, heads, positions, features) of a tensor that has them side by side, or has those dimensions."""
    if len(shape) == 4:
        return shape
    if len(shape) != 3 or heads < 1 or shape[2] % heads:
        return None
    return shape[0], heads, shape[1], shape[2] // heads


def _why_not(node: ir.Node, data: _Data, context: RewriteContext) -> str:
    queries, keys, _ = data.shapes
    if unknown := sorted(set(node.attributes) - _ATTRIBUTES):
        return f"what {unknown[0]} asks for is not known here"
    if any(value is not None for value in node.inputs[4:]):
        return "it has a cache, or counts the keys that are no padding"
    if any(value.uses() or context.is_output(value) for value in node.outputs[1:]):
        return "its keys, values or scores are used as well"
    if queries[1] != keys[1]:
        return f"{queries[1]} heads of queries share {keys[1]} heads of keys"
    if context.attribute(node, "softcap", 0.0):
        return "softcap bounds its scores"
    if context.attribute(node, "softmax_precision") not in (None, int(context.dtype(node.inputs[0]) or 0)):
        return "softmax_precision asks for another type"
    if data.causal and queries[2] != keys[2]:
        return f"is_causal with {queries[2]} queries and {keys[2]} keys"
    return "" if data.mask is None else _why_not_masked(data.mask, data, context)


def _why_not_masked(mask: ir.Value, data: _Data, context: RewriteContext) -> str:
    shape = context.shape(mask)
    if shape is None or not 2 <= len(shape) <= 4 or shape[-1] != data.shapes[1][2]:
        return "its mask has no column for each key"
    if context.is_constant(mask):
        return ""
    if not context.is_float(mask):
        return "a Boolean mask is known at run time only"
    return "is_causal with a mask that is known at run time only" if data.causal else ""


def _operand(value: ir.Value | None, shape: _Shape, builder: Builder) -> Operand:
    """The way from an input to (N, heads, positions, features)."""
    assert value is not None
    before = builder.shape(value)
    if len(before) == 4:
        return Operand(value, Shuffle.reshape(before, before))
    images, heads, count, features = shape
    return Operand(value, Shuffle.make(before, (images, count, heads, features), (0, 2, 1, 3), shape))


def _mask(data: _Data, dtype: np.dtype[Any], shape: _Shape, builder: Builder) -> ir.Value | None:
    """What is added to scores of `shape`: 0 where a key counts, the lowest number where not, or what is given."""
    array = builder.context.constant(data.mask)
    if array is None and not data.causal:
        return data.mask
    lowest = float(np.finfo(dtype).min)
    total: NDArray[Any] = np.zeros(shape)
    if array is not None:
        total = total + (np.where(array, 0.0, lowest) if array.dtype == np.bool_ else array.astype(np.float64))
    if data.causal:
        total = total + np.triu(np.full(shape[2:], lowest), 1)
    return builder.constant(np.maximum(total, lowest).astype(dtype), "mask")


REWRITE = AttentionToProducts()
