"""The loops of a histogram in C, compiled at first use; without a compiler NumPy gives the same numbers, later."""

from __future__ import annotations

import ctypes
import threading
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orinport.compiled import Compilation, CompileError, native_flag

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Loops", "loops"]

_FLAGS = ("-std=c11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")


class Loops:
    """The functions of watch.c; they let other threads run meanwhile."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._extremes, self._count = library.watch_extremes, library.watch_count
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        self._extremes.argtypes = [pointer, integer, integer, integer, pointer, pointer, pointer]
        self._extremes.restype = ctypes.c_int
        self._count.argtypes = [pointer, integer, ctypes.c_float, pointer]
        self._count.restype = None
        self._own = threading.local()

    def extremes(
        self, values: NDArray[np.float32], first: int, step: int
    ) -> tuple[float, float, NDArray[np.float32]] | None:
        """Smallest and largest of contiguous `values`, and every `step`th from `first` on; None if one is not finite.

        What was taken stays valid until the same thread calls again.
        """
        low, high = ctypes.c_float(), ctypes.c_float()
        taken = values[first::step]
        into = None
        if step > 1:
            taken = self._buffer(taken.size)
            into = taken.ctypes.data
        finite = self._extremes(
            values.ctypes.data, values.size, first, step, into, ctypes.byref(low), ctypes.byref(high)
        )
        return (low.value, high.value, taken) if finite else None

    def count(self, values: NDArray[np.float32], factor: float, counts: NDArray[np.int64]) -> None:
        """Add contiguous `values` to the bins of `counts`."""
        self._count(values.ctypes.data, values.size, factor, counts.ctypes.data)

    def _buffer(self, size: int) -> NDArray[np.float32]:
        """Memory of this thread: to allocate it anew for every tensor costs more than to fill it."""
        held: NDArray[np.float32] | None = getattr(self._own, "buffer", None)
        if held is None or held.size < size:
            held = self._own.buffer = np.empty(size, np.float32)
        return held[:size]


_WATCH = Compilation(
    name="watch",
    folder="calibration",
    sources=(Path(__file__).with_name("watch.c"), Path(__file__).with_name("ordered.h")),
    flag_sets=((*_FLAGS, native_flag()), _FLAGS),
    load=Loops,
)


@lru_cache(maxsize=1)
def loops() -> Loops | None:
    """The compiled loops; None where they cannot be had."""
    try:
        return Loops(_WATCH.library())
    except (CompileError, OSError):
        return None
