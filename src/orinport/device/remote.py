"""A board over ssh: a folder of its own there, files to and fro, and a program that ends with the connection.

Hosts, keys and configuration are the user's own.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from orinport.device.process import run_logged
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

__all__ = ["fetch", "pipe", "remote_folder", "require_host", "run_remotely", "send_file"]

_FOLDER = "/tmp/orinport."  # noqa: S108 mktemp makes the folder, with a name of its own
_LOST = 255
"""What ssh ends with if it fails itself."""


def require_host(host: str, ssh: Sequence[str]) -> None:
    """Raise OrinportError if there is no ssh, or if `host` would be taken for an option of it."""
    if shutil.which(ssh[0]) is None:
        raise OrinportError(f"{ssh[0]} is not installed.", "Install an ssh client.")
    if host.startswith("-") or not host.strip():
        raise OrinportError(f"{host!r} is no host.", "Write user@board.")


@contextmanager
def remote_folder(host: str, ssh: Sequence[str]) -> Iterator[str]:
    """A new folder on a board, which is taken away again. Raises OrinportError if the board cannot be reached."""
    require_host(host, ssh)
    remote = _asked([*ssh, host, f"mktemp -d {_FOLDER}XXXXXXXX"], host).strip()
    if not remote.startswith(_FOLDER) or not remote.removeprefix(_FOLDER).isalnum():
        hint = "Does its shell print something at login? That would end up in the files too."
        raise OrinportError(f"{host} gave no folder to work in, but {' '.join(remote.split())[:80]!r}.", hint)
    try:
        yield remote
    finally:
        with suppress(OrinportError):
            _asked([*ssh, host, f"rm -rf {remote}"], host)


def run_remotely(
    command: str,
    host: str,
    remote: str,
    log: Path,
    show: Callable[[str], None],
    *,
    ssh: Sequence[str],
    hold: Callable[[subprocess.Popen[str]], None] | None = None,
) -> int:
    """Run a shell command in the folder `remote` of a board, which ends with the connection; its status.

    Raises OrinportError if the connection breaks.
    """
    status = run_logged([*ssh, host, _watched(remote, command)], log, show, dict(os.environ), hold, kept_open=True)
    if status == _LOST or status < 0:
        raise OrinportError(f"The connection to {host} was lost.", f"{log} ends there.")
    return status


def _watched(remote: str, command: str) -> str:
    """The command for the board: `command` in its folder, ended when the connection (its standard input) ends.

    Without a terminal nothing tells a program on the far side that ssh has gone away.
    """
    script = (
        f"exec 3<&0; cd {remote} || exit 2; {command} </dev/null & build=$!; "
        "{ cat <&3; kill $build; } >/dev/null 2>&1 & watch=$!; wait $build; status=$?; kill $watch; exit $status"
    )
    return f"sh -c {shlex.quote(script)}"


def send_file(path: Path, ssh: Sequence[str], host: str, remote: str) -> None:
    """Copy one file, whose name has nothing that a shell would see, into the folder `remote` of a board."""
    pipe(["cat", str(path)], [*ssh, host, f"cat > {remote}/{path.name}"], host)


def fetch(output: Path, host: str, remote: str, ssh: Sequence[str], names: Sequence[str]) -> list[Path]:
    """Bring back those of the files `names` that the board has made; each appears whole or not at all."""
    listing = _asked([*ssh, host, f"ls {remote}"], host).split()
    made = []
    for name in names:
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


def pipe(source: Sequence[str], sink: Sequence[str], host: str) -> None:
    """What `source` prints goes to `sink`, which writes it on `host`. Raises OrinportError if one of them fails."""
    with subprocess.Popen(list(source), stdout=subprocess.PIPE) as first:  # noqa: S603 a list, no shell
        done = subprocess.run(list(sink), stdin=first.stdout, capture_output=True, check=False)  # noqa: S603
        if done.returncode != 0 or first.wait() != 0:
            raise OrinportError(f"Files could not be copied to {host}.", "Is there room in its /tmp?")


def _asked(command: Sequence[str], host: str) -> str:
    done = subprocess.run(  # noqa: S603 a list, no shell
        list(command), capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise OrinportError(f"{host} cannot be used over ssh: {last[0]}.", "Does ssh to it work without a password?")
    return done.stdout
