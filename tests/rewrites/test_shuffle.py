"""Shuffles: composing, inverting and writing them agrees with numpy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orinport.rewrites.shuffle import Shuffle

SIZES = [1, 2, 6, 12, 24, 60, 64, 210]


@st.composite
def factors(draw: st.DrawFn, volume: int) -> tuple[int, ...]:
    dims: list[int] = []
    while volume > 1:
        factor = draw(st.sampled_from([f for f in range(2, volume + 1) if volume % f == 0]))
        dims.append(factor)
        volume //= factor
    for _ in range(draw(st.integers(0, 2))):
        dims.insert(draw(st.integers(0, len(dims))), 1)
    return tuple(dims) or (1,)


@st.composite
def shuffles(draw: st.DrawFn, volume: int, before: tuple[int, ...] | None = None) -> tuple[Shuffle, tuple[int, ...]]:
    before = draw(factors(volume)) if before is None else before
    expand = draw(factors(volume))
    perm = tuple(draw(st.permutations(range(len(expand)))))
    return Shuffle.make(before, expand, perm, draw(factors(volume))), before


@given(st.data())
def test_inverse_and_steps(data: st.DataObject) -> None:
    volume = data.draw(st.sampled_from(SIZES))
    before, expand = data.draw(factors(volume)), data.draw(factors(volume))
    perm, shape = tuple(data.draw(st.permutations(range(len(expand))))), data.draw(factors(volume))
    shuffle = Shuffle.make(before, expand, perm, shape)
    array = np.arange(volume).reshape(before)
    moved = array.reshape(expand).transpose(perm).reshape(shape)
    np.testing.assert_array_equal(shuffle.apply(array), moved)
    np.testing.assert_array_equal(shuffle.inverse().apply(moved), array)
    written = array
    for kind, numbers in shuffle.steps():
        written = written.reshape(numbers) if kind == "reshape" else written.transpose(numbers)
    np.testing.assert_array_equal(written, moved)
    assert len(shuffle.steps()) <= 3
    assert shuffle.is_identity == (not shuffle.steps())


@given(st.data())
def test_composition(data: st.DataObject) -> None:
    volume = data.draw(st.sampled_from(SIZES))
    first, before = data.draw(shuffles(volume))
    second, _ = data.draw(shuffles(volume, first.shape))
    both = first.then(second)
    array = np.arange(volume).reshape(before)
    if both is not None:
        np.testing.assert_array_equal(both.apply(array), second.apply(first.apply(array)))
    back = first.then(first.inverse())
    assert back is not None
    assert back.is_identity


@given(st.data())
def test_an_axis_that_stays_whole(data: st.DataObject) -> None:
    """Some of its elements in front of the shuffle are the same behind it."""
    dims = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    perm = tuple(data.draw(st.permutations(range(len(dims)))))
    shuffle = Shuffle.transpose(tuple(dims), perm)
    axis = data.draw(st.integers(0, len(dims) - 1))
    place = shuffle.along(axis)
    if place is None:
        assert shuffle.shape[axis] < 2
        assert shuffle.shortened(axis, 1) is None
        return
    count = data.draw(st.integers(1, shuffle.shape[axis]))
    short = shuffle.shortened(axis, count)
    assert short is not None
    array = np.arange(int(np.prod(dims))).reshape(dims)
    some = range(count)
    np.testing.assert_array_equal(short.apply(array.take(some, place)), shuffle.apply(array).take(some, axis))


@given(st.data())
def test_a_reshape_of_four_dimensions_as_a_transpose(data: st.DataObject) -> None:
    before = data.draw(factors(data.draw(st.sampled_from(SIZES))))
    shape = data.draw(factors(int(np.prod(before))))
    shuffle = Shuffle.reshape(before, shape)
    perm = shuffle.permutation()
    if perm is not None:
        array = np.arange(int(np.prod(before))).reshape(before)
        np.testing.assert_array_equal(array.transpose(perm), shuffle.apply(array))


def test_ones_move_by_a_transpose() -> None:
    assert Shuffle.reshape((2, 16, 1, 1), (2, 1, 16, 1)).permutation() == (0, 2, 1, 3)
    assert Shuffle.reshape((1, 4, 1, 3), (1, 4, 3, 1)).permutation() == (0, 1, 3, 2)
    assert Shuffle.reshape((1, 4, 3, 1), (1, 12, 1, 1)).permutation() is None
    assert Shuffle.reshape((2, 8, 1, 1), (1, 16, 1, 1)).permutation() is None
    assert Shuffle.transpose((1, 4, 3, 1), (0, 2, 1, 3)).permutation() is None


def test_unaligned_shuffles_do_not_compose() -> None:
    turned = Shuffle.transpose((2, 3), (1, 0))
    assert turned.then(Shuffle.make((3, 2), (2, 3), (1, 0), (3, 2))) is None


def test_one_sample() -> None:
    flat = Shuffle.reshape((4, 3, 2, 2), (4, 12))
    assert flat.without_batch() == Shuffle.reshape((3, 2, 2), (12,))
    assert Shuffle.transpose((4, 3), (1, 0)).without_batch() is None
    assert Shuffle.transpose((3, 3), (1, 0)).without_batch() is None


def test_a_transpose_is_written_as_one() -> None:
    assert Shuffle.make((1, 64, 32), (64, 32), (1, 0), (1, 32, 64)).steps() == (("transpose", (0, 2, 1)),)
    assert Shuffle.transpose((2, 3, 4, 5), (0, 2, 3, 1)).steps() == (("transpose", (0, 2, 3, 1)),)
