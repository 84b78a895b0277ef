"""The state file of a calibration: histograms so far and which shards they hold, without pickled objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from orinport.arrays import read_arrays
from orinport.errors import OrinportError
from orinport.precision.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from orinport.precision.tails import Thresholds

__all__ = ["State", "read_state", "write_state"]

_VERSION = "orinport calibration 2"


@dataclass(frozen=True, slots=True)
class State:
    """What is done of a calibration."""

    done: Mapping[int, int]
    """First samples of shards, and the sample behind the last of each."""
    histograms: Mapping[str, Histogram]
    thresholds: tuple[Thresholds, ...] = ()
    """Beyond which all elements of a tensor are counted, tensor by tensor; none: all elements of all tensors are."""


def write_state(path: Path, signature: str, state: State) -> None:
    """Write the state, atomically. Raises OrinportError if the file cannot be written."""
    each = list(state.histograms.values())
    tails = [h.tail for h in each if h.tail is not None]
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open("wb") as file:
            np.savez(
                file,
                head=np.array([_VERSION, signature]),
                done=np.array(sorted(state.done.items()), np.int64).reshape(-1, 2),
                thresholds=np.array(state.thresholds, np.float64).reshape(-1, 2),
                names=np.frombuffer("\0".join(state.histograms).encode(), np.uint8),
                whole=np.array([(h.exponent, h.seen, h.nonfinite) for h in each], np.int64).reshape(-1, 3),
                extremes=np.array([(h.low, h.high, h.exact_from) for h in each], np.float64).reshape(-1, 3),
                counts=_stacked([h.counts for h in each]),
                tailed=np.array([h.tail is not None for h in each], np.bool_),
                tails=_stacked(tails),
            )
        temporary.replace(path)
    except OSError as error:
        raise OrinportError(f"The state {str(path)!r} cannot be written: {error.strerror}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _stacked(counts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.stack(counts) if counts else np.zeros((0, 0), np.int64)


def read_state(path: Path | None, signature: str) -> State | None:
    """What was written; None if there is no file.

    Raises OrinportError if the file is no state, or one of another network, other data or other options.
    """
    if path is None or not path.exists():
        return None
    shown, hint = repr(str(path)), "Remove the file to start again."
    try:
        file = read_arrays(path)
        state = _state(file) if file["head"].tolist() == [_VERSION, signature] else None
    except (OrinportError, ValueError, TypeError, KeyError, IndexError, OverflowError, StopIteration) as error:
        raise OrinportError(f"{shown} is not the state of a calibration.", hint) from error
    if state is None:
        raise OrinportError(f"{shown} belongs to a calibration of another network, other data or options.", hint)
    return state


def _state(file: Mapping[str, NDArray[Any]]) -> State:
    names = file["names"].tobytes().decode()
    whole, extremes, counts = file["whole"], file["extremes"], file["counts"]
    thresholds, tailed, tails = file["thresholds"], file["tailed"], iter(file["tails"])
    if not (np.isfinite(thresholds).all() and (thresholds >= 0).all()):
        raise ValueError(thresholds)
    histograms = {
        name: Histogram(
            int(w[0]),
            c.copy(),
            float(e[0]),
            float(e[1]),
            int(w[1]),
            int(w[2]),
            float(e[2]),
            next(tails).copy() if t else None,
        )
        for name, w, e, c, t in zip(names.split("\0") if names else [], whole, extremes, counts, tailed, strict=True)
    }
    shares = tuple((float(above), float(below)) for above, below in thresholds)
    return State({int(start): int(stop) for start, stop in file["done"]}, histograms, shares)
