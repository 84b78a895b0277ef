"""Reading TOML files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

from orinport.files import read_bounded

if TYPE_CHECKING:
    from importlib.abc import Traversable

__all__ = ["read_toml"]


def read_toml(file: Traversable) -> dict[str, Any]:
    """The content of one TOML file. Raises OSError or ValueError if it cannot be read or is none."""
    table: dict[str, Any] = tomllib.loads(read_bounded(file).decode("utf-8"))
    return table
