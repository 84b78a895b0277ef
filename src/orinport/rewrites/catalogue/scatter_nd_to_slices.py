"""`ScatterND(x, indices, u) -> Concat(Slice(x), u, Slice(x))`: fixed places overwritten by slices.

## What it does
ScatterND with constant indices becomes one Slice for each stretch that comes from the data or from the updates, and a
Concat along the channels. Transposes in front are taken into account. With the reductions add and mul, the updates are
first combined with the elements that they fall on, by one Add or Mul.

## Why
Scatter is no layer of the DLA; Slice and Concat along the channels are.

## Example
`x[:, 2:4] = y` as PyTorch exports it, Transpose, ScatterND and Transpose: channels 0 and 1, the updates, channels 4 on.

## Refused
Indices known at run time, or that repeat; places that mix samples; the reductions max and min, for which runtimes treat
NaN differently; integers; data and updates that are both constant, and constants that are combined; more stretches than
are worth a slice each.

## Safety
exact: bit-equal. An infinity in what is overwritten goes away with it. Negative indices count from the end.

## Source
Rows N01, V01a and X01b of the acceptance catalogue; ONNX operator specification, ScatterND.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._choices import Frame, axes_of, frames_of
from orinport.rewrites.catalogue._selection import Run, assemble, stretches_of, take
from orinport.rewrites.catalogue.gather_nd_to_slices import linear_places
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ScatterNdToSlices"]

_REDUCTIONS = {"none": "", "add": "Add", "mul": "Mul"}

Board = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Plan:
    """Rows of both tensors along `axis` of their boards: `places` are the rows that the updates fall on, in order."""

    data: Frame
    updates: Frame
    board: Board
    update_board: Board
    axis: int
    places: tuple[int, ...]
    runs: tuple[Run, ...]
    reduction: str


class ScatterNdToSlices(Rewrite):
    """Overwritten places become a concatenation."""

    name = "scatter-nd-to-slices"
    safety = Safety.EXACT
    op_types = ("ScatterND",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        data, _, updates = node.inputs
        indices = context.constant(node.inputs[1])
        if data is None or updates is None or not context.is_float(data):
            return None
        shape, given = context.shape(data), context.shape(updates)
        reduction = _REDUCTIONS.get(context.attribute(node, "reduction", "none"))
        if reduction is None:
            return Refusal(f"it combines by {context.attribute(node, 'reduction')}, which treats NaN as it likes")
        constants = [context.is_constant(each) for each in (data, updates)]
        if indices is None:
            return Refusal("the indices are known at run time only")
        if not shape or given is None or 0 in shape or 0 in given:
            return Refusal("a shape is not known, or holds no elements")
        if all(constants) or (reduction and any(constants)):
            return Refusal("it writes constants into constants, or combines with them")
        places = linear_places(indices, shape)
        if isinstance(places, Refusal):
            return places
        if len(set(places.reshape(-1).tolist())) != places.size:
            return Refusal("an index stands twice, and ONNX leaves open which update comes last")
        rest = prod(shape[indices.shape[-1] :])
        written = (places.reshape(-1, 1) * rest + np.arange(rest)).reshape(-1)
        plan = _plan(data, updates, written, reduction, context)
        if isinstance(plan, Refusal):
            return plan
        return Match((node, *plan.data.nodes, *plan.updates.nodes), (node.outputs[0],), plan)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        plan: _Plan = match.data
        first = _seen_as(plan.data.source, plan.board, builder)
        second = _seen_as(plan.updates.source, plan.update_board, builder)
        if plan.reduction:
            second = builder.op(plan.reduction, take(builder, first, plan.axis, plan.places), second)
        made = second if len(plan.runs) == 1 else assemble(builder, first, second, plan.axis, plan.runs)
        return (builder.shuffle(builder.reshape(made, plan.data.moved.before), plan.data.moved),)


def _seen_as(value: ir.Value, board: Board, builder: Builder) -> ir.Value:
    constant = builder.context.constant(value)
    if constant is None:
        return builder.reshape(value, board)
    return builder.constant(constant.reshape(board), "rows")


def _plan(
    data: ir.Value, updates: ir.Value, written: NDArray[np.int64], reduction: str, context: RewriteContext
) -> _Plan | Refusal:
    """How rows of the two interleave; `written` says for each element of the updates where in the data it goes."""
    most = int(context.figure("selection", "slices"))
    refusal: Refusal | None = None
    for target in frames_of(data, context):
        for source in frames_of(updates, context):
            origin = np.empty(len(written), np.int64)
            origin[source.numbering()] = target.numbering()[written]
            found = _interleave(target.moved.before, origin, most)
            if not isinstance(found, Refusal):
                board, axis, rows, runs = found
                place = [*board[:axis], len(rows), *board[axis + 1 :]]
                update_board = (place[0], place[1], place[2], place[3])
                return _Plan(target, source, board, update_board, axis, rows, runs, reduction)
            refusal = refusal or found
    assert refusal is not None
    return refusal


def _interleave(
    shape: tuple[int, ...], written: NDArray[np.int64], most: int
) -> tuple[Board, int, tuple[int, ...], tuple[Run, ...]] | Refusal:
    refusal: Refusal | None = None
    for board, axis in _boards(shape, written):
        before, size, after = prod(board[:axis]), board[axis], prod(board[axis + 1 :])
        if len(written) % (before * after):
            continue
        rows = written.reshape(before, -1, after)[0, :, 0] // after
        wanted = (np.arange(before)[:, None, None] * size + rows[None, :, None]) * after + np.arange(after)
        if rows.max() >= size or not np.array_equal(written, wanted.reshape(-1)):
            continue
        source = {int(place): index for index, place in enumerate(rows)}
        runs = stretches_of([(place not in source, source.get(place, place)) for place in range(size)])
        if len(runs) <= most:
            return board, axis, tuple(source), tuple(runs)
        refusal = refusal or Refusal(f"it would need {len(runs)} slices, more than {most}")
    return refusal or Refusal("it writes places that are no whole rows, or mixes samples")


def _boards(shape: tuple[int, ...], written: NDArray[np.int64]) -> Iterator[tuple[Board, int]]:
    """The tensor as it is, and then with everything in front of what stays side by side joined."""
    yield from axes_of(shape)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(written) != 1) + 1])
    after = int(np.gcd.reduce(np.concatenate([starts, written[starts], [len(written), prod(shape)]])))
    for batch in dict.fromkeys((shape[0], 1)):
        if len(shape) == 4 and batch != shape[0]:
            continue
        if prod(shape) % (batch * after) == 0:
            plane = shape[-2:] if len(shape) > 2 and prod(shape[-2:]) == after else (after, 1)
            yield (batch, prod(shape) // (batch * after), plane[0], plane[1]), 1


REWRITE = ScatterNdToSlices()
