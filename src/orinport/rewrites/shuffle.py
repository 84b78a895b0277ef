"""Shape movers as values: `out = in.reshape(expand).transpose(perm).reshape(shape)`.

Reshape, Flatten, Squeeze, Unsqueeze and Transpose, and chains of them, all have this form. In it they compose,
invert and compare without running anything. The form is also that of a moved edge (`EdgeMapping`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Shuffle"]

Dims = tuple[int, ...]

_BOARD = 4
"""Dimensions of a tensor of the DLA."""


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A rearrangement of a tensor's elements; `before` is the input's shape.

    `expand` and `perm` are kept as short as possible: no dimension of 1, and no two neighbours that stay
    neighbours. Two shuffles of equal input move elements alike exactly if these two are equal.
    """

    before: Dims
    expand: Dims
    perm: Dims
    shape: Dims

    @classmethod
    def make(cls, before: Sequence[int], expand: Sequence[int], perm: Sequence[int], shape: Sequence[int]) -> Shuffle:
        """The shuffle in its shortest form; all four describe the same number of elements."""
        short, order = _shorten(tuple(expand), tuple(perm))
        return cls(tuple(before), short, order, tuple(shape))

    @classmethod
    def reshape(cls, before: Sequence[int], shape: Sequence[int]) -> Shuffle:
        """Another shape, the elements in the same order."""
        return cls.make(before, before, range(len(before)), shape)

    @classmethod
    def transpose(cls, before: Sequence[int], perm: Sequence[int]) -> Shuffle:
        """Dimensions in another order."""
        return cls.make(before, before, perm, [before[axis] for axis in perm])

    @property
    def keeps_order(self) -> bool:
        """A reshape: the elements stay in the same order."""
        return len(self.perm) <= 1

    @property
    def is_identity(self) -> bool:
        """Nothing changes at all."""
        return self.keeps_order and self.before == self.shape

    def then(self, other: Shuffle) -> Shuffle | None:
        """Both, one after the other; None if they do not compose to this form."""
        cut = _refine([self.expand[axis] for axis in self.perm], other.expand)
        if cut is None:
            return None
        first, second = cut
        ranges = _positions(first)
        fine_of_axis: list[list[int]] = [[] for _ in self.expand]
        for position, axis in enumerate(self.perm):
            fine_of_axis[axis] = ranges[position]
        sizes = [size for part in first for size in part]
        order_in = [fine for axis in fine_of_axis for fine in axis]
        place = {fine: index for index, fine in enumerate(order_in)}
        groups = _positions(second)
        order_out = [fine for axis in other.perm for fine in groups[axis]]
        return Shuffle.make(
            self.before, [sizes[fine] for fine in order_in], [place[fine] for fine in order_out], other.shape
        )

    def inverse(self) -> Shuffle:
        """The way back."""
        back = [0] * len(self.perm)
        for position, axis in enumerate(self.perm):
            back[axis] = position
        return Shuffle.make(self.shape, [self.expand[axis] for axis in self.perm], back, self.before)

    def without_batch(self) -> Shuffle | None:
        """The same for one sample: both first dimensions dropped, if they are equal and stay in front."""
        if not self.before or not self.shape or self.before[0] != self.shape[0]:
            return None
        batch = self.before[0]
        if batch == 1:
            return Shuffle.make(self.before[1:], self.expand, self.perm, self.shape[1:])
        if not self.perm or self.perm[0] != 0 or self.expand[0] % batch:
            return None
        return Shuffle.make(self.before[1:], (self.expand[0] // batch, *self.expand[1:]), self.perm, self.shape[1:])

    def leading(self, axis: int) -> tuple[int, Shuffle] | None:
        """For an axis of the result that is made of the leading part of the input's second dimension: how many elements
        of that dimension stand for one of the axis, and the shuffle with a single element left of the axis.

        None if the axis is made of anything else. The first dimension of the input stays whole.
        """
        fine, size = self._fine(axis), self.shape[axis]
        if fine is None or len(self.before) < 2:
            return None
        if fine.ahead() != self.before[0] or self.before[1] % size:
            return None
        each = self.before[1] // size
        rest = (*self.shape[:axis], 1, *self.shape[axis + 1 :])
        return each, fine.shuffle(1, (self.before[0], each, *self.before[2:]), rest)

    def along(self, axis: int) -> int | None:
        """The axis of the input that an axis of the result is, whole and nothing else; None if it is no such one."""
        fine, size = self._fine(axis), self.shape[axis]
        if fine is None:
            return None
        ahead = fine.ahead()
        places = enumerate(self.before)
        return next((place for place, each in places if each == size and prod(self.before[:place]) == ahead), None)

    def shortened(self, axis: int, count: int) -> Shuffle | None:
        """The same for `count` elements along an axis that `along` finds in the input; None for any other."""
        fine, source = self._fine(axis), self.along(axis)
        if fine is None or source is None:
            return None
        before = (*self.before[:source], count, *self.before[source + 1 :])
        return fine.shuffle(count, before, (*self.shape[:axis], count, *self.shape[axis + 1 :]))

    def permutation(self) -> Dims | None:
        """The order of four dimensions that does the same as a reshape from four to four; None if there is none."""
        before, shape = self.before, self.shape
        if not self.keeps_order or not len(before) == len(shape) == _BOARD or before[0] != shape[0]:
            return None
        large, ones = ([axis for axis in range(1, 4) if (before[axis] == 1) is single] for single in (False, True))
        if [before[axis] for axis in large] != [size for size in shape[1:] if size != 1]:
            return None
        return (0, *((large if size != 1 else ones).pop(0) for size in shape[1:]))

    def _fine(self, axis: int) -> _Fine | None:
        """The shuffle in factors of which one is the axis of the result; None if it is not a single one of them."""
        size, before = self.shape[axis], prod(self.shape[:axis])
        cut = _refine([self.expand[each] for each in self.perm], (before, size, prod(self.shape[axis + 1 :])))
        if cut is None or size < 2 or cut[1][1] != [size]:
            return None
        moved = [(self.perm[place], part) for place, parts in enumerate(cut[0]) for part in range(len(parts))]
        order = sorted(range(len(moved)), key=lambda fine: moved[fine])
        return _Fine([part for parts in cut[0] for part in parts], order, len(cut[1][0]))

    def apply(self, array: NDArray[Any]) -> NDArray[Any]:
        """`array` rearranged; a view where numpy can make one."""
        result: NDArray[np.generic] = array.reshape(self.expand).transpose(self.perm).reshape(self.shape)
        return result

    def steps(self) -> tuple[tuple[str, Dims], ...]:
        """The shortest chain of `("reshape", shape)` and `("transpose", perm)` that does this."""
        if self.keeps_order:
            return () if self.before == self.shape else (("reshape", self.shape),)
        ways = [way for way in (_transpose_first(self), _transpose_last(self)) if way is not None]
        if ways:
            return min(ways, key=len)
        expand, perm = self._four()
        return (("reshape", expand), ("transpose", perm), ("reshape", self.shape))

    def _four(self) -> tuple[Dims, Dims]:
        """`expand` and `perm` with ones up to four dimensions, as the DLA rearranges; behind a batch that stays."""
        missing = 4 - len(self.expand)
        if missing <= 0 or len(self.before) != 4 or len(self.shape) != 4:
            return self.expand, self.perm
        head = int(self.perm[0] == 0 and self.before[0] == self.expand[0] == self.shape[0])
        expand = (*self.expand[:head], *[1] * missing, *self.expand[head:])
        perm = [axis if axis < head else axis + missing for axis in self.perm]
        return expand, (*perm[:head], *range(head, head + missing), *perm[head:])


@dataclass(frozen=True, slots=True)
class _Fine:
    """Factors in the order of the result, their order in the input, and which of them is the axis in question."""

    sizes: list[int]
    order: list[int]
    chosen: int

    def ahead(self) -> int:
        """Elements of the input's dimensions in front of the axis."""
        return prod(self.sizes[fine] for fine in self.order[: self.order.index(self.chosen)])

    def shuffle(self, count: int, before: Dims, shape: Dims) -> Shuffle:
        """With `count` elements left of the axis."""
        sizes = [count if fine == self.chosen else size for fine, size in enumerate(self.sizes)]
        rank = {fine: index for index, fine in enumerate(self.order)}
        perm = [rank[fine] for fine in range(len(sizes))]
        return Shuffle.make(before, [sizes[fine] for fine in self.order], perm, shape)


def _shorten(expand: Dims, perm: Dims) -> tuple[Dims, Dims]:
    order = [axis for axis in perm if expand[axis] != 1]
    rank = {axis: index for index, axis in enumerate(sorted(order))}
    sizes = [expand[axis] for axis in sorted(order)]
    order = [rank[axis] for axis in order]
    joined = [bool(index) and order[index] == order[index - 1] + 1 for index in range(len(order))]
    heads = [axis for axis, join in zip(order, joined, strict=True) if not join]
    width = dict.fromkeys(heads, 1)
    head = -1
    for axis, join in zip(order, joined, strict=True):
        head = head if join else axis
        width[head] = axis - head + 1
    starts = sorted(heads)
    place = {start: index for index, start in enumerate(starts)}
    return (
        tuple(prod(sizes[start : start + width[start]]) for start in starts),
        tuple(place[start] for start in heads),
    )


def _refine(left: Sequence[int], right: Sequence[int]) -> tuple[list[list[int]], list[list[int]]] | None:
    """Cut both factorisations of one number into the same factors; None if their bounds do not nest."""
    cuts_left: list[list[int]] = [[] for _ in left]
    cuts_right: list[list[int]] = [[] for _ in right]
    i = j = 0
    a = left[0] if left else 1
    b = right[0] if right else 1
    while i < len(left) and j < len(right):
        step = min(a, b)
        if a % step or b % step:
            return None
        cuts_left[i].append(step)
        cuts_right[j].append(step)
        a, b = a // step, b // step
        if a == 1:
            i += 1
            a = left[i] if i < len(left) else 1
        if b == 1:
            j += 1
            b = right[j] if j < len(right) else 1
    return cuts_left, cuts_right


def _positions(parts: Sequence[Sequence[int]]) -> list[list[int]]:
    result: list[list[int]] = []
    start = 0
    for part in parts:
        result.append(list(range(start, start + len(part))))
        start += len(part)
    return result


def _members(sizes: Sequence[int], dims: Sequence[int]) -> list[list[int]] | None:
    """For each of `sizes`, the consecutive axes of `dims` (those above 1) whose product it is."""
    axes = [axis for axis, size in enumerate(dims) if size != 1]
    result: list[list[int]] = []
    for size in sizes:
        taken: list[int] = []
        while axes and prod(dims[axis] for axis in taken) < size:
            taken.append(axes.pop(0))
        if prod(dims[axis] for axis in taken) != size:
            return None
        result.append(taken)
    return result


def _order(big: Sequence[int], dims: Dims, wanted: Dims) -> Dims:
    """Axes `big` in this order with the axes of size 1 put between, so that the shape is `wanted` if it can be."""
    rest = [axis for axis in range(len(dims)) if axis not in set(big)]
    queue = list(big)
    order: list[int] = []
    for size in wanted:
        if size == 1 and rest:
            order.append(rest.pop(0))
        elif size != 1 and queue:
            order.append(queue.pop(0))
    return (*order, *rest, *queue) if not queue else (*rest, *big)


def _transpose_first(shuffle: Shuffle) -> tuple[tuple[str, Dims], ...] | None:
    members = _members(shuffle.expand, shuffle.before)
    if members is None:
        return None
    perm = _order([axis for index in shuffle.perm for axis in members[index]], shuffle.before, shuffle.shape)
    if len(perm) != len(shuffle.before):
        return None
    moved = tuple(shuffle.before[axis] for axis in perm)
    head = ("transpose", perm)
    return (head,) if moved == shuffle.shape else (head, ("reshape", shuffle.shape))


def _transpose_last(shuffle: Shuffle) -> tuple[tuple[str, Dims], ...] | None:
    back = _transpose_first(shuffle.inverse())
    if back is None:
        return None
    perm = back[0][1]
    forward = [0] * len(perm)
    for position, axis in enumerate(perm):
        forward[axis] = position
    middle = tuple(shuffle.shape[axis] for axis in perm)
    tail = ("transpose", tuple(forward))
    return (tail,) if middle == shuffle.before else (("reshape", middle), tail)
