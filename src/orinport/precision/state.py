"""The state file of a calibration: histograms so far and which shards they hold, without pickled objects."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np

from orinport.errors import OrinportError
from orinport.precision.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["read_state", "write_state"]

_VERSION = "orinport calibration 1"


def write_state(path: Path, signature: str, done: Mapping[int, int], histograms: Mapping[str, Histogram]) -> None:
    """Write the state, atomically. Raises OrinportError if the file cannot be written."""
    each = list(histograms.values())
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open("wb") as file:
            np.savez(
                file,
                head=np.array([_VERSION, signature]),
                done=np.array(sorted(done.items()), np.int64).reshape(-1, 2),
                names=np.frombuffer("\0".join(histograms).encode(), np.uint8),
                whole=np.array([(h.exponent, h.seen, h.nonfinite) for h in each], np.int64).reshape(-1, 3),
                extremes=np.array([(h.low, h.high) for h in each], np.float64).reshape(-1, 2),
                counts=np.stack([h.counts for h in each]) if each else np.zeros((0, 0), np.int64),
            )
        temporary.replace(path)
    except OSError as error:
        raise OrinportError(f"The state {str(path)!r} cannot be written: {error.strerror}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def read_state(path: Path | None, signature: str) -> tuple[dict[int, int], dict[str, Histogram]]:
    """Done shards (first sample: sample behind the last) and their histograms; nothing if there is no state.

    Raises OrinportError if the file is no state, or one of another network, other data or other options.
    """
    if path is None or not path.exists():
        return {}, {}
    hint = "Remove the file to start again."
    try:
        with np.load(path, allow_pickle=False) as file:
            head, done, names = file["head"].tolist(), file["done"], file["names"].tobytes().decode()
            whole, extremes, counts = file["whole"], file["extremes"], file["counts"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise OrinportError(f"{str(path)!r} is not the state of a calibration.", hint) from error
    if head[0] != _VERSION or head[1] != signature:
        raise OrinportError(f"{str(path)!r} belongs to a calibration of another network, other data or options.", hint)
    histograms = {
        name: Histogram(int(w[0]), c.copy(), float(e[0]), float(e[1]), int(w[1]), int(w[2]))
        for name, w, e, c in zip(names.split("\0"), whole, extremes, counts, strict=True)
    }
    return {int(start): int(stop) for start, stop in done}, histograms
