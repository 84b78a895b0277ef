"""`Histogram`: the magnitudes of one tensor, in bounded memory, without knowing their range beforehand.

Bins are `2**exponent / BINS` wide, and the exponent is that of the largest magnitude so far. When it grows, bins
are folded in pairs: the edges of the coarser bins are edges of the finer ones, and a multiplication by a power of
two is exact in binary floating point, so every value lies in the same bin as if the range had been known from the
beginning. Counts are integers. Hence the result depends neither on the order of the data, nor on how it is
divided among processes, nor on interruptions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, frexp, ldexp
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.precision.watch import loops

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BINS", "Histogram", "spread"]

BINS = 8192
"""Between 4097 and 8192 of them are in use, because the largest magnitude is at least half of `2**exponent`."""

_BITS = 13
_EMPTY = -(1 << 30)
_CHUNK = 1 << 16
_SMALL_EXPONENT = -100
"""Below this exponent the factor to the bins would overflow in binary32."""


@dataclass(slots=True)
class Histogram:
    """Counts of magnitudes, and the exact extremes, of everything that was added."""

    exponent: int = _EMPTY
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    low: float = float("inf")
    high: float = float("-inf")
    seen: int = 0
    """Elements looked at for the extremes."""
    nonfinite: int = 0
    """Elements that are NaN or infinite; they count nowhere else."""
    exact_from: float = 0.0
    """The magnitude from which on all elements are counted, wherever they are; 0: all."""
    tail: NDArray[np.int64] | None = None
    """Counts of such elements that are not among `counts`; None: there are no others than `counts`."""

    @property
    def largest(self) -> float:
        """The largest magnitude; 0 if nothing finite was seen."""
        return max(abs(self.low), abs(self.high)) if self.low <= self.high else 0.0

    @property
    def width(self) -> float:
        """Width of a bin; 0 if only zeros were seen."""
        return 0.0 if self.exponent == _EMPTY else float(np.ldexp(1.0, self.exponent - _BITS))

    @property
    def used(self) -> int:
        """Number of bins up to the one that holds the largest magnitude."""
        return 0 if self.exponent == _EMPTY else min(BINS, int(self.largest / self.width) + 1)

    @property
    def estimated(self) -> int:
        """Number of bins, from the first on, whose counts are those of a sample."""
        if not self.exact_from or self.exponent == _EMPTY:
            return 0
        return min(BINS, ceil(ldexp(self.exact_from, _BITS - self.exponent)))

    def add(self, array: NDArray[Any], *, sample: int = 0, limit: int = 0, rectified: Histogram | None = None) -> None:
        """Add the elements of `array`.

        The extremes are those of all elements. With a `limit`, at most about so many elements, evenly spread,
        are counted; `sample` shifts which ones. `rectified` gets what a ReLU would make of the array.
        """
        values = np.ascontiguousarray(array).reshape(-1).astype(np.float32, copy=False)
        if not values.size:
            return
        first, step = spread(values.size, sample, limit)
        compiled = loops()
        found = None if compiled is None else compiled.extremes(values, first, step)
        if found is not None:
            low, high, taken = found
            self._take(values.size, low, high, taken)
            if rectified is not None:
                rectified._take(values.size, max(low, 0.0), max(high, 0.0), np.maximum(taken, np.float32(0)))
            return
        self._add_slowly(values, sample, limit)
        if rectified is not None:
            rectified._add_slowly(np.maximum(values, np.float32(0)), sample, limit)

    def _add_slowly(self, values: NDArray[np.float32], sample: int, limit: int) -> None:
        """Without compiled loops, or with values that are not finite."""
        seen = values.size
        low, high = float(values.min()), float(values.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            finite = values[np.isfinite(values)]
            self.nonfinite += values.size - finite.size
            values = finite
            if not values.size:
                self.seen += seen
                return
            low, high = float(values.min()), float(values.max())
        first, step = spread(values.size, sample, limit)
        self._take(seen, low, high, values[first::step])

    def _take(self, seen: int, low: float, high: float, counted: NDArray[np.float32]) -> None:
        self.seen += seen
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._reach(max(abs(low), abs(high)))
        self._count(counted)

    def _reach(self, magnitude: float) -> None:
        if magnitude > 0 and (exponent := frexp(magnitude)[1]) > self.exponent:
            self._fold_to(exponent)

    def _fold_to(self, exponent: int) -> None:
        steps = min(_BITS, exponent - self.exponent)
        self.counts = _folded(self.counts, steps)
        if self.tail is not None:
            self.tail = _folded(self.tail, steps)
        self.exponent = exponent

    def _count(self, values: NDArray[np.float32]) -> None:
        if self.exponent == _EMPTY:
            self.counts[0] += values.size
            return
        compiled = loops() if values.flags.c_contiguous else None
        if compiled is not None and self.exponent >= _SMALL_EXPONENT:
            compiled.count(values, float(np.ldexp(1.0, _BITS - self.exponent)), self.counts)
            return
        wide = np.float64 if self.exponent < _SMALL_EXPONENT else np.float32
        factor = wide(np.ldexp(1.0, _BITS - self.exponent))
        for start in range(0, values.size, _CHUNK):
            scaled = np.abs(values[start : start + _CHUNK]) * factor
            self.counts += np.bincount(scaled.astype(np.intp), minlength=BINS)

    def merge(self, other: Histogram) -> None:
        """Add everything that `other` has seen."""
        self.seen += other.seen
        self.nonfinite += other.nonfinite
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        if other.exponent > self.exponent:
            self._fold_to(other.exponent)
        elif other.exponent < self.exponent:
            other = replace(other)
            other._fold_to(self.exponent)
        self.counts = self.counts + other.counts
        if other.tail is not None:
            self.tail = other.tail.copy() if self.tail is None else self.tail + other.tail
        self.exact_from = max(self.exact_from, other.exact_from)

    def weighted(self) -> Histogram:
        """The same without a `tail`, and with counts that add up to all finite elements.

        From `exact_from` on they are exact. What is left is shared out as the sample lies, so that it adds up to whole
        numbers; to zero where there is no sample.
        """
        if self.tail is None:
            return self
        edge = self.estimated
        counts = self.counts + self.tail
        rest = self.seen - self.nonfinite - int(counts[edge:].sum())
        cumulated = np.cumsum(self.counts[:edge])
        taken = int(cumulated[-1]) if edge else 0
        if taken:
            wide = cumulated.astype(np.int64 if rest * taken < 1 << 63 else object)
            counts[:edge] = np.diff(wide * rest // taken, prepend=0).astype(np.int64)
        else:
            counts[:edge] = 0
            counts[0] += rest
        return replace(self, counts=counts, tail=None)

    def folded(self, factor: int) -> NDArray[np.int64]:
        """Counts in bins `factor` times as wide, up to the one that holds the largest magnitude."""
        bins: NDArray[np.int64] = self.counts.reshape(-1, factor).sum(axis=1)
        return bins[: -(-self.used // factor)]


def _folded(counts: NDArray[np.int64], steps: int) -> NDArray[np.int64]:
    """Counts in bins 2**steps times as wide."""
    folded = np.zeros(BINS, np.int64)
    folded[: BINS >> steps] = counts.reshape(-1, 1 << steps).sum(axis=1)
    return folded


def spread(size: int, sample: int, limit: int) -> tuple[int, int]:
    """First and step of about `limit` of `size` values, evenly spread; where they begin depends on `sample`."""
    if not limit or size <= limit:
        return 0, 1
    step = -(-size // limit) | 1
    return (sample * 7919) % step, step
