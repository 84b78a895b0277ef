"""Reading the JSON documents of reports back: they may come from a stranger's bundle."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from orinport.errors import OrinportError
from orinport.files import decode_json, read_bounded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["proof_word", "read_report", "reading_report"]


def read_report(path: Path) -> dict[str, Any]:
    """The `report.json` of a bundle, or the file itself. Raises OrinportError if it cannot be read or is none."""
    file = path / "report.json" if path.is_dir() else path
    try:
        if file.exists() and not file.is_file():
            raise OrinportError(f"{str(file)!r} is no plain file.", "Give a bundle's folder.")
        document = decode_json(read_bounded(file))
    except OSError as error:
        raise OrinportError(f"{str(file)!r} cannot be read: {error.strerror}.", "Give a bundle's folder.") from error
    except ValueError as error:
        raise OrinportError(f"{str(file)!r} is no JSON: {error}.", "Give a bundle's folder.") from error
    if not isinstance(document, dict) or "schema_version" not in document or "after" not in document:
        raise OrinportError(f"{str(file)!r} is not the report of a bundle.", "orinport prepare writes one.")
    return document


@contextmanager
def reading_report() -> Iterator[None]:
    """Turn what a malformed document causes into one OrinportError."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise OrinportError(f"This is not the report of a bundle: {type(error).__name__} at {error}.") from error


def proof_word(proof: Mapping[str, Any]) -> str:
    """How the whole network compares: `equal`, `differs`, or `undecided` (documents of old have no such outputs)."""
    if proof["equal"]:
        return "equal"
    return "undecided" if all(row["equal"] or row.get("undecided") for row in proof["outputs"]) else "differs"
