"""Measuring a bundle's engine with trtexec, here or on a board over ssh: the exports that `profile` reads."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from orinport.device.board import find_trtexec
from orinport.device.process import make_folder, run_logged
from orinport.device.remote import fetch, remote_folder, run_remotely, send_file
from orinport.device.tensorrt_request import bundle_arguments
from orinport.device.trtexec import has_option
from orinport.errors import OrinportError
from orinport.files import read_bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orinport.targets.version import Version

__all__ = [
    "ENGINE",
    "Measured",
    "built_core",
    "built_gpu_layers",
    "measure_arguments",
    "measure_here",
    "measure_remotely",
]

ENGINE = "model.engine"
LOG = "profile.log"
PROFILE, TIMES, LAYERS = "profile.json", "times.json", "layers.json"
_FIND_TRTEXEC = (
    'program="${TRTEXEC:-$(command -v trtexec || echo /usr/src/tensorrt/bin/trtexec)}"; '
    '[ -x "$program" ] || { echo "trtexec was not found; set TRTEXEC to its path" >&2; exit 127; }; exec "$program" '
)


@dataclass(frozen=True, slots=True)
class Measured:
    """How a measurement ended: status of trtexec, its log, and the exports; None for what it did not write."""

    status: int
    log: Path
    profile: Path | None
    times: Path | None
    layers: Path | None


def built_core(folder: Path) -> int | None:
    """The DLA core that the bundle's build.sh builds for, None if it builds for the GPU alone."""
    try:
        text = read_bounded(folder / "build.sh", 1 << 20).decode("utf-8", "replace")
    except OSError:
        return 0
    found = re.search(r"--useDLACore=(\d+)", text)
    return int(found.group(1)) if found else None


def built_gpu_layers(folder: Path) -> tuple[str, ...]:
    """Layers that the bundle's build.sh moves to the GPU; none if it is not as `prepare` wrote it."""
    try:
        arguments = bundle_arguments(folder)
    except OrinportError:
        return ()
    option = "--layerDeviceTypes="
    devices = next((word.removeprefix(option) for word in arguments if word.startswith(option)), "")
    return tuple(entry.removesuffix(":GPU") for entry in devices.split(",") if entry.endswith(":GPU"))


def measure_arguments(version: Version, dla_core: int | None = 0) -> list[str]:
    """Arguments of trtexec of that version: profile, times and layer information, the times without the profiler."""
    core = [] if dla_core is None else [f"--useDLACore={dla_core}"]
    separate = ["--separateProfileRun"] if has_option("separateProfileRun", version) else []
    exports = [f"--exportProfile={PROFILE}", f"--exportTimes={TIMES}", f"--exportLayerInfo={LAYERS}"]
    return [f"--loadEngine={ENGINE}", *core, *separate, *exports]


def measure_here(folder: Path, arguments: Sequence[str], show: Callable[[str], None]) -> Measured:
    """Run the bundle's engine with trtexec; `show` gets every line.

    Exports appear in the bundle only if trtexec succeeds. Raises OrinportError if there is no engine or no trtexec.
    """
    engine = _require_engine(folder)
    trtexec = find_trtexec()
    try:
        with TemporaryDirectory(prefix=".orinport-", dir=folder) as scratch:
            (Path(scratch) / ENGINE).symlink_to(engine.absolute())
            script = f"cd {shlex.quote(scratch)} && exec {shlex.join([str(trtexec.absolute()), *arguments])}"
            status = run_logged(["/bin/sh", "-c", script], folder / LOG, show, dict(os.environ))
            made = []
            if status == 0:
                found = [Path(scratch) / name for name in (PROFILE, TIMES, LAYERS)]
                made = [path.replace(folder / path.name) for path in found if path.is_file()]
    except OSError as error:
        raise OrinportError(f"The folder {str(folder)!r} cannot be written: {error.strerror}.") from error
    return _measured(status, folder, made)


def measure_remotely(
    folder: Path,
    host: str,
    arguments: Sequence[str],
    show: Callable[[str], None],
    *,
    ssh: Sequence[str] = ("ssh",),
) -> Measured:
    """Copy the engine to `host`, run it there, and bring the exports back into the bundle.

    The engine has to be that board's own: build it there with `orinport build --host`. Raises OrinportError if there
    is no engine, or if the board cannot be reached or is lost.
    """
    engine = _require_engine(folder)
    with remote_folder(host, ssh) as remote:
        make_folder(folder)
        send_file(engine, ssh, host, remote)
        command = f"sh -c {shlex.quote(_FIND_TRTEXEC + shlex.join(arguments))}"
        status = run_remotely(command, host, remote, folder / LOG, show, ssh=ssh)
        made = fetch(folder, host, remote, ssh, (PROFILE, TIMES, LAYERS)) if status == 0 else []
    return _measured(status, folder, made)


def _require_engine(folder: Path) -> Path:
    engine = folder / ENGINE
    if engine.is_file():
        return engine
    if (folder / "model.loadable").is_file():
        raise OrinportError(
            f"{str(folder)!r} holds a standalone loadable, which trtexec cannot run.",
            "Measure it with cuDLA's layer statistics, and give their CSV.",
        )
    raise OrinportError(f"{str(folder)!r} holds no engine: {ENGINE} is missing.", "orinport build makes one.")


def _measured(status: int, folder: Path, made: Sequence[Path]) -> Measured:
    found = {path.name: path for path in made}
    return Measured(status, folder / LOG, found.get(PROFILE), found.get(TIMES), found.get(LAYERS))
