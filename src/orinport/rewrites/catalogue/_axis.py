"""One axis of a tensor of any rank, seen in a 4-D tensor in which it stands alone."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._movers import chain_from
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx_ir as ir

    from orinport.rewrites.context import RewriteContext

__all__ = ["ALONE", "Board", "board_of", "channels_first", "stands_alone"]

ALONE = "nothing around it is 4-D, so it would only be copied to the DLA and back"

Board = tuple[tuple[int, int, int, int], int]
"""A 4-D shape of the same order of elements, and where the axis is in it."""


def board_of(shape: tuple[int, ...], axis: int) -> Board:
    """Where `axis` of `shape` stands in four dimensions: the batch stays in front, what lies between is joined."""
    if len(shape) == 4:
        return (shape[0], shape[1], shape[2], shape[3]), axis
    before, size, after = shape[:axis], shape[axis], prod(shape[axis + 1 :])
    if len(before) <= 1:
        return (prod(before), size, after, 1), 1
    return (before[0], prod(before[1:]), size, after), 2


def channels_first(shape: tuple[int, ...], axis: int) -> Shuffle:
    """The tensor in four dimensions with `axis` as its channels; that of rank 4 changes places with them."""
    board, place = board_of(shape, axis)
    swap = [0, 1, 2, 3]
    swap[1], swap[place] = swap[place], swap[1]
    return Shuffle.make(shape, board, swap, [board[each] for each in swap])


def stands_alone(sources: Iterable[ir.Value], outputs: Iterable[ir.Value], context: RewriteContext) -> bool:
    """On a board nothing is won: neither what it reads nor what its results become, over shape movers, is 4-D."""
    if context.target is None or any(context.rank(source) == 4 for source in sources):
        return False
    return all(chain_from(output, 4, context) is None for output in outputs)
