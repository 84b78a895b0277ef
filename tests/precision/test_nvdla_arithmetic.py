"""NVDLA v1's arithmetic against values worked out by hand and against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orinport.precision import nvdla_arithmetic as nvdla
from orinport.precision.nvdla_arithmetic import INT8, INT32, Multiplier


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def half_away(number: Fraction) -> int:
    magnitude = floor(abs(number) + Fraction(1, 2))
    return magnitude if number >= 0 else -magnitude


@pytest.mark.parametrize(
    ("value", "shift", "wanted"),
    [(1, 1, 1), (-1, 1, -1), (3, 1, 2), (-3, 1, -2), (5, 2, 1), (6, 2, 2), (-6, 2, -2), (7, 0, 7), (127, 8, 0),
     (128, 8, 1)],
)  # fmt: skip
def test_ties_go_away_from_zero(value: int, shift: int, wanted: int) -> None:
    assert nvdla.round_shift(ints(value), shift).item() == wanted


@given(st.integers(-(1 << 46), 1 << 46), st.integers(0, 63))
def test_a_shift_is_the_rounded_quotient(value: int, shift: int) -> None:
    if shift > 61:
        shift = 61
    assert nvdla.round_shift(ints(value), shift).item() == half_away(Fraction(value, 1 << shift))


@pytest.mark.parametrize(
    ("factor", "scale", "shift"),
    [(1.0, 16384, 14), (0.5, 16384, 15), (0.75, 24576, 15), (2.0, 16384, 13), (1 / 3, 21845, 16), (32767.0, 32767, 0),
     (1e9, 32767, 0), (0.99999, 16384, 14)],
)  # fmt: skip
def test_multipliers_by_hand(factor: float, scale: int, shift: int) -> None:
    assert Multiplier.of(factor) == Multiplier(scale, shift)


@given(st.floats(1e-9, 32000))
def test_a_multiplier_is_within_its_15_bits(factor: float) -> None:
    found = Multiplier.of(factor)
    assert 1 <= found.scale < 1 << 15
    assert 0 <= found.shift <= 63
    assert found.value == pytest.approx(factor, rel=2**-15)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_factor(factor: float) -> None:
    with pytest.raises(ValueError, match="not a positive factor"):
        Multiplier.of(factor)


@given(st.lists(st.integers(*INT32), min_size=1, max_size=5), st.floats(1e-8, 4.0))
def test_a_converter_is_exact_until_it_rounds(values: list[int], factor: float) -> None:
    multiplier = Multiplier.of(factor)
    wanted = [
        max(INT8[0], min(INT8[1], half_away(Fraction(value * multiplier.scale, 1 << multiplier.shift))))
        for value in values
    ]
    assert nvdla.convert(ints(*values), multiplier).tolist() == wanted


def test_quantisation_by_hand() -> None:
    given_values = np.array([0, 0.25, 0.75, -0.25, -0.75, 63.5, 64, -64, -64.25, -100, np.inf], np.float32)
    wanted = [0, 1, 2, -1, -2, 127, 127, -128, -128, -128, 127]
    assert nvdla.quantize(given_values, 0.5).tolist() == wanted


@pytest.mark.parametrize(
    ("bias", "wanted"),
    [(0.0, 0), (2.5, 3), (-2.5, -3), (32767.0, 32767), (32768.0, 32768), (65535.0, 65536), (65537.0, 65536),
     (1e6, 10**6)],
)  # fmt: skip
def test_a_bias_has_16_bits_and_a_shift(bias: float, wanted: int) -> None:
    assert nvdla.bias_of(bias, 1.0) == wanted


def test_a_bias_beyond_everything_saturates() -> None:
    assert nvdla.bias_of(1e30, 1.0) == 32767 << 15
    assert nvdla.bias_of(-1e30, 1.0) == -(32767 << 15)


def test_a_convolution_by_hand() -> None:
    values = np.arange(1, 10).reshape(1, 1, 3, 3)
    weights = np.array([[[[1, 0], [0, -1]]]])
    assert nvdla.convolve(values, weights)[0, 0].tolist() == [[-4, -4], [-4, -4]]
    padded = nvdla.convolve(values, weights, padding=(1, 1, 0, 0), stride=(2, 2))
    assert padded[0, 0].tolist() == [[-1, -3], [-7, -4]]


def test_depthwise_convolution_by_hand() -> None:
    values = np.array([[[[2]], [[3]]]])
    weights = np.array([[[[10]]], [[[100]]]])
    assert nvdla.convolve(values, weights, groups=2).reshape(-1).tolist() == [20, 300]


def test_sums_saturate_at_int32() -> None:
    values = np.full((1, 140_000), 128)
    assert nvdla.matmul(-values, np.full((140_000, 1), 127)).item() == INT32[0]


def test_post_processing_by_hand() -> None:
    sums = np.array([[100, -100, 1000]]).reshape(1, 3, 1, 1)
    half = [Multiplier.of(0.5)] * 3
    assert nvdla.post_process(sums, half).reshape(-1).tolist() == [50, -50, 127]
    assert nvdla.post_process(sums, half, ints(1, 1, -1000)).reshape(-1).tolist() == [51, -50, 0]
    assert nvdla.post_process(sums, half, relu=True).reshape(-1).tolist() == [50, 0, 127]


def test_sums_and_products_by_hand() -> None:
    left, right = ints(127, -128, 3, -3), ints(127, -128, 2, -2)
    assert nvdla.add(left, right, Multiplier.of(0.5)).tolist() == [127, -128, 3, -3]
    assert nvdla.add(left, right, Multiplier.of(0.5), relu=True).tolist() == [127, 0, 3, 0]
    assert nvdla.multiply(left, right, Multiplier.of(1 / 128)).tolist() == [126, 127, 0, 0]


def test_pools_by_hand() -> None:
    values = np.array([[[[-5, -7], [-9, -8]]]])
    assert nvdla.max_pool(values, (2, 2), (1, 1)).item() == -5
    assert nvdla.max_pool(values, (2, 2), (2, 2), (1, 1, 1, 1)).reshape(-1).tolist() == [-5, -7, -9, -8]
    assert nvdla.average_pool(values, (2, 2), (2, 2)).item() == -8  # -29 / 2 = -14.5 -> -15, / 2 = -7.5 -> -8
    assert nvdla.average_pool(values, (2, 2), (2, 2), (1, 1, 1, 1))[0, 0, 0, 0] == -2  # -5 / 2 -> -3, / 2 -> -2


def test_reciprocals_are_those_of_the_driver() -> None:
    table = [0x10000, 0x8000, 0x5555, 0x4000, 0x3333, 0x2AAA, 0x2492, 0x2000]
    assert [nvdla.reciprocal(length) for length in range(1, 9)] == table


@pytest.mark.parametrize("window", [(height, width) for height in range(1, 9) for width in range(1, 9)])
def test_average_pools_in_exact_fractions(window: tuple[int, int]) -> None:
    """The whole sum by the width, rounded, then by the height, rounded: for sums near zero and at both ends."""
    elements = window[0] * window[1]
    low, high = INT8[0] * elements, INT8[1] * elements
    sums = [low, *range(max(low, -200), min(high, 200) + 1), high]
    values = np.stack([_adding_up_to(each, elements).reshape(window) for each in sums])[:, None]
    height, width = (Fraction(0x10000 // length, 0x10000) for length in window)
    wanted = [half_away(half_away(each * width) * height) for each in sums]
    assert nvdla.average_pool(values, window, (1, 1)).reshape(-1).tolist() == wanted


@pytest.mark.parametrize(("window", "bias"), [(2, Fraction(3, 8)), (3, Fraction(0))])
def test_even_average_pools_of_positive_values_are_too_large(window: int, bias: Fraction) -> None:
    sums = range(36, 36 + 36 * window)
    values = np.stack([_adding_up_to(each, window**2).reshape(window, window) for each in sums])[:, None]
    found = nvdla.average_pool(values, (window, window), (1, 1)).reshape(-1)
    assert Fraction(int(found.sum()) * window**2 - sum(sums), window**2 * len(sums)) == bias


def _adding_up_to(total: int, elements: int) -> np.ndarray:
    """INT8 values with a given sum, as equal as can be."""
    each, rest = divmod(total, elements)
    return np.array([each + (index < rest) for index in range(elements)], np.int64)
