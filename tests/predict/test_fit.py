"""Fitting constants: values computed by hand, noise, and constants that measurements do not determine."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from orinport.predict.fit import Values, determine, fit

RNG = np.random.default_rng(0)
WORK = np.array([100.0, 400.0, 900.0, 50.0, 1000.0, 10.0])
BYTES = np.array([10.0, 20.0, 30.0, 500.0, 10.0, 800.0])
"""Rows 0, 1, 2 and 4 are bound by work at every rate near 2, rows 3 and 5 by bytes at every rate near 4."""


def roofline(values: Values) -> list[float]:
    return list(np.maximum(WORK / values["rate"], BYTES / values["bandwidth"]))


def test_a_line_through_three_points() -> None:
    """Least squares of y = a * x for (1, 2), (2, 4.1), (3, 5.9): a = (2 + 8.2 + 17.7) / 14."""
    x, y = np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.1, 5.9])
    found = fit({"a": 1.0}, lambda values: values["a"] * x - y)
    assert found["a"] == pytest.approx(27.9 / 14, rel=1e-6)


def test_times_without_noise_give_the_constants_back() -> None:
    """1000 units of work in 500 us are 2 a us, 800 bytes in 200 us are 4 a us."""
    measured = [50.0, 200.0, 450.0, 125.0, 500.0, 200.0]
    more = [*measured, 100.0, 25.0]
    result = determine(
        {"rate": 1.0, "bandwidth": 1.0},
        lambda values: [
            *roofline(values),
            max(10.0 / values["rate"], 400.0 / values["bandwidth"]),
            max(50.0 / values["rate"], 8.0 / values["bandwidth"]),
        ],
        more,
    )
    assert not result.refused
    assert result.values == pytest.approx({"rate": 2.0, "bandwidth": 4.0}, rel=1e-6)
    assert result.determined["rate"].measurements == 5
    assert result.determined["bandwidth"].measurements == 3
    assert result.determined["rate"].relative_error < 1e-6


def test_noise_shows_in_the_standard_error() -> None:
    """For times that follow one rate, log(rate) is the mean of the logs: error s / sqrt(n)."""
    work = np.linspace(100, 1000, 25)
    noise = RNG.normal(0, 0.05, 25)
    measured = work / 2.0 * np.exp(noise)
    result = determine({"rate": 1.0}, lambda values: list(work / values["rate"]), measured)
    assert log(result.values["rate"]) == pytest.approx(log(2.0) - noise.mean(), abs=1e-6)
    assert result.determined["rate"].relative_error == pytest.approx(noise.std(ddof=1) / 5, rel=1e-3)
    assert abs(result.values["rate"] / 2 - 1) < 3 * result.determined["rate"].relative_error


def test_too_much_noise_is_refused() -> None:
    work = np.linspace(100, 1000, 8)
    measured = work / 2.0 * np.exp(RNG.normal(0, 1.5, 8))
    result = determine({"rate": 1.0}, lambda values: list(work / values["rate"]), measured)
    assert result.determined == {}
    assert "scatter too much" in result.refused["rate"]


def test_what_no_time_depends_on_is_refused_and_keeps_its_value() -> None:
    result = determine({"rate": 1.0, "bandwidth": 1e6}, roofline, list(WORK / 2.0))
    assert result.values == pytest.approx({"rate": 2.0})
    assert result.refused["bandwidth"] == "0 of 6 measured times depend on it, 3 are needed"


def test_constants_that_act_alike_are_both_refused_and_the_others_fitted() -> None:
    other = np.array([1.0, 2.0, 5.0, 1.0, 2.0, 3.0])

    def times(values: Values) -> list[float]:
        return [*(WORK / values["first"] / values["second"]), *(other * values["third"])]

    result = determine({"first": 1.0, "second": 3.0, "third": 1.0}, times, [*(WORK / 5), *(other * 7)])
    assert result.values == pytest.approx({"third": 7.0})
    assert result.refused["first"] == "it acts like second on all that was measured"
    assert result.refused["second"] == "it acts like first on all that was measured"


def test_more_constants_than_times_are_refused() -> None:
    def times(values: Values) -> list[float]:
        return [values["a"] + values["b"], values["a"] + 2 * values["b"], 2 * values["a"] + 3 * values["b"] ** 2]

    result = determine({"a": 1.0, "b": 1.0, "c": 1.0}, times, [2.0, 3.0, 4.0])
    assert "c" in result.refused
    assert len(result.determined) < 3


def test_what_is_not_possible_is_refused() -> None:
    measured = list(WORK / 2.0)
    result = determine({"rate": 1.0}, lambda values: list(WORK / values["rate"]), measured, highest={"rate": 1.0})
    assert result.determined == {}
    assert "more than 1 is not possible" in result.refused["rate"]
    near = determine({"rate": 0.5}, lambda v: list(WORK / v["rate"]), list(WORK / 1.05), highest={"rate": 1.0})
    assert near.values == {"rate": 1.0}


def test_far_starts_find_the_same_values() -> None:
    for _ in range(20):
        start = {"rate": 2 * exp(RNG.uniform(-2, 2)), "bandwidth": 4 * exp(RNG.uniform(-2, 2))}
        found = fit(
            start, lambda values: np.log(np.array(roofline(values)) / roofline({"rate": 2.0, "bandwidth": 4.0}))
        )
        assert found == pytest.approx({"rate": 2.0, "bandwidth": 4.0}, rel=1e-4), start
