"""Fixed choices of elements, given by a table, as choices along one axis of a 4-D tensor."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._movers import chain_into
from orinport.rewrites.catalogue._selection import runs_of
from orinport.rewrites.rewrite import Match, Refusal
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.context import RewriteContext

__all__ = ["AMONG_SAMPLES", "Choice", "Frame", "axes_of", "choice_of", "frames_of", "match_choice", "read_choice"]

Dims = tuple[int, ...]
Board = tuple[int, int, int, int]

AMONG_SAMPLES = "it chooses among samples, and the DLA does not slice the batch"


@dataclass(frozen=True, slots=True)
class Choice:
    """The elements `indices` along `axis` of a tensor seen as `board`."""

    board: Board
    axis: int
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """A value as a rearrangement of another one, `source`; `nodes` are the movers between."""

    source: ir.Value
    moved: Shuffle
    nodes: tuple[ir.Node, ...]

    def numbering(self) -> NDArray[np.int64]:
        """For each element of the value, in order, its place in the source."""
        return self.moved.apply(np.arange(prod(self.moved.before))).reshape(-1)


def read_choice(node: ir.Node, context: RewriteContext) -> tuple[Dims, NDArray[np.int64]] | Refusal | None:
    """The data's shape and the constant indices of a GatherElements or GatherND, or why it cannot become slices."""
    data, indices = node.inputs[0], context.constant(node.inputs[1])
    if data is None or context.is_constant(data) or not context.is_float(data):
        return None
    shape = context.shape(data)
    if not shape:
        return Refusal("the shape is not known, or has no axes")
    if indices is None:
        return Refusal("the indices are known at run time only")
    if indices.size == 0 or 0 in shape:
        return Refusal("it gives no elements")
    return shape, indices.astype(np.int64)


def frames_of(value: ir.Value, context: RewriteContext) -> list[Frame]:
    """The value as it is, and as its source in front of all shape movers, the latter first."""
    shape = context.shape(value) or ()
    own = Frame(value, Shuffle.reshape(shape, shape), ())
    chain = None if context.is_constant(value) else chain_into(value, context)
    return [own] if chain is None else [Frame(*chain), own]


def axes_of(shape: Dims) -> Iterator[tuple[Board, int]]:
    """Boards that a tensor of this shape is seen as without moving anything but its dimensions' borders."""
    if len(shape) == 4:
        board = (shape[0], shape[1], shape[2], shape[3])
        yield from ((board, axis) for axis in (1, 2, 3))


def choice_of(table: NDArray[np.int64], shape: Dims, most: int) -> Choice | Refusal:
    """`table` says for each element of the result which element of a tensor of `shape` it is; up to `most` slices."""
    flat = table.reshape(-1)
    for board, axis in axes_of(shape):
        indices = _along(flat, prod(board[:axis]), board[axis], prod(board[axis + 1 :]))
        if indices is not None:
            return _affordable(Choice(board, axis, indices), most)
    after = _contiguous(flat, prod(shape))
    rows, count = flat[::after] // after, prod(shape) // after
    batch = shape[0] if shape else 1
    found = None
    for before in _divisors(gcd(len(rows), count)):
        indices = _along(rows, before, count // before, 1)
        if indices is not None and (before % batch == 0 or len(shape) != 4):
            found = before, indices
            break
    if found is None:
        return Refusal(AMONG_SAMPLES)
    before, indices = found
    batch = batch if before % batch == 0 else 1
    if before == batch:
        plane = shape[-2:] if len(shape) > 2 and prod(shape[-2:]) == after else (after, 1)
        return _affordable(Choice((batch, count // before, plane[0], plane[1]), 1, indices), most)
    return _affordable(Choice((batch, before // batch, count // before, after), 2, indices), most)


def _affordable(choice: Choice, most: int) -> Choice | Refusal:
    count = len(runs_of(choice.indices))
    return choice if count <= most else Refusal(f"it would need {count} slices, more than {most}")


def _along(flat: NDArray[np.int64], before: int, size: int, after: int) -> tuple[int, ...] | None:
    """Which of `size` are chosen, if the table does nothing else to a tensor `(before, size, after)`."""
    if flat.size % (before * after):
        return None
    cube = flat.reshape(before, -1, after)
    chosen = cube[0, :, 0] // after
    if chosen.size == 0 or chosen.min() < 0 or chosen.max() >= size:
        return None
    wanted = (np.arange(before)[:, None, None] * size + chosen[None, :, None]) * after + np.arange(after)
    return tuple(int(each) for each in chosen) if np.array_equal(cube, wanted) else None


def _contiguous(flat: NDArray[np.int64], count: int) -> int:
    """The length of the stretches that the table leaves as they are, in the source and in the result."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(flat) != 1) + 1])
    return int(np.gcd.reduce(np.concatenate([starts, flat[starts], [flat.size, count]])))


def _divisors(number: int) -> list[int]:
    """Largest first."""
    return [each for each in range(number, 0, -1) if number % each == 0]


def match_choice(
    node: ir.Node, table: NDArray[np.int64], context: RewriteContext, crop: Dims | None = None
) -> Match | Refusal:
    """Match for a node whose result is the elements `table` of its first input, in the order of `table`.

    With `crop` the table counts the elements of the input's first rows only, as many of each dimension as it says. The
    data are (source, `crop`, choice in what is left, shuffle from there to the result).
    """
    value = node.inputs[0]
    assert value is not None
    most = int(context.figure("selection", "slices"))
    whole = crop is None or crop == context.shape(value)
    frames = frames_of(value, context) if whole else [Frame(value, Shuffle.reshape(crop or (), crop or ()), ())]
    refusals: list[Refusal] = []
    matches: list[tuple[int, Match]] = []
    for frame in frames:
        numbers = frame.numbering()[table]
        for order in _orders(numbers):
            found = choice_of(numbers.transpose(order), frame.moved.before, most)
            if isinstance(found, Refusal):
                refusals.append(found)
                continue
            place = list(found.board)
            place[found.axis] = len(found.indices)
            moved = tuple(numbers.shape[axis] for axis in order)
            back = [order.index(axis) for axis in range(len(order))]
            after = Shuffle.make(place, moved, back, numbers.shape)
            data = (frame.source, None if whole else crop, found, after)
            match = Match((node, *frame.nodes), (node.outputs[0],), data)
            matches.append((len(runs_of(found.indices)), match))
    return min(matches, key=lambda each: each[0])[1] if matches else refusals[0]


def _orders(numbers: NDArray[np.int64]) -> list[tuple[int, ...]]:
    """The dimensions of a table as they are, and by how far one step along each of them leads, largest first."""
    own = tuple(range(numbers.ndim))
    origin = (0,) * numbers.ndim

    def reach(axis: int) -> int:
        if numbers.shape[axis] < 2:
            return 0
        step = [0] * numbers.ndim
        step[axis] = 1
        return abs(int(numbers[tuple(step)]) - int(numbers[origin]))

    sorted_ = tuple(sorted(own, key=lambda axis: (-reach(axis), axis)))
    return [own] if sorted_ == own else [own, sorted_]
