"""What this machine has for building and running on the DLA, and what is missing or slows it.

Everything is read from files and from programs that Jetson Linux documents (nvpmodel, jetson_clocks,
/etc/nv_tegra_release, the devfreq and runtime status nodes); what is not there is said to be missing. No
board has run this code.
"""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

__all__ = ["Item", "State", "examine"]

_TIMEOUT_S = 10


class State(str, Enum):
    """How it stands with one item."""

    GOOD = "good"
    SLOW = "slow"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that was looked at, what was found, and the command or step that helps."""

    name: str
    state: State
    found: str
    help: str = ""


def examine(root: Path = Path("/")) -> tuple[Item, ...]:
    """Everything that is looked at, below `root` (another one for tests)."""
    return (
        _board(root),
        _release(root),
        _trtexec(root),
        _library("TensorRT", "nvinfer", "Install TensorRT; JetPack brings it: apt-get install tensorrt"),
        _library("cuDLA", "cudla", "Install cuDLA; JetPack brings it: apt-get install libcudla-dev or cuda-cudla"),
        _cores(root),
        _power_mode(),
        _clocks(),
    )


def _read(path: Path) -> str:
    try:
        return path.read_bytes()[:4096].decode("utf-8", "replace").replace("\0", " ").strip()
    except OSError:
        return ""


def _command(*words: str) -> str | None:
    """What a program prints, None if it is missing, fails or hangs."""
    if shutil.which(words[0]) is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 fixed words, no shell
            list(words), capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _board(root: Path) -> Item:
    model = _read(root / "proc/device-tree/model")
    if not model:
        return Item(
            "board",
            State.MISSING,
            "no device tree: this is no Jetson or DRIVE board",
            "Run doctor on the board; orinport build BUNDLE --host user@board builds there from here.",
        )
    if "Orin" not in model and "Xavier" not in model:
        return Item(
            "board", State.MISSING, f"{model}: no DLA is known on it", "Use an Orin NX, AGX Orin or DRIVE Orin."
        )
    if "Nano" in model:
        return Item("board", State.MISSING, f"{model}: Orin Nano has no DLA", "Use an Orin NX or AGX Orin.")
    return Item("board", State.GOOD, model)


def _release(root: Path) -> Item:
    text = _read(root / "etc/nv_tegra_release")
    found = re.search(r"R(\d+) \(release\), REVISION: ([\d.]+)", text)
    if found is None:
        return Item("software release", State.UNKNOWN, "no /etc/nv_tegra_release")
    return Item("software release", State.GOOD, f"Jetson Linux {found.group(1)}.{found.group(2)}")


def _trtexec(root: Path) -> Item:
    given = os.environ.get("TRTEXEC") or shutil.which("trtexec")
    default = root / "usr/src/tensorrt/bin/trtexec"
    path = given or (str(default) if default.is_file() else "")
    if not path:
        return Item("trtexec", State.MISSING, "not found", "apt-get install tensorrt, or set TRTEXEC to its path")
    return Item("trtexec", State.GOOD, path)


def _library(title: str, name: str, help_text: str) -> Item:
    found = ctypes.util.find_library(name)
    if found is None:
        return Item(title, State.MISSING, f"no lib{name}", help_text)
    return Item(title, State.GOOD, found)


def _cores(root: Path) -> Item:
    nodes = sorted((root / "sys/devices/platform").glob("**/158*.nvdla*/power/runtime_status"))
    if not nodes:
        return Item("DLA cores", State.MISSING, "no nvdla device", "Use a board with DLA cores; Orin Nano has none.")
    states = ", ".join(f"{node.parent.parent.name} {_read(node)}" for node in nodes)
    return Item("DLA cores", State.GOOD, f"{len(nodes)}: {states}")


def _power_mode() -> Item:
    text = _command("nvpmodel", "-q")
    if text is None:
        return Item("power mode", State.UNKNOWN, "nvpmodel is not there or needs root", "sudo nvpmodel -q")
    found = re.search(r"NV Power Mode: (\S+)", text)
    name = found.group(1) if found else "unknown"
    if name.startswith("MAXN"):
        return Item("power mode", State.GOOD, name)
    return Item("power mode", State.SLOW, name, "sudo nvpmodel -m 0 chooses the fastest mode (MAXN)")


def _clocks() -> Item:
    text = _command("jetson_clocks", "--show")
    if text is None:
        return Item("clocks", State.UNKNOWN, "jetson_clocks is not there or needs root", "sudo jetson_clocks --show")
    found = re.findall(r"(\w+) MinFreq=(\d+) MaxFreq=(\d+) CurrentFreq=(\d+)", text)
    loose = [name for name, low, high, _ in found if low != high]
    if not found:
        return Item("clocks", State.UNKNOWN, "jetson_clocks shows none", "sudo jetson_clocks --show")
    if loose:
        return Item("clocks", State.SLOW, f"not locked: {', '.join(loose)}", "sudo jetson_clocks locks them")
    return Item("clocks", State.GOOD, "locked")
