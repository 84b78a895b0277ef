"""What an engine was built from: `build.json` beside it.

Without it an engine that an earlier bundle has left in the folder would be taken for that of the present one.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from orinport.errors import OrinportError
from orinport.files import decode_json, read_bounded, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = [
    "BOARDS",
    "PRODUCTS",
    "RECORD",
    "build_inputs",
    "outdated_builds",
    "record_build",
    "record_builds",
    "require_current",
]

PRODUCTS = ("model.engine", "model.loadable")
BOARDS = "boards"
"""The folder in a bundle that holds what several boards have built."""
RECORD = "build.json"
_INPUTS = ("build.sh", "calibration.cache", "layer_precisions.txt", "model.onnx", "model.onnx.data")
"""What a build reads."""
_LARGEST = 1 << 20
_CHUNK = 1 << 20


def build_inputs(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of a bundle that a build reads. Raises OrinportError if one cannot be read."""
    with _readable():
        return {name: _hash(folder / name) for name in _INPUTS if (folder / name).is_file()}


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OrinportError(f"{str(error.filename)!r} cannot be read: {error.strerror}.") from error


def record_build(product: Path, inputs: Mapping[str, str]) -> None:
    """Write beside an engine or loadable what it was built from. Raises OSError."""
    path = product.with_name(RECORD)
    known = _builds(path)
    others = {name: known[name] for name in PRODUCTS if name in known and product.with_name(name).is_file()}
    builds = {**others, product.name: {"sha256": _hash(product), "inputs": dict(inputs)}}
    write_whole(path, json.dumps({"schema_version": 1, "builds": builds}, indent=2) + "\n")


def record_builds(folder: Path) -> None:
    """Before a bundle is replaced: record what its engines were built from, those that `build.sh` made by hand too.

    Whatever has a record of its own keeps it. Raises OSError.
    """
    for bundle, product in _products(folder):
        if _recorded(product) is None:
            record_build(product, build_inputs(bundle))


def outdated_builds(folder: Path) -> tuple[Path, ...]:
    """Engines and loadables in a bundle that were built from other files than it holds. Raises OrinportError."""
    with _readable():
        return tuple(product for bundle, product in _products(folder) if _changed(bundle, product))


def require_current(folder: Path, product: Path) -> None:
    """Raise OrinportError if `product` was built from other files than the bundle holds; without a record it passes."""
    with _readable():
        changed = _changed(folder, product)
    if changed:
        raise OrinportError(
            f"{str(product)!r} was built before the bundle changed ({', '.join(changed)}).",
            "Build it again with orinport build.",
        )


def _changed(folder: Path, product: Path) -> list[str]:
    """Names of a build's inputs that are not what they were; empty if that is not known."""
    before = _recorded(product)
    if before is None:
        return []
    now = build_inputs(folder)
    return [name for name in _INPUTS if before.get(name) != now.get(name)]


def _recorded(product: Path) -> dict[str, str] | None:
    """The inputs of the build that made just this file; None if there is no record of it."""
    try:
        build = _builds(product.with_name(RECORD))[product.name]
        known = product.is_file() and build["sha256"] == _hash(product)
        return {str(name): str(value) for name, value in build["inputs"].items()} if known else None
    except (KeyError, TypeError, AttributeError):
        return None


def _builds(path: Path) -> dict[str, Any]:
    """What a record says of each product; nothing if there is none, or none of ours."""
    try:
        document = decode_json(read_bounded(path, _LARGEST)) if path.is_file() else {}
    except ValueError:
        return {}
    builds = document.get("builds") if isinstance(document, dict) else None
    return builds if isinstance(builds, dict) else {}


def _products(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Every engine and loadable below a bundle, with the bundle that it is of; links are not followed."""
    for home in (folder, *_folders(folder / BOARDS)):
        for name in PRODUCTS:
            path = home / name
            if path.is_file() and not path.is_symlink():
                yield folder, path
    for part in _folders(folder / "parts"):
        yield from _products(part)


def _folders(folder: Path) -> list[Path]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
