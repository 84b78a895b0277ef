"""From which magnitudes on the elements of large tensors are all counted.

A percentile of 99.99 asks for the largest ten-thousandth of a tensor and for how many elements there are; where the
others lie makes no difference. So all elements beyond a threshold are counted, and of those before it the ones in some
blocks. A few samples are counted completely beforehand, and from them follow thresholds beyond which some twenty times
as many elements are expected as the percentile asks for. Whether that was enough is known in the end (`is_exact` in
`calibrators`).
"""

from __future__ import annotations

from math import frexp, ldexp
from typing import TYPE_CHECKING

import numpy as np

from orinport.precision.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FEWEST", "LEAST_PERCENTILE", "PILOTS", "Thresholds", "pilots", "share_of", "thresholds_of"]

Thresholds = tuple[float, float]
"""Of the values that are not negative, and of the magnitudes of the negative ones; 0: all are counted."""

FEWEST = 64
"""With fewer samples all elements are counted."""
LEAST_PERCENTILE = 99.9
"""For smaller percentiles all elements are counted."""
PILOTS = 4
"""Samples that are counted completely beforehand."""
_MARGIN = 20
_LEAST_SHARE = 0.002
_DIGITS = 6


def pilots(total: int) -> list[int]:
    """Numbers of the samples that are counted beforehand, evenly spread."""
    return [total * (2 * index + 1) // (2 * PILOTS) for index in range(PILOTS)]


def share_of(percentile: float) -> float:
    """The part of the elements that the tail of each sign is to hold."""
    return max(_LEAST_SHARE, _MARGIN * (1 - percentile / 100))


def thresholds_of(counted: Sequence[tuple[Histogram, Histogram]], share: float) -> Thresholds:
    """Thresholds of a tensor, given what was counted of it and of its ReLU, sample by sample.

    One sample that has nothing in common with the others changes nothing: of the thresholds of all samples it is the
    second smallest. It has few binary digits, so that it is an edge between bins however wide these become, within
    reason.
    """
    above = sorted(_tail_edge(rectified, share) for _, rectified in counted)
    below = sorted(_tail_edge(_negative(magnitudes, rectified), share) for magnitudes, rectified in counted)
    place = min(1, len(counted) - 1)
    return _rounded(above[place]), _rounded(below[place])


def _negative(magnitudes: Histogram, rectified: Histogram) -> Histogram:
    """Of the negative values alone; what the first bin holds means nothing."""
    positive = Histogram()
    positive.merge(magnitudes)
    positive.counts = np.zeros_like(magnitudes.counts)
    positive.merge(rectified)
    return Histogram(magnitudes.exponent, magnitudes.counts - positive.counts, seen=magnitudes.seen)


def _tail_edge(histogram: Histogram, share: float) -> float:
    """The largest edge of a bin beyond which at least `share` of all elements lie; 0 if there is none."""
    beyond = np.cumsum(histogram.counts[:0:-1])[::-1]
    enough = np.flatnonzero(beyond >= max(1.0, share * histogram.seen))
    return float(enough[-1] + 1) * histogram.width if enough.size else 0.0


def _rounded(magnitude: float) -> float:
    """Rounded down to so many binary digits; 0 where binary32 has less of them."""
    fraction, exponent = frexp(magnitude)
    rounded = ldexp(float(int(ldexp(fraction, _DIGITS))), exponent - _DIGITS)
    return rounded if rounded >= float(np.finfo(np.float32).tiny) else 0.0
