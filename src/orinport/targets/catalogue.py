"""The acceptance catalogue: rows, open points and conflicts from TOML, and which of them hold on a target.

One table a row in `data/catalogue/*.toml`, its name the row's id:

- `layers`: layer kinds, or `all`, `network`, `build`, `io`, `tool`;
- `kind`: `limit`, `tie`, `accept`, `refuse`, `behaviour`, `advice`, `open` (nobody has documented it) or
  `conflict` (documents contradict each other);
- `platforms`, `precisions`: an empty `precisions` means not related to precision, or not stated;
- `since`, `until`: first and last TensorRT version; a short version stands for all that start with it, so
  `until = "8.6"` includes 8.6.2; `until_exclusive` leaves the version itself out; no `until` means that the
  newest documents still say it;
- `open_ended`: `until` is only the last document that was to be had;
- `inferred_before`: below this version the row is inferred, because no document names the first version;
- `source`, `confidence`, `text`, and the row's numbers in `values`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from orinport.targets.target import Confidence, LogMessage, Platform, Precision, RuleRow
from orinport.targets.version import Version
from orinport.toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orinport.targets.target import Target

__all__ = ["catalogue_rows", "log_messages", "row_holds", "rows_elsewhere", "rows_for"]

_FILES = (
    "general",
    "layers",
    "precision",
    "formats",
    "memory",
    "sparsity",
    "fallback",
    "standalone",
    "open",
    "conflicts",
)


@cache
def catalogue_rows() -> Mapping[str, RuleRow]:
    """All rows by id, in the order of the files."""
    rows: dict[str, RuleRow] = {}
    for name in _FILES:
        for row_id, table in _read(name).items():
            assert row_id not in rows, f"row {row_id} stands twice in the catalogue"
            rows[row_id] = _row(row_id, table)
    return MappingProxyType(rows)


def rows_for(target: Target, precision: Precision) -> Mapping[str, RuleRow]:
    """The rows that hold on `target` in `precision`, by id.

    A row that holds only because no later document was to be had, or before the first version that a
    document names, comes with the confidence `inferred`.
    """
    return _rows_for(target.stack.tensorrt, target.platform, precision)


@cache
def _rows_for(tensorrt: Version, platform: Platform, precision: Precision) -> Mapping[str, RuleRow]:
    return MappingProxyType(
        {
            row.id: _with_confidence(row, tensorrt)
            for row in catalogue_rows().values()
            if row_holds(row, tensorrt, platform, precision)
        }
    )


def row_holds(row: RuleRow, tensorrt: Version, platform: Platform, precision: Precision) -> bool:
    """True if `row` speaks about this TensorRT version, platform and precision."""
    if platform not in row.platforms or (row.precisions and precision not in row.precisions):
        return False
    if row.since is not None and tensorrt < row.since:
        return False
    return row.open_ended or not _ended(row, tensorrt)


@cache
def rows_elsewhere() -> Mapping[str, str]:
    """Rows that no rule puts into effect, by id, and what they are good for instead."""
    return MappingProxyType(_read("elsewhere"))


@cache
def log_messages() -> Mapping[str, LogMessage]:
    """Messages of builder, run time and trtexec that speak of the DLA, by id."""
    return MappingProxyType(
        {
            message_id: LogMessage(
                message_id,
                tuple(table["texts"]),
                table["pattern"],
                table["seen"],
                table["meaning"],
                tuple(table["rows"]),
                table["help"],
                table["weight"],
            )
            for message_id, table in _read("messages").items()
        }
    )


def _ended(row: RuleRow, tensorrt: Version) -> bool:
    if row.until is None:
        return False
    if row.until_exclusive:
        return not tensorrt < row.until
    return tensorrt > row.until and not tensorrt.starts_with(row.until)


def _with_confidence(row: RuleRow, tensorrt: Version) -> RuleRow:
    early = row.inferred_before is not None and tensorrt < row.inferred_before
    if early or _ended(row, tensorrt):
        return replace(row, confidence=Confidence.INFERRED)
    return row


def _read(name: str) -> dict[str, Any]:
    return read_toml(resources.files("orinport.targets") / "data" / "catalogue" / f"{name}.toml")


def _row(row_id: str, table: Mapping[str, Any]) -> RuleRow:
    def version(key: str) -> Version | None:
        return Version.parse(table[key]) if key in table else None

    return RuleRow(
        id=row_id,
        layers=tuple(table["layers"]),
        kind=table["kind"],
        text=table["text"],
        platforms=tuple(Platform(p) for p in table["platforms"]),
        precisions=tuple(Precision(p) for p in table["precisions"]),
        since=version("since"),
        until=version("until"),
        until_exclusive=table.get("until_exclusive", False),
        open_ended=table.get("open_ended", False),
        source=table["source"],
        confidence=Confidence(table["confidence"]),
        values=MappingProxyType(table.get("values", {})),
        inferred_before=version("inferred_before"),
    )
