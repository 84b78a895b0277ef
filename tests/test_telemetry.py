"""Nothing is sent anywhere: ONNX Runtime's own events are off unless the caller wants them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import onnx

from builders import small_cnn

if TYPE_CHECKING:
    from pathlib import Path

SESSION = """
import os, sys
from orinport.model.runtime import open_session
open_session(sys.argv[1])
print(os.environ["ORT_DISABLE_TELEMETRY"])
"""


def setting_seen(tmp_path: Path, scratch: Path, **environment: str) -> str:
    """What a process that opens a session has in its environment; its temporary files are in `scratch`."""
    scratch.mkdir()
    onnx.save(small_cnn(), tmp_path / "network.onnx")
    inherited = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [sys.executable, "-c", SESSION, str(tmp_path / "network.onnx")],
        env={**inherited, "TMPDIR": str(scratch), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_session_leaves_no_session_of_telemetry_behind(tmp_path: Path) -> None:
    """ONNX Runtime 1.32 writes `.ses` into the folder for temporary files where its events are on."""
    assert setting_seen(tmp_path, tmp_path / "scratch") == "1"
    assert not any((tmp_path / "scratch").iterdir())


def test_who_wants_the_events_sent_has_them(tmp_path: Path) -> None:
    assert setting_seen(tmp_path, tmp_path / "scratch", ORT_DISABLE_TELEMETRY="0") == "0"
