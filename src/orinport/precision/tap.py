"""The operator `orinport.tap::Tap` of tap.c: counts the tensors of a network where ONNX Runtime makes them.

Its library is compiled at first use. Each thread that runs a session binds its own counters before; nothing is
counted without. What one stream of samples has counted is drained into histograms, exactly as if the values had
been added to them.
"""

from __future__ import annotations

import ctypes
import platform
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orinport.compiled import Compilation, CompileError, native_flag
from orinport.precision.histogram import BINS, Histogram

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DOMAIN", "Tapping", "Taps", "tapping"]

DOMAIN = "orinport.tap"

_FLAGS = ("-std=c11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-shared", "-fPIC")


class Tapping:
    """The functions of tap.c, and where ONNX Runtime finds the operator."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self.path = path
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        self.open, self.close, self.bind, self.sample, self.split, self.drain = (
            library.tap_open,
            library.tap_close,
            library.tap_bind,
            library.tap_sample,
            library.tap_split,
            library.tap_drain,
        )
        real = ctypes.c_float
        self.open.argtypes, self.open.restype = [integer], pointer
        self.close.argtypes, self.close.restype = [pointer], None
        self.bind.argtypes, self.bind.restype = [pointer], None
        self.sample.argtypes, self.sample.restype = [integer, integer], None
        self.split.argtypes, self.split.restype = [pointer, real, real], None
        self.drain.argtypes, self.drain.restype = [pointer, pointer, pointer, pointer], None
        self.run = library.tap_run
        self.run.argtypes = [pointer, real, real, pointer, pointer, pointer, pointer, pointer, integer, integer]
        self.run.restype = None
        self.size = int(ctypes.c_int64.in_dll(library, "tap_slot_bytes").value)


class Taps:
    """Counters of `count` tensors for one thread at a time."""

    def __init__(self, functions: Tapping, count: int) -> None:
        self._functions, self._count = functions, count
        self._memory = functions.open(count)
        if not self._memory:
            raise MemoryError
        self._whole, self._extremes = np.zeros(5, np.int64), np.zeros(2, np.float64)
        self._exact: dict[int, tuple[float, float]] = {}

    def __enter__(self) -> Taps:
        """What this thread runs is counted here."""
        self._functions.bind(self._memory)
        return self

    def __exit__(self, *_: object) -> None:
        """Count nothing any more, and give the memory back."""
        self._functions.bind(None)
        memory, self._memory = self._memory, None
        if memory:
            self._functions.close(memory)

    def split(self, slot: int, above: float, below: float) -> None:
        """Say what the tail of a tensor is: values of at least `above`, and of at most `-below`; all with zeros.

        Where only some blocks of a tensor are counted, its tail is counted everywhere. It is kept apart from them, but
        with zeros.
        """
        self._functions.split(self._at(slot), above, below)
        self._exact[slot] = (max(above, below), above)

    def begin(self, sample: int, *, everything: bool = False) -> None:
        """The number of the sample that this thread runs next, which shifts what of large tensors is counted.

        Unless that is `everything`.
        """
        self._functions.sample(sample, everything)

    def drain(self, slot: int) -> tuple[Histogram, Histogram]:
        """What was counted of a tensor since the last time, and the ReLU of it."""
        counts = np.empty((4, BINS), np.int64)
        self._functions.drain(self._at(slot), self._whole.ctypes.data, self._extremes.ctypes.data, counts.ctypes.data)
        found = _histograms(self._whole.tolist(), self._extremes.tolist(), counts)
        for histogram, tail, exact in zip(found, counts[2:], self._exact.get(slot, (0.0, 0.0)), strict=True):
            if any(self._exact.get(slot, ())):
                histogram.tail, histogram.exact_from = tail, exact
            else:
                histogram.counts += tail
        return found

    def _at(self, slot: int) -> int:
        if not 0 <= slot < self._count:
            raise IndexError(slot)
        return int(self._memory + slot * self._functions.size)


def _histograms(whole: list[int], extremes: list[float], counts: NDArray[np.int64]) -> tuple[Histogram, Histogram]:
    exponent, above, seen, nonfinite, beneath = whole
    low, high = extremes
    magnitudes = Histogram(exponent, counts[0], low, high, seen, nonfinite)
    rectified = Histogram(above, counts[1], seen=seen, nonfinite=nonfinite - beneath)
    if low <= high or beneath:
        rectified.low, rectified.high = 0.0 if beneath else max(low, 0.0), max(high, 0.0)
    return magnitudes, rectified


_TAP = Compilation(
    name="tap",
    folder="calibration",
    sources=(Path(__file__).with_name("tap.c"), Path(__file__).with_name("ordered.h")),
    flag_sets=((*_FLAGS, native_flag()), _FLAGS),
    load=Tapping,
)


@lru_cache(maxsize=1)
def tapping() -> Tapping | None:
    """The compiled operator; None where it cannot be had."""
    if platform.system() != "Linux":
        return None
    try:
        return Tapping(_TAP.library())
    except (CompileError, OSError, ValueError):
        return None
