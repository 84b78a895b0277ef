"""Building a bundle, here or on a board over ssh: the script runs, its output is kept, nothing half-made stays."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orinport.device.built import BOARDS, PRODUCTS, RECORD, build_inputs, record_build
from orinport.device.process import make_folder, run_logged
from orinport.device.remote import fetch, pipe, remote_folder, run_remotely, send_file
from orinport.errors import OrinportError
from orinport.files import decode_json, read_bounded

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "BuildResult",
    "board_folders",
    "build_here",
    "build_remotely",
    "find_trtexec",
    "part_folders",
    "parts_note",
    "require_bundle",
]

LOG = "build.log"
BESIDE = ("timing.cache", "layers.json")
"""What a build may write beside its product."""
_NOT_SENT = (*PRODUCTS, *BESIDE, RECORD, LOG, BOARDS, "parts")
_DEFAULT_TRTEXEC = Path("/usr/src/tensorrt/bin/trtexec")


@dataclass(frozen=True, slots=True)
class BuildResult:
    """How a build ended: status of trtexec, the log, and the files that it made."""

    status: int
    log: Path
    product: Path | None
    """The engine or loadable; None if there is none."""
    beside: tuple[Path, ...] = ()
    """Timing cache and layer information, as far as the build wrote them."""


def require_bundle(folder: Path) -> None:
    """Raise OrinportError if `folder` holds no bundle."""
    for name in ("model.onnx", "build.sh"):
        if not (folder / name).is_file():
            raise OrinportError(f"{str(folder)!r} holds no bundle: {name} is missing.", "orinport prepare writes one.")


def part_folders(folder: Path) -> tuple[Path, ...]:
    """The folders of a bundle's parts, in the order in which they run. Raises OrinportError if one is no bundle."""
    path = folder / "parts.json"
    if not path.is_file():
        return ()
    try:
        names = [str(part["folder"]) for part in decode_json(read_bounded(path))["parts"]]
    except OSError as error:
        raise OrinportError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise OrinportError(f"{str(path)!r} does not name a bundle's parts.") from error
    for name in names:
        if not re.fullmatch(r"parts/[\w-]+", name):
            raise OrinportError(f"{str(path)!r} does not name a bundle's parts: {name!r}.")
        require_bundle(folder / name)
    return tuple(folder / name for name in names)


def parts_note(folder: Path) -> str:
    """That a bundle also holds the network in parts, which are not what its own engine is; empty without parts."""
    parts = part_folders(folder)
    if not parts:
        return ""
    shown = ", ".join(str(part) for part in parts)
    return f"this is the network as one engine; its parts are bundles of their own: {shown}"


def board_folders(folder: Path, hosts: Sequence[str]) -> dict[str, Path]:
    """The folder of each board below the bundle's `boards`. Raises OrinportError for boards named twice."""
    found: dict[str, Path] = {}
    for host in hosts:
        path = folder / BOARDS / re.sub(r"[^\w.@-]", "_", host)
        if path in found.values():
            raise OrinportError(f"The board {host!r} is named twice.", "Name each board once.")
        found[host] = path
    return found


def find_trtexec() -> Path:
    """trtexec of this machine, with its whole path. Raises OrinportError with what can be done instead."""
    given = os.environ.get("TRTEXEC")
    found = given or shutil.which("trtexec") or (str(_DEFAULT_TRTEXEC) if _DEFAULT_TRTEXEC.is_file() else None)
    if found is None or not os.access(found, os.X_OK):
        where = f"trtexec was not found at {given!r}" if given else "trtexec was not found"
        raise OrinportError(
            f"{where}.", "Run this on a board with TensorRT, set TRTEXEC to its path, or use --host user@board."
        )
    return Path(found).absolute()


def build_here(
    folder: Path, arguments: Sequence[str], show: Callable[[str], None], *, builder: str = "auto"
) -> BuildResult:
    """Build a bundle on this machine; `show` gets every line. A failed build leaves its log and no engine.

    `builder` is `trtexec`, `python` (TensorRT's package, in a process of its own), or `auto`: trtexec if it is there.
    Raises OrinportError if there is nothing to build with.
    """
    require_bundle(folder)
    command, environment = _command(folder, arguments, builder)
    inputs = build_inputs(folder)
    before = _products(folder)
    status = -1
    try:
        status = run_logged(command, folder / LOG, show, environment)
    finally:
        for name in (*PRODUCTS, *BESIDE):
            (folder / f".{name}.partial").unlink(missing_ok=True)
        made = [path for path, stamp in _products(folder).items() if before.get(path) != stamp]
        if status != 0:
            for path in made:
                path.unlink(missing_ok=True)
    if status != 0:
        return BuildResult(status, folder / LOG, None)
    return _finished(folder / LOG, made, inputs)


def _finished(log: Path, made: Sequence[Path], inputs: Mapping[str, str]) -> BuildResult:
    """The result of a build that succeeded and has made these files; what it was built from is recorded."""
    product = next((path for path in made if path.name in PRODUCTS), None)
    if product is not None:
        try:
            record_build(product, inputs)
        except OSError as error:
            raise OrinportError(f"{str(product.parent)!r} cannot be written: {error.strerror}.") from error
    return BuildResult(0, log, product, tuple(path for path in made if path.name in BESIDE))


def _command(folder: Path, arguments: Sequence[str], builder: str) -> tuple[list[str], dict[str, str]]:
    """What to run, and in which environment."""
    from orinport.device.tensorrt_package import has_package, import_package

    if builder != "python":
        try:
            trtexec = find_trtexec()
        except OrinportError:
            if builder == "trtexec" or os.environ.get("TRTEXEC"):
                raise
            if not has_package():
                raise OrinportError(
                    "Neither trtexec nor TensorRT's Python package was found on this machine.",
                    "Run this on a board with TensorRT, set TRTEXEC to trtexec's path, or use --host user@board.",
                ) from None
        else:
            command = ["/bin/sh", str(folder.absolute() / "build.sh"), *arguments]
            return command, {**os.environ, "TRTEXEC": str(trtexec)}
    elif not has_package():
        import_package()  # it says what is missing
    from orinport.device.tensorrt_request import bundle_arguments, parse_request

    wanted = [*bundle_arguments(folder), *arguments]
    parse_request(wanted)
    path = os.pathsep.join(each for each in sys.path if each)
    command = [sys.executable, "-m", "orinport.device.tensorrt_builder", str(folder.absolute()), *wanted]
    return command, {**os.environ, "PYTHONPATH": path}


def build_remotely(
    folder: Path,
    host: str,
    arguments: Sequence[str],
    show: Callable[[str], None],
    *,
    ssh: Sequence[str] = ("ssh",),
    output: Path | None = None,
    hold: Callable[[subprocess.Popen[str]], None] | None = None,
) -> BuildResult:
    """Copy the bundle to `host`, build there, bring back what was made, and take the copy away again.

    `host` is what ssh takes (`user@board`); its keys and configuration are the user's own. `ssh` is the
    command with its options. Log, engine, timing cache and layer information go to the folder `output`, by default
    the bundle's own; a timing cache that lies there is used again. `hold` is given the process that waits for the
    board: ending it ends the build there. Raises OrinportError if the board cannot be reached or is lost.
    """
    require_bundle(folder)
    inputs = build_inputs(folder)
    output = folder if output is None else output
    with remote_folder(host, ssh) as remote:
        make_folder(output)
        _send(folder, ssh, host, remote)
        if (output / BESIDE[0]).is_file():
            send_file(output / BESIDE[0], ssh, host, remote)
        words = " ".join(shlex.quote(argument) for argument in arguments)
        status = run_remotely(f"sh build.sh {words}", host, remote, output / LOG, show, ssh=ssh, hold=hold)
        if status != 0:
            return BuildResult(status, output / LOG, None)
        return _finished(output / LOG, fetch(output, host, remote, ssh, (*PRODUCTS, *BESIDE)), inputs)


def _send(folder: Path, ssh: Sequence[str], host: str, remote: str) -> None:
    """The bundle without what earlier builds have left in it."""
    excluded = [f"--exclude=./{name}" for name in _NOT_SENT]
    pipe(["tar", "-C", str(folder), *excluded, "-cf", "-", "."], [*ssh, host, f"tar -C {remote} -xf -"], host)


def _products(folder: Path) -> dict[Path, tuple[int, int]]:
    found = {}
    for name in (*PRODUCTS, *BESIDE):
        path = folder / name
        if path.is_file():
            stat = path.stat()
            found[path] = (stat.st_mtime_ns, stat.st_size)
    return found
