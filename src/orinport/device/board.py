"""Building a bundle, here or on a board over ssh: the script runs, its output is kept, nothing half-made stays."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["BuildResult", "build_here", "build_remotely", "require_bundle"]

LOG = "build.log"
PRODUCTS = ("model.engine", "model.loadable")
_REMOTE = "/tmp/orinport."  # noqa: S108 mktemp makes the folder, with a name of its own
_DEFAULT_TRTEXEC = Path("/usr/src/tensorrt/bin/trtexec")


@dataclass(frozen=True, slots=True)
class BuildResult:
    """How a build ended: status of trtexec, the log, and the file that it made."""

    status: int
    log: Path
    product: Path | None
    """The engine or loadable; None if there is none."""


def require_bundle(folder: Path) -> None:
    """Raise OrinportError if `folder` holds no bundle."""
    for name in ("model.onnx", "build.sh"):
        if not (folder / name).is_file():
            raise OrinportError(f"{str(folder)!r} holds no bundle: {name} is missing.", "orinport prepare writes one.")


def find_trtexec() -> Path:
    """trtexec of this machine. Raises OrinportError with what can be done instead."""
    given = os.environ.get("TRTEXEC")
    found = given or shutil.which("trtexec") or (str(_DEFAULT_TRTEXEC) if _DEFAULT_TRTEXEC.is_file() else None)
    if found is None or not os.access(found, os.X_OK):
        raise OrinportError(
            f"trtexec was not found{f' at {given!r}' if given else ''}.",
            "Run this on a board with TensorRT, set TRTEXEC to its path, or use --host user@board.",
        )
    return Path(found)


def build_here(folder: Path, arguments: Sequence[str], show: Callable[[str], None]) -> BuildResult:
    """Run the bundle's build.sh; `show` gets every line. A failed build leaves its log and no engine."""
    require_bundle(folder)
    trtexec = find_trtexec()
    before = _products(folder)
    command = ["/bin/sh", str(folder.absolute() / "build.sh"), *arguments]
    status = -1
    try:
        status = _run(command, folder / LOG, show, {**os.environ, "TRTEXEC": str(trtexec)})
    finally:
        made = [path for path, stamp in _products(folder).items() if before.get(path) != stamp]
        if status != 0:
            for path in made:
                path.unlink(missing_ok=True)
    return BuildResult(status, folder / LOG, made[0] if made and status == 0 else None)


def build_remotely(
    folder: Path, host: str, arguments: Sequence[str], show: Callable[[str], None], *, ssh: Sequence[str] = ("ssh",)
) -> BuildResult:
    """Copy the bundle to `host`, build there, bring log and engine back, and take the copy away again.

    `host` is what ssh takes (`user@board`); its keys and configuration are the user's own. `ssh` is the
    command with its options. Raises OrinportError if the board cannot be reached.
    """
    require_bundle(folder)
    if shutil.which(ssh[0]) is None:
        raise OrinportError(f"{ssh[0]} is not installed.", "Install an ssh client.")
    if host.startswith("-") or not host.strip():
        raise OrinportError(f"{host!r} is no host.", "Write user@board.")
    remote = _checked([*ssh, host, f"mktemp -d {_REMOTE}XXXXXXXX"], host).strip()
    if not remote.startswith(_REMOTE) or not remote.removeprefix(_REMOTE).isalnum():
        raise OrinportError(f"{host} gave no folder to build in.", "Is it a Linux system?")
    try:
        _pipe(["tar", "-C", str(folder), "-cf", "-", "."], [*ssh, host, f"tar -C {remote} -xf -"], host)
        words = " ".join(_quoted(argument) for argument in arguments)
        status = _run([*ssh, host, f"cd {remote} && sh build.sh {words}"], folder / LOG, show, dict(os.environ))
        product = None
        if status == 0:
            product = _fetch(folder, host, remote, ssh)
        return BuildResult(status, folder / LOG, product)
    finally:
        with suppress(OrinportError):
            _checked([*ssh, host, f"rm -rf {remote}"], host)


def _fetch(folder: Path, host: str, remote: str, ssh: Sequence[str]) -> Path | None:
    listing = _checked([*ssh, host, f"ls {remote}"], host).split()
    for name in PRODUCTS:
        if name in listing:
            partial = folder / f".{name}.partial"
            try:
                with partial.open("wb") as file:
                    done = subprocess.run([*ssh, host, f"cat {remote}/{name}"], stdout=file, check=False)  # noqa: S603
                if done.returncode != 0:
                    raise OrinportError(f"{name} could not be brought back from {host}.")
                partial.replace(folder / name)
            finally:
                partial.unlink(missing_ok=True)
            return folder / name
    return None


def _quoted(argument: str) -> str:
    import shlex

    return shlex.quote(argument)


def _run(command: Sequence[str], log: Path, show: Callable[[str], None], environment: dict[str, str]) -> int:
    """Run `command`, its output line by line to `show` and to the file `log`; the status at its end."""
    try:
        with log.open("w", encoding="utf-8", errors="replace") as file:
            process = subprocess.Popen(  # noqa: S603 a list, no shell
                list(command),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
                env=environment,
            )
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    file.write(line)
                    show(line.rstrip("\n"))
                return process.wait()
            except BaseException:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                process.kill()
                raise
    except OSError as error:
        raise OrinportError(f"{str(log)!r} cannot be written: {error.strerror}.") from error


def _checked(command: Sequence[str], host: str) -> str:
    done = subprocess.run(  # noqa: S603 a list, no shell
        list(command), capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise OrinportError(f"{host} cannot be used over ssh: {last[0]}.", "Does ssh to it work without a password?")
    return done.stdout


def _pipe(source: Sequence[str], sink: Sequence[str], host: str) -> None:
    with subprocess.Popen(list(source), stdout=subprocess.PIPE) as first:  # noqa: S603 a list, no shell
        done = subprocess.run(list(sink), stdin=first.stdout, capture_output=True, check=False)  # noqa: S603
        if done.returncode != 0 or first.wait() != 0:
            raise OrinportError(f"The bundle could not be copied to {host}.", "Is there room in its /tmp?")


def _products(folder: Path) -> dict[Path, tuple[int, int]]:
    found = {}
    for name in PRODUCTS:
        path = folder / name
        if path.is_file():
            stat = path.stat()
            found[path] = (stat.st_mtime_ns, stat.st_size)
    return found
