"""Reading files that come from strangers."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["decode_json"]


def decode_json(data: bytes) -> Any:
    """The JSON document in `data`. Raises ValueError, in one line, for what is none or nested without end."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
