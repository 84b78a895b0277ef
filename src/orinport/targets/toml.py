"""Reading the package's own TOML files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

if TYPE_CHECKING:
    from importlib.abc import Traversable

__all__ = ["read_toml"]


def read_toml(file: Traversable) -> dict[str, Any]:
    """The content of one TOML file inside the package."""
    table: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    return table
