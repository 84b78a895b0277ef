"""`Where(c, x, y) -> Add(Mul(x, c), Mul(y, 1 - c))`: a choice as arithmetic with 0 and 1.

## What it does
Where becomes the sum of both branches, each multiplied with 0 or 1. A branch of zeros (a mask fill) is left out; a
constant branch under a constant condition becomes one constant.

## Why
Where is no layer of the DLA; products and sums are.

## Example
`Where(mask, x, -10000)` with a constant mask: `Add(Mul(x, mask), constant)`.

## Refused
Branches that hold an infinity, because 0 times infinity is no number; integers; shapes that are not known.

## Safety
tolerance: the same for finite numbers. An infinity, or NaN, in the branch that is not chosen would give NaN.
`where-to-slices` is exact, for constant conditions along one axis.

## Source
Rows E01, E09 and K11 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.rewrites.catalogue._constants import shrink
from orinport.rewrites.catalogue.logic_to_arithmetic import as_number
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "WhereToArithmetic"]


class WhereToArithmetic(Rewrite):
    """A choice becomes products and a sum."""

    name = "where-to-arithmetic"
    safety = Safety.TOLERANCE
    finite = True
    op_types = ("Where",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if any(context.shape(value) is None for value in (*node.inputs, node.outputs[0])):
            return Refusal("the shape is not known")
        if not context.is_float(node.inputs[1]):
            return Refusal(f"the DLA does not compute in {context.dtype(node.inputs[1])}")
        if all(context.is_constant(value) for value in node.inputs):
            return Refusal("it is constant")
        for branch in node.inputs[1:]:
            constant = context.constant(branch)
            if constant is not None and not np.isfinite(constant.astype(np.float64)).all():
                return Refusal("a branch holds an infinity, and 0 times infinity is no number")
        return Match((node,), (node.outputs[0],))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        condition, yes, no = match.nodes[0].inputs
        assert condition is not None
        assert yes is not None
        assert no is not None
        dtype = builder.context.dtype(yes)
        assert dtype is not None
        shape = builder.shape(match.outputs[0])
        flags = builder.context.constant(condition)
        known = None if flags is None else _spread(flags.astype(builder.numpy_dtype(yes)), shape)
        chosen = as_number(builder, condition, dtype) if known is None else builder.constant(known, "mask")
        rest = None if known is None else builder.constant(1 - known, "mask")
        if rest is None and not _is_zero(no, builder):
            rest = builder.op("Sub", builder.like(chosen, 1.0), chosen)
        parts = []
        for branch, weight in ((yes, chosen), (no, rest)):
            if weight is not None and not _is_zero(branch, builder):
                parts.append(_product(builder, branch, weight))
        if not parts:
            return (builder.constant(np.zeros(shape, builder.numpy_dtype(yes))),)
        result = parts[0] if len(parts) == 1 else builder.op("Add", *parts)
        if builder.shape(result) != shape:
            zeros = builder.constant(np.zeros(shape, builder.numpy_dtype(yes)), "zeros")
            result = builder.op("Add", result, zeros)
        return (result,)


def _spread(constant: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """A constant of one value, or one a channel, as it is; any other in the whole shape, as the DLA takes it."""
    small = constant.reshape((1,) * (len(shape) - constant.ndim) + constant.shape)
    dims: tuple[int, ...] = small.shape
    if len(dims) != 4 or small.size == dims[1]:
        return small
    return np.ascontiguousarray(np.broadcast_to(small, shape))


def _is_zero(value: ir.Value, builder: Builder) -> bool:
    constant = builder.context.constant(value)
    return constant is not None and not constant.any()


def _product(builder: Builder, branch: ir.Value, weight: ir.Value) -> ir.Value:
    """`branch * weight`, computed now if both are constant."""
    constants = builder.context.constant(branch), builder.context.constant(weight)
    if constants[0] is not None and constants[1] is not None:
        part = np.asarray(constants[0] * constants[1])
        return builder.constant(_spread(shrink(part), part.shape), "part")
    return builder.op("Mul", branch, weight)


REWRITE = WhereToArithmetic()
