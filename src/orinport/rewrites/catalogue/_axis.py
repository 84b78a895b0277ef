"""One axis of a tensor of any rank, seen in a 4-D tensor in which it stands alone."""

from __future__ import annotations

from math import prod

__all__ = ["Board", "board_of"]

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
