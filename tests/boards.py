"""Stand-ins for boards: a bundle, a stand-in for trtexec, and real ssh servers on loopback that find it."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

STAND_IN = """#!/bin/sh
# A stand-in for trtexec: it prints what it was given, and makes the files that it is asked for unless told to fail.
echo "[I] TensorRT version: 8.6.2"
echo "[I] folder $(pwd)"
echo $$ > "$0.pid"
engine=""
for argument in "$@"; do
  echo "[I] argument $argument"
  case "$argument" in
    --saveEngine=*) engine="${argument#--saveEngine=}";;
    --timingCacheFile=*) cache="${argument#--timingCacheFile=}"
      [ -f "$cache" ] && echo "[I] cache was $(cat "$cache")"
      printf "$(basename "$0")" > "$cache";;
    --exportLayerInfo=*) printf '{"Layers": ["a"], "Bindings": []}' > "${argument#--exportLayerInfo=}";;
    --exportProfile=*) [ -n "$FAIL" ] || cp "$(dirname "$0")/profile.json" "${argument#--exportProfile=}";;
    --exportTimes=*) [ -n "$FAIL" ] || cp "$(dirname "$0")/times.json" "${argument#--exportTimes=}";;
  esac
done
if [ -n "$FAIL" ]; then
  [ -n "$engine" ] && printf half > "$engine"
  echo "[W] [TRT] MatMul is unsupported on DLA, relax constraints or use Convolution layer instead."
  echo "[E] Engine could not be created from network"
  echo "&&&& FAILED TensorRT.trtexec [TensorRT v8602] # trtexec"
  exit 1
fi
if [ -n "$SLEEP" ]; then exec sleep "$SLEEP"; fi
[ -n "$engine" ] && printf "${NAME:-engine}" > "$engine"
echo "&&&& PASSED TensorRT.trtexec [TensorRT v8602] # trtexec"
"""
SCRIPT = """#!/bin/sh
set -eu
cd "$(dirname "$0")"
exec "${TRTEXEC:-trtexec}" --onnx=model.onnx --saveEngine=model.engine --useDLACore=0 "$@"
"""


def folders(lines: list[str]) -> list[Path]:
    """Where the stand-in ran, by its own words."""
    return [Path(line.removeprefix("[I] folder ")) for line in lines if line.startswith("[I] folder ")]


def user() -> str:
    """The name of whoever runs the tests."""
    return pwd.getpwuid(os.getuid()).pw_name


def write_bundle(folder: Path) -> Path:
    """A folder that passes for a bundle."""
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"model")
    (folder / "build.sh").write_text(SCRIPT)
    return folder


def write_program(path: Path, text: str = STAND_IN) -> Path:
    """An executable script."""
    path.write_text(text)
    path.chmod(0o755)
    return path


def write_keys(folder: Path) -> None:
    """Keys of hosts and of the user, and the list of keys that hosts accept."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    (folder / "authorized").chmod(0o600)


@contextmanager
def ssh_server(folder: Path, trtexec: Path, **environment: str) -> Iterator[int]:
    """A real sshd on loopback with the keys in `folder`; gives its port. Skips where none can run."""
    server = shutil.which("sshd", path=f"/usr/sbin:{os.environ['PATH']}")
    if server is None or shutil.which("ssh") is None:
        pytest.skip("no sshd on this machine")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where a server of root's wants to confine its child
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = " ".join(f"{name}={value}" for name, value in {"TRTEXEC": str(trtexec), **environment}.items())
    config = folder / f"sshd-{port}"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"StrictModes no\nPidFile none\nUsePAM no\nPasswordAuthentication no\nSetEnv {variables}\n"
    )
    process = subprocess.Popen(
        [server, "-D", "-e", "-f", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(400):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None:
                pytest.skip("sshd does not start for this user")
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(5)


def ssh_options(folder: Path) -> tuple[str, ...]:
    """Options that make ssh use the keys in `folder` and nothing of the user's."""
    options = ["BatchMode=yes", "StrictHostKeyChecking=no", f"UserKnownHostsFile={folder}/known", "LogLevel=ERROR"]
    return ("-F", "/dev/null", "-i", str(folder / "user"), *(word for option in options for word in ("-o", option)))
