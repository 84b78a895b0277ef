"""From the histogram of a tensor's magnitudes to its dynamic range.

- `min-max`: the largest magnitude seen.
- `entropy`: the range whose 128 levels lose least information, by the method that NVIDIA published for TensorRT (S.
  Migacz, "8-bit Inference with TensorRT", GTC 2017) with the conventions of NVIDIA's pytorch-quantization: of a
  histogram of magnitudes the first bin counts as many as the second, since zero is always exact; for every number
  i of bins from 128 on, the reference distribution P is the first i bins, with all that lies beyond added to the
  last; Q is the same bins merged into 128 levels and spread again over those of their bins that are not empty; the
  i with the smallest divergence sum P log(P / Q) wins, the last one if several have it. TensorRT's own histograms
  have 2048 bins; here 2049 to 4096 bins are in use.
- `percentile`: the magnitude below which that part of the values lies.
- `mse`: the range with the smallest mean squared error of quantisation, with ties away from zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.errors import OrinportError
from orinport.precision.scales import LEVELS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orinport.precision.histogram import Histogram

__all__ = ["METHODS", "entropy_bins", "find_range", "is_exact"]

METHODS = ("percentile", "min-max", "mse", "entropy")

_ENTROPY_FOLD = 2
_MSE_FOLD = 4
_ENTROPY_LEVELS = 128


def find_range(histogram: Histogram, method: str = "percentile", *, percentile: float = 99.99) -> float:
    """The dynamic range of a tensor; 0 if nothing but zeros was seen.

    Raises OrinportError for a method that does not exist and for percentiles outside (0, 100].
    """
    if method not in METHODS:
        raise OrinportError(f"{method!r} is not a calibration method.", f"Use one of {', '.join(METHODS)}.")
    if not 0 < percentile <= 100:
        raise OrinportError(f"{percentile:g} is not a percentile.", "Use more than 0 and at most 100, such as 99.99.")
    largest = histogram.largest
    if not largest or method == "min-max":
        return largest
    if method == "entropy":
        threshold = entropy_bins(histogram.folded(_ENTROPY_FOLD)) * histogram.width * _ENTROPY_FOLD
    elif method == "percentile":
        threshold = _percentile_bins(histogram.counts, percentile) * histogram.width
    else:
        threshold = _least_error(histogram.folded(_MSE_FOLD)) * histogram.width * _MSE_FOLD
    return min(threshold, largest)


def is_exact(histogram: Histogram, method: str = "percentile", *, percentile: float = 99.99) -> bool:
    """Whether the range would be the same if all elements had been counted.

    Of a histogram whose first bins are those of a sample, percentiles beyond these bins are exact, and the extremes.
    """
    if not histogram.estimated or not histogram.largest or method == "min-max":
        return True
    return method == "percentile" and _percentile_bins(histogram.counts, percentile) > histogram.estimated


def _percentile_bins(counts: NDArray[np.int64], percentile: float) -> int:
    """Number of bins that hold at least `percentile` percent of the values."""
    cumulated = np.cumsum(counts)
    return int(np.searchsorted(cumulated, percentile / 100 * cumulated[-1])) + 1


def entropy_bins(counts: NDArray[np.int64]) -> int:
    """Number of leading bins whose quantisation to 128 levels loses least information.

    Candidates are evaluated together: with S the sum and n the number of non-empty bins of a level, the
    divergence is, up to the normalisation of P and Q, sum p log p - sum S log(S / n), and S and n of every level
    of every candidate are differences of cumulated sums.
    """
    bins = counts.astype(np.float64)
    if bins.size <= _ENTROPY_LEVELS:
        return int(bins.size)
    bins[0] = bins[1]
    total = bins.sum()
    if not total:
        return int(bins.size)
    candidates = np.arange(_ENTROPY_LEVELS, bins.size + 1)
    sums = np.concatenate(([0.0], np.cumsum(bins)))
    filled = np.concatenate(([0.0], np.cumsum(bins > 0)))
    own = np.concatenate(([0.0], np.cumsum(_x_log_x(bins))))
    beyond = total - sums[candidates]
    last = bins[candidates - 1]
    information = own[candidates] - _x_log_x(last) + _x_log_x(last + beyond)
    lost = np.empty(candidates.size)
    for start in range(0, candidates.size, 256):
        part = slice(start, start + 256)
        edges = -(-candidates[part, None] * np.arange(_ENTROPY_LEVELS + 1) // _ENTROPY_LEVELS)
        level, count = np.diff(sums[edges]), np.diff(filled[edges])
        mean = np.log(np.where(level > 0, level, 1.0) / np.where(count > 0, count, 1.0))
        lost[part] = (level * mean).sum(axis=1) + beyond[part] * mean[:, -1]
    inside = sums[candidates]
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence = (information - lost) / total + np.log(inside / total)
    divergence[(beyond > 0) & (last == 0)] = np.inf
    divergence[inside <= 0] = np.inf
    best = divergence.min()
    return int(candidates[np.flatnonzero(divergence <= best + _ROUNDING)[-1]])


_ROUNDING = 1e-12
"""Divergences that differ by no more are equal: what rounding leaves of a sum of some thousand terms."""


def _x_log_x(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values * np.log(np.where(values > 0, values, 1.0))


def _least_error(counts: NDArray[np.int64]) -> int:
    """Number of leading bins that, as the range, give the smallest squared error over all bins."""
    filled = np.flatnonzero(counts)
    weights, centres = counts[filled].astype(np.float64), filled + 0.5
    first = min(LEVELS, counts.size)
    candidates = np.arange(first, counts.size + 1)
    errors = np.empty(candidates.size)
    for start in range(0, candidates.size, 64):
        steps = candidates[start : start + 64, None] / LEVELS
        levels = np.minimum(np.floor(centres / steps + 0.5), LEVELS)
        errors[start : start + 64] = ((levels * steps - centres) ** 2) @ weights
    return int(candidates[np.argmin(errors)])
