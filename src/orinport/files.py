"""Reading files that come from strangers."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from importlib.abc import Traversable
    from pathlib import Path

__all__ = ["decode_json", "read_bounded"]

_LARGEST = 1 << 28


def decode_json(data: bytes) -> Any:
    """The JSON document in `data`. Raises ValueError, in one line, for what is none or nested without end."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_bounded(path: Path | Traversable, limit: int = _LARGEST) -> bytes:
    """The content of a file of at most `limit` bytes, also of a pipe. Raises OSError, also for one that is larger."""
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit >> 20} MiB", str(path))
    return data
