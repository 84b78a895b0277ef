"""`Split(Linear(x)) -> Linear1(x), Linear2(x), ...`: one linear layer as several, one for each piece of its result.

## What it does
A linear layer (MatMul with constant weights, with or without a constant Add, or Gemm) whose result is only split
along its columns becomes one layer for each piece, with that piece's columns of the weights. It undoes
`fuse-parallel-linear`.

## Why
Where the pieces go separate ways, e.g. one to the DLA and one to the GPU, or where a Split costs more than the wide
product saves.

## Example
`(197, 384) x (384, 1152)` and a Split into three become three products `(197, 384) x (384, 384)`.

## Refused
A result that others read too.

## Safety
exact: the same products, summed in the order that the runtime takes for the narrower matrices. Applied on request only,
because it undoes another rewrite.

## Source
Algebra: the columns of a product depend on the columns of its second factor alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._linear import Linear, linear_behind
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "SplitParallelLinear", "build_columns"]


@dataclass(frozen=True, slots=True)
class _Data:
    linear: Linear
    sizes: tuple[int, ...]


class SplitParallelLinear(Rewrite):
    """A linear layer whose result is split becomes a layer for each piece."""

    name = "split-parallel-linear"
    safety = Safety.EXACT
    op_types = ("Split",)
    on_request = True

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        source = node.inputs[0]
        linear = None if source is None else linear_behind(source, context)
        if source is None or linear is None:
            return None
        axis, rank = context.attribute(node, "axis", 0), context.rank(source)
        if rank is None or axis not in (-1, rank - 1):
            return None
        if context.only_consumer(source) is not node:
            return Refusal(f"{source.name!r} is read by others too")
        shapes = [context.shape(value) for value in node.outputs]
        if any(shape is None for shape in shapes):
            return Refusal("the sizes of the pieces are not known")
        sizes = tuple(shape[-1] for shape in shapes if shape is not None)
        return Match((*linear.nodes, node), tuple(node.outputs), _Data(linear, sizes))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        data: _Data = match.data
        ends = np.cumsum(data.sizes)
        return [
            build_columns(builder, data.linear, int(end - size), int(end))
            for size, end in zip(data.sizes, ends, strict=True)
        ]


def build_columns(builder: Builder, linear: Linear, start: int, end: int) -> ir.Value:
    """The columns start .. end of a linear layer, as a layer of their own."""
    context = builder.context
    dims = [*(linear.source.shape or ())[:-1], end - start]
    dtype = context.dtype(linear.source)
    weights = builder.constant(np.ascontiguousarray(linear.weights(context)[:, start:end]), "weights")
    output = builder.op("MatMul", linear.source, weights, shape=dims, dtype=dtype)  # type: ignore[arg-type]
    biases = linear.biases(context)
    if biases is None:
        return output
    bias = builder.constant(np.ascontiguousarray(biases[start:end]), "bias")
    return builder.op("Add", output, bias, shape=dims, dtype=dtype)  # type: ignore[arg-type]


REWRITE = SplitParallelLinear()
