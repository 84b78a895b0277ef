"""What a bundle's `report.json` says that is needed to run it: moved edges, formats, target and precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orinport.errors import OrinportError
from orinport.files import decode_json, read_bounded
from orinport.rewrites.driver import stated_error
from orinport.rewrites.edges import EdgeMapping
from orinport.rewrites.rewrite import Rewriting, Safety

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BundleRecord", "read_record"]


@dataclass(frozen=True, slots=True)
class BundleRecord:
    """A bundle's own account of itself."""

    target: str
    precision: str
    edges: tuple[EdgeMapping, ...]
    """Inputs and outputs that were moved."""
    stated: float
    """Errors that the applied approximations state, added up."""
    inputs: tuple[tuple[str, str, str], ...]
    """Name, element type and memory format of each input, in trtexec's words."""
    outputs: tuple[tuple[str, str, str], ...]
    model: str = ""
    """Name of the network that was prepared; empty in records that do not say it."""
    rewriting: Rewriting | None = None
    """What was asked of its rewriting; None in records that do not say it."""


def read_record(path: Path) -> BundleRecord:
    """Read a bundle's report. Raises OrinportError if it is no such report."""
    try:
        document = decode_json(read_bounded(path))
        applied = document.get("rewrites", {}).get("applied", [])
        formats = document.get("formats", {})
        asked = document.get("rewriting")
        return BundleRecord(
            str(document.get("target", "")),
            str(document.get("precision", "")),
            tuple(EdgeMapping.from_document(entry, str(entry["kind"])) for entry in document["io"]),
            stated_error((str(entry["rewrite"]), Safety(entry["safety"])) for entry in applied),
            _formats(formats.get("inputs", ())),
            _formats(formats.get("outputs", ())),
            str(document.get("model", "")),
            None if asked is None else Rewriting.from_document(asked),
        )
    except OSError as error:
        raise OrinportError(f"{str(path)!r} cannot be read: {error.strerror}.", "Is the folder a bundle?") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise OrinportError(f"{str(path)!r} is not the report of a bundle.") from error


def _formats(entries: Any) -> tuple[tuple[str, str, str], ...]:
    return tuple((str(entry["name"]), str(entry["type"]), str(entry["format"])) for entry in entries)
