"""The bundle: the folder that `prepare` writes and the board builds from.

It is written whole or not at all: everything is made in a new folder beside the output and moved into
place at the end. An existing folder is replaced only if it is a bundle and the caller says so; files in it
that orinport did not write stay. So do engines, with a record of what they were built from.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orinport.device.built import record_builds
from orinport.device.trtexec import BuildOptions, build_arguments, shell_command
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from orinport.placement.placement import Placement
    from orinport.targets.target import Precision, Target

__all__ = [
    "BUNDLE_FILES",
    "BuildScript",
    "Workspace",
    "build_script",
    "parts_script",
    "require_free",
    "write_bundle",
]

BUNDLE_FILES = (
    "model.onnx",
    "model.onnx.data",
    "tail.onnx",
    "tail.onnx.data",
    "calibration.cache",
    "layer_precisions.txt",
    "scales.json",
    "build.sh",
    "build_parts.sh",
    "parts",
    "parts.json",
    "report.html",
    "report.json",
    "report.txt",
)
"""Every file that a bundle may hold; the ones of an older bundle are replaced together."""


@dataclass(frozen=True, slots=True)
class BuildScript:
    """`build.sh` and what it makes."""

    text: str
    engine: str


def build_script(target: Target, precision: Precision, placement: Placement, options: BuildOptions) -> BuildScript:
    """A POSIX shell script that runs trtexec in the bundle's folder."""
    engine = "model.loadable" if options.standalone and options.dla_core is not None else "model.engine"
    arguments = ["--onnx=model.onnx", *build_arguments(target, precision, placement, options, engine=engine)]
    version = target.stack.tensorrt
    precisions = '"--layerPrecisions=$(cat layer_precisions.txt)" \\\n  ' if options.layer_precisions else ""
    text = f"""#!/bin/sh
# Builds {engine} from model.onnx on {target.hardware.title}
# with {target.stack.title} (TensorRT {version}). Further arguments are handed on to trtexec.
set -eu
trtexec="${{TRTEXEC:-}}"
if [ -z "$trtexec" ]; then
  trtexec="$(command -v trtexec || true)"
  [ -n "$trtexec" ] || trtexec=/usr/src/tensorrt/bin/trtexec
fi
case "$trtexec" in /*) ;; *) trtexec="$PWD/$trtexec" ;; esac
CDPATH='' cd -- "$(dirname "$0")"
if [ ! -x "$trtexec" ]; then
  echo "build.sh: trtexec was not found; set TRTEXEC to its path" >&2
  exit 2
fi
set -- {shell_command("", arguments).strip()} \\
  {precisions}"$@"
exec "$trtexec" "$@"
"""
    return BuildScript(text, engine)


def parts_script(folders: Iterable[str]) -> str:
    """A POSIX shell script that builds all parts of a bundle, in order."""
    lines = "\n".join(f'sh {shlex.quote(f"parts/{folder}/build.sh")} "$@"' for folder in folders)
    return f"""#!/bin/sh
# Builds the engine of every part. Further arguments are handed on to trtexec.
set -eu
case "${{TRTEXEC:-/}}" in /*) ;; *) export TRTEXEC="$PWD/$TRTEXEC" ;; esac
CDPATH='' cd -- "$(dirname "$0")"
{lines}
"""


def require_free(folder: Path, *, force: bool) -> None:
    """Raise OrinportError if `folder` may not be written to."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise OrinportError(f"{str(folder)!r} is not a folder.", "Give another one with --output.")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not force:
        raise OrinportError(
            f"The folder {str(folder)!r} exists and is not empty.", "Use --force to replace the bundle."
        )
    if not (folder / "report.json").is_file() or not (folder / "build.sh").is_file():
        raise OrinportError(f"The folder {str(folder)!r} holds no bundle, so --force does not touch it.")


def write_bundle(folder: Path, source: Path, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Move the model files out of the folder `source` and write `texts` beside them; gives the file names.

    `folder` was found free by `require_free` before. Raises OrinportError if it cannot be written.
    """
    try:
        for name, text in texts.items():
            path = source / name
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755 if name.endswith(".sh") else 0o644)
        folder.mkdir(parents=True, exist_ok=True)
        record_builds(folder)
        names = sorted(path.name for path in source.iterdir())
        _clear(folder, keep=names)
        for path in sorted(each for each in source.rglob("*") if each.is_file()):
            place = folder / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)
    except OSError as error:
        raise OrinportError(f"The folder {str(folder)!r} cannot be written: {error.strerror}.") from error
    return tuple(names)


def _clear(folder: Path, keep: Collection[str] = ()) -> None:
    """Take away what an older bundle has and the new one has not, in its parts too; what is not ours stays.

    Links go in any case, so that nothing is written where they point.
    """
    for name in BUNDLE_FILES:
        path = folder / name
        if path.is_symlink() or not path.is_dir():
            if path.is_symlink() or name not in keep:
                path.unlink(missing_ok=True)
            continue
        for part in list(path.iterdir()):
            if part.is_symlink():
                part.unlink()
            elif part.is_dir():
                _clear(part)
                _remove_empty(part)
        _remove_empty(path)


def _remove_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()


class Workspace:
    """A scratch folder beside the output, on the same file system, that always goes away again."""

    def __init__(self, folder: Path) -> None:
        self._parent = folder.absolute().parent
        self.path = Path()

    def __enter__(self) -> Path:
        try:
            self._parent.mkdir(parents=True, exist_ok=True)
            self.path = Path(tempfile.mkdtemp(prefix=".orinport-", dir=self._parent))
        except OSError as error:
            raise OrinportError(f"Nothing can be written beside {str(self._parent)!r}: {error.strerror}.") from error
        return self.path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
