"""`RotaryEmbedding(x, cos, sin) -> Concat(a cos - b sin, a sin + b cos, rest)`: rotated pairs by slices and products.

## What it does
The elements of each head become channels. The halves that are rotated are taken apart by a Split, multiplied by cosine
and sine, and put together again; what is not rotated stays. A tensor of three dimensions is taken apart into heads.

## Why
Parsers before TensorRT 10.15 do not know the operator, which is new in opset 23, and the DLA has none like it; it has
all of the parts.

## Example
`RotaryEmbedding((1, 8, 64, 32), cos (1, 64, 16), sin (1, 64, 16))`: Split, four Mul, Sub, Add and Concat between two
Transposes.

## Refused
Interleaved pairs; position_ids; three dimensions without num_heads.

## Safety
exact: what ONNX defines RotaryEmbedding by.

## Source
ONNX operator RotaryEmbedding, version 23; rows E01, V01a and N01 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._broadcast import spread
from orinport.rewrites.catalogue._slices import split
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "RotaryToSlices"]


class RotaryToSlices(Rewrite):
    """RotaryEmbedding becomes slices, products and a concatenation."""

    name = "rotary-to-slices"
    safety = Safety.EXACT
    op_types = ("RotaryEmbedding",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        shapes = [context.shape(value) for value in node.inputs[:3]]
        if any(shape is None or 0 in shape for shape in shapes):
            return Refusal("shapes are not known")
        value, cosine, sine = (shape or () for shape in shapes)
        if not context.is_float(node.inputs[0]):
            return Refusal(f"the DLA does not compute in {context.dtype(node.inputs[0])}")
        if context.attribute(node, "interleaved", 0):
            return Refusal("its pairs are interleaved, and the DLA slices with steps of 1 only")
        if context.input(node, 3) is not None or len(cosine) != 3 or cosine != sine:
            return Refusal("position_ids say which row of the tables a position takes")
        heads = int(context.attribute(node, "num_heads", 0))
        if len(value) == 3 and (heads < 1 or value[2] % heads):
            return Refusal("its input has three dimensions, and num_heads does not say how many heads they hold")
        size = value[3] if len(value) == 4 else value[2] // heads
        rotated = int(context.attribute(node, "rotary_embedding_dim", 0)) or size
        if cosine[0] not in (1, value[0]) or (cosine[0] != value[0] and not context.is_constant(node.inputs[1])):
            return Refusal("its tables are those of another number of images")
        if rotated % 2 or rotated > size or cosine[2] != rotated // 2:
            return Refusal(f"tables of {cosine[2]} columns do not fit {rotated} rotated elements")
        return Match((node,), (node.outputs[0],), (heads, size, rotated))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, (heads, size, rotated) = match.nodes[0], match.data
        value, *tables = node.inputs[:3]
        assert value is not None
        shape = builder.shape(value)
        if len(shape) == 3:
            value = builder.transpose(builder.reshape(value, (shape[0], shape[1], heads, size)), (0, 3, 2, 1))
        else:
            value = builder.transpose(value, (0, 3, 1, 2))
        images, _, count, positions = builder.shape(value)
        half = rotated // 2
        cosine, sine = (_table(table, (images, half, count, positions), builder) for table in tables)
        first, second, *rest = split(value, 1, [half, half, *([size - rotated] if rotated < size else [])], builder)
        real = builder.op("Sub", builder.op("Mul", first, cosine), builder.op("Mul", second, sine))
        imaginary = builder.op("Add", builder.op("Mul", first, sine), builder.op("Mul", second, cosine))
        joined = builder.op("Concat", real, imaginary, *rest, axis=1)
        if len(shape) == 3:
            return (builder.reshape(builder.transpose(joined, (0, 3, 2, 1)), shape),)
        return (builder.transpose(joined, (0, 2, 3, 1)),)


def _table(value: ir.Value | None, shape: tuple[int, ...], builder: Builder) -> ir.Value:
    """Cosines or sines (N, positions, half) for all heads, in the shape of a half."""
    assert value is not None
    array = builder.context.constant(value)
    if array is not None:
        turned = array.transpose(0, 2, 1)[:, :, np.newaxis, :]
        return builder.constant(np.ascontiguousarray(np.broadcast_to(turned, shape)), "table")
    images, positions, half = builder.shape(value)
    turned = builder.transpose(builder.reshape(value, (images, 1, positions, half)), (0, 3, 1, 2))
    return spread(turned, shape, builder)


REWRITE = RotaryToSlices()
