"""Polynomials that take the place of functions, computed once for an interval, and how exact they are."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["chebyshev", "decay", "log_of_sum", "reciprocal_of_sum", "tanh_argument"]

_Floats = tuple[float, ...]


def chebyshev(function: Callable[[np.ndarray], np.ndarray], degree: int, low: float, high: float) -> _Floats:
    """Coefficients, lowest first, of the polynomial that meets `function` in the Chebyshev points of the interval."""
    found = np.polynomial.Chebyshev.interpolate(function, degree, domain=[low, high])
    return tuple(float(each) for each in found.convert(kind=np.polynomial.Polynomial).coef)


@cache
def log_of_sum(degree: int = 5) -> _Floats:
    """P with v P(v) = -log(1 - v) for v in [0, 1/2]; v is the sigmoid of -|x|, and the result log(1 + exp(-|x|))."""
    return chebyshev(lambda v: np.where(v == 0, 1.0, -np.log1p(-v) / np.where(v == 0, 1.0, v)), degree, 0.0, 0.5)


@cache
def decay(degree: int = 5) -> _Floats:
    """P with (1 - 2v) P(v) = v / (1 - v) - 1 for v in [0, 1/2]; v is the sigmoid of -m, the result exp(-m) - 1."""
    return chebyshev(lambda v: -1.0 / (1.0 - v), degree, 0.0, 0.5)


@cache
def reciprocal_of_sum(degree: int = 5) -> _Floats:
    """P with P(u) = 1 / (1 + u) for u in [0, 1]."""
    return chebyshev(lambda u: 1.0 / (1.0 + u), degree, 0.0, 1.0)


@cache
def tanh_argument() -> _Floats:
    """a, b with tanh(a z + b z^3) close to erf(z): a is the slope at 0, b the one of the usual form of GELU."""
    slope = 2.0 / float(np.sqrt(np.pi))
    return slope, slope * 2.0 * 0.044715
