"""Fitting constants of a prediction to measured times, and saying which of them the measurement determines.

Constants are positive and act by factors, so the search runs on their logarithms: Levenberg and Marquardt's
damped least squares with differences for derivatives (Marquardt, SIAM J. Appl. Math. 11, 1963). A constant is
determined if several measurements depend on it, if no other constant acts in the same way on all of them, and if
the spread of the measurements leaves it narrow enough; all three follow from the derivatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log, sqrt
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Determined", "FitResult", "Values", "determine", "fit"]

_STEP = 1e-4
"""Step of the logarithms for derivatives."""
_ITERATIONS = 100
_FARTHEST = log(1e4)
"""No constant moves by more than this factor in one fit."""
_DEPENDS = 0.1
"""A measurement depends on a constant if it changes by this part of the constant's relative change."""
_FEWEST = 3
_ALIKE = 0.1
"""Smallest singular value, columns of length 1, below which constants act alike."""
_WIDEST = 0.15
"""Largest relative standard error of a constant that counts as determined."""

Values = dict[str, float]


@dataclass(frozen=True, slots=True)
class Determined:
    """A fitted constant: its value, relative standard error, and how many measurements depend on it."""

    value: float
    relative_error: float
    measurements: int


@dataclass(frozen=True, slots=True)
class FitResult:
    """Constants that the measurements determine, and for the others the reason why not."""

    determined: Mapping[str, Determined]
    refused: Mapping[str, str]

    @property
    def values(self) -> Values:
        """The fitted values."""
        return {key: each.value for key, each in self.determined.items()}


def fit(start: Mapping[str, float], errors: Callable[[Values], Sequence[float] | NDArray[np.float64]]) -> Values:
    """The values for which the sum of the squared `errors` is least, searched from `start`.

    All values are positive; `errors` takes them by name and gives one number for each measurement, always as many.
    """
    keys = list(start)
    first = np.log([start[key] for key in keys])

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(errors({key: exp(value) for key, value in zip(keys, x, strict=True)}), dtype=np.float64)

    x, residual = first, residuals(first)
    cost, damping = float(residual @ residual), 1e-3
    for _ in range(_ITERATIONS):
        slopes = _slopes(residuals, x, residual)
        normal, gradient = slopes.T @ slopes, slopes.T @ residual
        before = cost
        for _ in range(12):
            step = np.linalg.lstsq(normal + damping * np.diag(np.diag(normal) + 1e-12), -gradient, rcond=None)[0]
            trial = np.clip(x + np.clip(step, -1.0, 1.0), first - _FARTHEST, first + _FARTHEST)
            tried = residuals(trial)
            if float(tried @ tried) < cost:
                x, residual, cost, damping = trial, tried, float(tried @ tried), max(damping / 5, 1e-9)
                break
            damping = min(damping * 4, 1e6)
        if before - cost <= 1e-10 * before:
            break
    return {key: exp(value) for key, value in zip(keys, x, strict=True)}


def _slopes(
    residuals: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    x: NDArray[np.float64],
    here: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Derivatives of the residuals (rows) by the logarithms of the values (columns)."""
    columns = []
    for number in range(len(x)):
        moved = x.copy()
        moved[number] += _STEP
        columns.append((residuals(moved) - here) / _STEP)
    return np.stack(columns, axis=1) if columns else np.zeros((len(here), 0))


def determine(
    start: Mapping[str, float],
    times: Callable[[Values], Sequence[float]],
    measured: Sequence[float],
    *,
    highest: Mapping[str, float] | None = None,
) -> FitResult:
    """Fit those constants of `start` that the `measured` times determine.

    `times` predicts all measurements from the constants; both in the same unit and positive. `highest` names what a
    constant cannot exceed. Constants that are refused keep their start value, and `refused` says in a phrase why.
    """
    truth = np.asarray(measured, dtype=np.float64)
    refused: dict[str, str] = {}
    keys = list(start)

    def errors(values: Values) -> NDArray[np.float64]:
        return np.log(np.asarray(times({**start, **values}), dtype=np.float64) / truth)

    while keys:
        begun = {key: start[key] for key in keys}
        wrong = _undetermined(_derivatives(begun, errors), keys)
        values: Values = {}
        if not wrong:
            values = fit(begun, errors)
            slopes = _derivatives(values, errors)
            wrong = _implausible(values, highest or {}) or _undetermined(slopes, keys)
        if not wrong:
            spread = _spread(slopes, errors(values))
            wrong = {
                key: f"the measurements scatter too much: it would be uncertain by {100 * wide:.0f} %"
                for key, wide in zip(keys, spread, strict=True)
                if wide > _WIDEST
            }
        if not wrong:
            values = {key: min(value, (highest or {}).get(key, inf)) for key, value in values.items()}
            depending = (np.abs(slopes) >= _DEPENDS).sum(axis=0)
            found = {
                key: Determined(values[key], float(wide), int(number))
                for key, wide, number in zip(keys, spread, depending, strict=True)
            }
            return FitResult(found, refused)
        refused |= wrong
        keys = [key for key in keys if key not in wrong]
    return FitResult({}, refused)


def _derivatives(values: Values, errors: Callable[[Values], NDArray[np.float64]]) -> NDArray[np.float64]:
    keys = list(values)

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return errors({key: exp(value) for key, value in zip(keys, x, strict=True)})

    x = np.log([values[key] for key in keys])
    return _slopes(residuals, x, residuals(x))


def _undetermined(slopes: NDArray[np.float64], keys: Sequence[str]) -> dict[str, str]:
    """Why constants cannot be determined from measurements with these derivatives, by name; empty if all can."""
    depending = (np.abs(slopes) >= _DEPENDS).sum(axis=0)
    few = {
        key: f"{number} of {len(slopes)} measured times depend on it, {_FEWEST} are needed"
        for key, number in zip(keys, depending, strict=True)
        if number < _FEWEST
    }
    if few:
        return few
    if len(slopes) <= len(keys):
        return dict.fromkeys(keys, f"{len(slopes)} measured times are too few for {len(keys)} constants")
    _, singular, directions = np.linalg.svd(slopes / np.linalg.norm(slopes, axis=0))
    if singular[-1] >= _ALIKE:
        return {}
    alike = [key for key, weight in zip(keys, directions[-1], strict=True) if abs(weight) > 0.3]
    return {key: f"it acts like {' and '.join(k for k in alike if k != key)} on all that was measured" for key in alike}


def _implausible(values: Values, highest: Mapping[str, float]) -> dict[str, str]:
    return {
        key: f"it would be {value:.3g}, and more than {highest[key]:g} is not possible: are the clocks right?"
        for key, value in values.items()
        if value > (1 + _WIDEST) * highest.get(key, inf)
    }


def _spread(slopes: NDArray[np.float64], residual: NDArray[np.float64]) -> list[float]:
    """Relative standard errors of the fitted values, from what the fit leaves of the times that depend on each.

    White's estimator (Econometrica 48, 1980): times that are met badly for want of another constant do not count.
    """
    inverse = np.linalg.inv(slopes.T @ slopes)
    weighted = slopes * residual[:, None]
    scale = len(residual) / max(1, len(residual) - slopes.shape[1])
    return [sqrt(scale * each) for each in np.diag(inverse @ (weighted.T @ weighted) @ inverse)]
