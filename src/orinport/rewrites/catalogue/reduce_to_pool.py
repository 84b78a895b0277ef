"""`GlobalAveragePool(x) -> AveragePool(AveragePool(x))`, or a depthwise convolution: means and maxima over H and W.

## What it does
GlobalAveragePool, GlobalMaxPool, and ReduceMean or ReduceMax over the spatial dimensions become average or max pools. A
window above the DLA's limit becomes a chain of pools whose windows multiply to it; where a mean has no such chain
(13 x 13, 17 x 17), a depthwise convolution with the weights 1 / (H W), or, where that does not fit the convolution
buffer, pools that count zeros at the end, and a constant that corrects the count.

## Why
The parser makes a reduction of them, and the DLA takes none (AVG), or only with newer software (MAX).

## Example
`GlobalAveragePool` on 49 x 49: two average pools, 7 x 7 with stride 7, twice.

## Refused
Reductions over the batch, the channels or axes that are not constant; tensors of other ranks than 3 and 4 (global
pools: 3 to 5); integers; a maximum behind a mask of -inf, because a max pool begins at the lowest finite number.

## Safety
exact: the same mean in another order of summation; the maximum bit-equal.

## Source
Rows P02, P03a, P08, P09, C02a, C07, C10a, Q01c and Q01e of the acceptance catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._infinity import may_be_minus_infinity
from orinport.rewrites.catalogue._movers import absorb
from orinport.rewrites.catalogue._reductions import maximum, mean, reduced_axes
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ReduceToPool"]

_GLOBAL = {"GlobalAveragePool": "mean", "GlobalMaxPool": "max"}
_REDUCE = {"ReduceMean": "mean", "ReduceMax": "max"}


@dataclass(frozen=True, slots=True)
class _Data:
    source: ir.Value
    into: Shuffle
    kind: str
    window: tuple[int, int]


class ReduceToPool(Rewrite):
    """Means and maxima over H and W become pools or depthwise convolutions."""

    name = "reduce-to-pool"
    safety = Safety.EXACT
    op_types = (*_GLOBAL, *_REDUCE)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value = node.inputs[0]
        shape = context.shape(value)
        if value is None or shape is None or context.shape(node.outputs[0]) is None:
            return Refusal("the shape is not known")
        if not context.is_float(value):
            return Refusal(f"pools do not take {context.dtype(value)}")
        if 0 in shape:
            return Refusal("the tensor holds no elements")
        if not 3 <= len(shape) <= (5 if node.op_type in _GLOBAL else 4):
            return Refusal(f"the tensor has {len(shape)} dimensions")
        axes = reduced_axes(node, shape, context)
        if axes is None:
            return Refusal("the axes are known at run time only")
        if not axes or min(axes) < 2:
            return None if not axes else Refusal("it also reduces the batch or the channels")
        kind = {**_GLOBAL, **_REDUCE}[node.op_type]
        if kind == "max" and may_be_minus_infinity(value, context):
            return Refusal("the values may all be -inf, which a max pool does not keep")
        board, window = _board(shape, axes)
        source, into, movers = absorb(value, Shuffle.reshape(shape, board), context)
        return Match((node, *movers), (node.outputs[0],), _Data(source, into, kind, window))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        data: _Data = match.data
        value = builder.shuffle(data.source, data.into)
        result = maximum(value, data.window, builder) if data.kind == "max" else mean(value, data.window, builder)
        return (builder.reshape(result, builder.shape(match.outputs[0])),)


def _board(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
    """The 4-D shape to pool on, and the window."""
    height, width = (1, shape[2]) if len(shape) == 3 else (prod(shape[2:-1]), shape[-1])
    last = len(shape) - 1 in axes
    tall = len(shape) > 3 and any(axis in axes for axis in range(2, len(shape) - 1))
    return (shape[0], shape[1], height, width), (height if tall else 1, width if last else 1)


REWRITE = ReduceToPool()
