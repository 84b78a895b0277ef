"""`TopK(x, k) -> Concat(Max(...), Max(Min(...)), ...)`: the largest few values by a sorting network.

## What it does
TopK with a small k of which only the values are used becomes a network of Max and Min. The axis is halved again and
again; at each step the sorted values of both halves are merged by Batcher's odd-even merge, of which only the first k
results are made. The k values are joined in the end.

## Why
TopK is no layer of the DLA. Max and Min of two tensors are, in every version.

## Example
The two best of 16 channels: 14 slices and 14 Max and Min, of half the size at each step.

## Refused
k of 1, for `topk-to-reduce-max`; k known at run time only; places that are used, because the DLA returns no integers;
values in any order; the batch of a 4-D tensor as axis; more layers than are worth it.

## Safety
exact: bit-equal for all but NaN, for which ONNX leaves the order open.

## Source
Rows E01, N01, V01a and X05 of the acceptance catalogue. D. E. Knuth, The Art of Computer Programming, volume 3, 5.3.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.builder import RefusedError
from orinport.rewrites.catalogue._axis import channels_first
from orinport.rewrites.catalogue._movers import absorb
from orinport.rewrites.catalogue._slices import split
from orinport.rewrites.catalogue.topk_to_reduce_max import chosen_count
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "TopkToMaxMin"]

_Term: TypeAlias = "ir.Value | tuple[bool, _Term, _Term]"
"""A value, or the larger (True) or smaller of two terms."""


class TopkToMaxMin(Rewrite):
    """The first few of the largest become a sorting network."""

    name = "topk-to-max-min"
    safety = Safety.EXACT
    op_types = ("TopK",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value = node.inputs[0]
        shape = context.shape(value)
        if value is None or not shape or 0 in shape or not context.is_float(value):
            return Refusal("the DLA computes in floating-point types, on shapes that are known")
        count = chosen_count(node, context)
        if isinstance(count, Refusal):
            return count
        if count == 1:
            return None
        axis = int(context.attribute(node, "axis", -1)) % len(shape)
        if not context.attribute(node, "sorted", 1):
            return Refusal("it gives the values in any order, so there is nothing to prove")
        if axis == 0 and len(shape) == 4:
            return Refusal("it chooses among samples, and the DLA does not slice the batch")
        into = channels_first(shape, axis)
        result = channels_first((*shape[:axis], count, *shape[axis + 1 :]), axis)
        source, start, movers = absorb(value, into, context)
        largest = bool(context.attribute(node, "largest", 1))
        return Match((node, *movers), (node.outputs[0],), (source, start, result.inverse(), count, largest))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        source, start, back, count, largest = match.data
        ranks = _best([builder.shuffle(source, start)], count, largest, builder)
        most = int(builder.context.figure("sorting", "layers"))
        if len(builder.nodes) > most:
            raise RefusedError(f"the {count} best would need {len(builder.nodes)} layers, more than {most}")
        return (builder.shuffle(builder.op("Concat", *ranks, axis=1), back),)


def _best(ranks: list[ir.Value], count: int, largest: bool, builder: Builder) -> list[ir.Value]:
    """The first `count` of all channels in order, one channel each; `ranks` are sorted lists side by side."""
    beside: list[ir.Value] = []
    while (width := builder.shape(ranks[0])[1]) > 1:
        half, odd = divmod(width, 2)
        parts = [split(rank, 1, [half, half, *[1] * odd], builder) for rank in ranks]
        if odd:
            beside = _merged([part[2] for part in parts], beside, count, largest, builder)
        ranks = _merged([part[0] for part in parts], [part[1] for part in parts], count, largest, builder)
    return _merged(ranks, beside, count, largest, builder)


def _merged(
    first: list[ir.Value], second: list[ir.Value], count: int, largest: bool, builder: Builder
) -> list[ir.Value]:
    """The first `count` of two sorted lists."""
    done: dict[int, ir.Value] = {}

    def build(term: _Term) -> ir.Value:
        if not isinstance(term, tuple):
            return term
        if id(term) not in done:
            above, left, right = term
            done[id(term)] = builder.op("Max" if above is largest else "Min", build(left), build(right))
        return done[id(term)]

    terms = _odd_even(list(first), list(second))[:count]
    return [build(term) for term in terms]


def _odd_even(first: list[_Term], second: list[_Term]) -> list[_Term]:
    """Batcher's merge of two sorted lists of any length, largest first."""
    if not first or not second:
        return first or second
    if len(first) == len(second) == 1:
        return [(True, first[0], second[0]), (False, first[0], second[0])]
    left, right = _odd_even(first[::2], second[::2]), _odd_even(first[1::2], second[1::2])
    result, pairs = left[:1], min(len(left) - 1, len(right))
    for a, b in zip(right[:pairs], left[1 : pairs + 1], strict=True):
        result += [(True, a, b), (False, a, b)]
    return [*result, *right[pairs:], *left[pairs + 1 :]]


REWRITE = TopkToMaxMin()
