"""What one version of the parser does differently: read from `targets/data/parser.toml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from orinport.targets.version import Version
from orinport.toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Parser", "parser_of"]


@dataclass(frozen=True, slots=True)
class Parser:
    """The ONNX parser of one TensorRT version."""

    version: Version
    operators: frozenset[str]
    """Operators of the default domain that it imports itself."""
    changes: frozenset[str]
    """Names of the changes of lowering (`[changes.*]` of parser.toml) that hold for it."""
    plugins: frozenset[str]
    """Plugin creators of NVIDIA's plugin library of that version."""

    def has(self, change: str) -> bool:
        """Whether `change` holds for this version; KeyError if there is no such change."""
        if change not in _data()["changes"]:
            raise KeyError(change)
        return change in self.changes


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    return read_toml(files("orinport.targets") / "data" / "parser.toml")


def _holds(entry: Mapping[str, Any], version: Version) -> bool:
    until = entry.get("until")
    return version >= Version.parse(entry["since"]) and (until is None or version < Version.parse(until))


def _names(entries: list[dict[str, Any]], version: Version) -> Iterator[str]:
    for entry in entries:
        if _holds(entry, version):
            yield from entry["names"]


@lru_cache(maxsize=64)
def parser_of(version: Version) -> Parser:
    """The parser that TensorRT `version` comes with."""
    data = _data()
    return Parser(
        version=version,
        operators=frozenset(_names(data["operators"], version)),
        changes=frozenset(name for name, entry in data["changes"].items() if _holds(entry, version)),
        plugins=frozenset(_names(data["plugins"], version)),
    )
