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

__all__ = ["BOARDS", "BuildResult", "build_here", "build_remotely", "require_bundle", "require_host"]

LOG = "build.log"
PRODUCTS = ("model.engine", "model.loadable")
BESIDE = ("timing.cache", "layers.json")
"""What a build may write beside its product."""
BOARDS = "boards"
"""The folder in a bundle that holds what several boards have built."""
_NOT_SENT = (*PRODUCTS, *BESIDE, LOG, BOARDS)
_REMOTE = "/tmp/orinport."  # noqa: S108 mktemp makes the folder, with a name of its own
_LOST = 255
"""What ssh ends with if it fails itself."""
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
    if status != 0:
        return BuildResult(status, folder / LOG, None)
    beside = tuple(path for path in made if path.name in BESIDE)
    return BuildResult(status, folder / LOG, next((path for path in made if path.name in PRODUCTS), None), beside)


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
    require_host(host, ssh)
    output = folder if output is None else output
    remote = _checked([*ssh, host, f"mktemp -d {_REMOTE}XXXXXXXX"], host).strip()
    if not remote.startswith(_REMOTE) or not remote.removeprefix(_REMOTE).isalnum():
        raise OrinportError(f"{host} gave no folder to build in.", "Is it a Linux system?")
    try:
        _make(output)
        _send(folder, ssh, host, remote)
        if (output / BESIDE[0]).is_file():
            _pipe(["cat", str(output / BESIDE[0])], [*ssh, host, f"cat > {remote}/{BESIDE[0]}"], host)
        words = " ".join(_quoted(argument) for argument in arguments)
        status = _run([*ssh, host, _watched(remote, words)], output / LOG, show, dict(os.environ), hold, kept_open=True)
        if status == _LOST or status < 0:
            raise OrinportError(f"The connection to {host} was lost during the build.", f"{output / LOG} ends there.")
        if status != 0:
            return BuildResult(status, output / LOG, None)
        made = _fetch(output, host, remote, ssh)
        beside = tuple(path for path in made if path.name in BESIDE)
        return BuildResult(status, output / LOG, next((path for path in made if path.name in PRODUCTS), None), beside)
    finally:
        with suppress(OrinportError):
            _checked([*ssh, host, f"rm -rf {remote}"], host)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OrinportError(f"The folder {str(folder)!r} cannot be written: {error.strerror}.") from error


def require_host(host: str, ssh: Sequence[str]) -> None:
    """Raise OrinportError if there is no ssh, or if `host` would be taken for an option of it."""
    if shutil.which(ssh[0]) is None:
        raise OrinportError(f"{ssh[0]} is not installed.", "Install an ssh client.")
    if host.startswith("-") or not host.strip():
        raise OrinportError(f"{host!r} is no host.", "Write user@board.")


def _watched(remote: str, words: str) -> str:
    """The command for the board: build.sh, ended when the connection (its standard input) ends.

    Without a terminal nothing tells a program on the far side that ssh has gone away.
    """
    script = (
        f"exec 3<&0; cd {remote} || exit 2; sh build.sh {words} </dev/null & build=$!; "
        "{ cat <&3; kill $build; } >/dev/null 2>&1 & watch=$!; wait $build; status=$?; kill $watch; exit $status"
    )
    return f"sh -c {_quoted(script)}"


def _send(folder: Path, ssh: Sequence[str], host: str, remote: str) -> None:
    """The bundle without what earlier builds have left in it."""
    excluded = [f"--exclude=./{name}" for name in _NOT_SENT]
    _pipe(["tar", "-C", str(folder), *excluded, "-cf", "-", "."], [*ssh, host, f"tar -C {remote} -xf -"], host)


def _fetch(output: Path, host: str, remote: str, ssh: Sequence[str]) -> list[Path]:
    """Bring back what the board has made; each file appears whole or not at all."""
    listing = _checked([*ssh, host, f"ls {remote}"], host).split()
    made = []
    for name in (*PRODUCTS, *BESIDE):
        if name not in listing:
            continue
        partial = output / f".{name}.partial"
        try:
            with partial.open("wb") as file:
                done = subprocess.run(  # noqa: S603 a list, no shell
                    [*ssh, host, f"cat {remote}/{name}"], stdout=file, stdin=subprocess.DEVNULL, check=False
                )
            if done.returncode != 0:
                raise OrinportError(f"{name} could not be brought back from {host}.")
            made.append(partial.replace(output / name))
        except OSError as error:
            raise OrinportError(f"{str(output / name)!r} cannot be written: {error.strerror}.") from error
        finally:
            partial.unlink(missing_ok=True)
    return made


def _quoted(argument: str) -> str:
    import shlex

    return shlex.quote(argument)


def _run(
    command: Sequence[str],
    log: Path,
    show: Callable[[str], None],
    environment: dict[str, str],
    hold: Callable[[subprocess.Popen[str]], None] | None = None,
    *,
    kept_open: bool = False,
) -> int:
    """Run `command`, its output line by line to `show` and to the file `log`; the status at its end.

    `kept_open` gives it a standard input that stays open as long as this process lives.
    """
    try:
        with log.open("w", encoding="utf-8", errors="replace") as file:
            process = subprocess.Popen(  # noqa: S603 a list, no shell
                list(command),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.PIPE if kept_open else subprocess.DEVNULL,
                text=True,
                errors="replace",
                env=environment,
            )
            try:
                if hold is not None:
                    hold(process)
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
            finally:
                if process.stdin is not None:
                    process.stdin.close()
                if process.stdout is not None:
                    process.stdout.close()
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
    for name in (*PRODUCTS, *BESIDE):
        path = folder / name
        if path.is_file():
            stat = path.stat()
            found[path] = (stat.st_mtime_ns, stat.st_size)
    return found
