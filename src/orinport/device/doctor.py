"""What this machine has for building and running on the DLA, and what is missing or slows it.

Everything is read from files and from programs that Jetson Linux and DRIVE OS bring (nvpmodel, jetson_clocks,
/etc/nv_tegra_release, /etc/nvpmodel.conf, /etc/nvidia, the runtime status nodes); what is not there is said to be
missing. The wordings are those of public outputs of boards; no board has run this code.
"""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from orinport.device.tensorrt_package import has_package
from orinport.targets.load import release_of

__all__ = ["Item", "State", "examine"]

_TIMEOUT_S = 10
_CLOCK = re.compile(
    r"^\s*(?P<name>[\w-]+?):?\s+(?P<before>(?:\w+=\S+\s+)*?)"
    r"MinFreq=(?P<low>\d+) MaxFreq=(?P<high>\d+) CurrentFreq=(?P<now>\d+)(?P<after>.*)$",
    re.MULTILINE,
)
_COMPILER = "usr/lib/aarch64-linux-gnu/nvidia/libnvdla_compiler.so"
_PLUGINS = ("build/orinport-plugins/liborinport_plugins.so", "liborinport_plugins.so")


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
    needed: bool = True
    """False for what only some uses need: that it is missing is no fault."""


def examine(root: Path = Path("/"), here: Path = Path()) -> tuple[Item, ...]:
    """Everything that is looked at below `root` (another one for tests), and the plugins in the folder `here`."""
    board = _board(root)
    items = (
        _release(root),
        _trtexec(root),
        _library("TensorRT", "nvinfer", "sudo apt-get install tensorrt"),
        _python(),
        _compiler(root),
        _library("cuDLA", "cudla", "sudo apt-get install libcudla-12-6 (the number is that of the board's CUDA)"),
        _cores(root),
        _power_mode(root),
        *_clocks(),
        _plugin(here),
    )
    if board.state is State.MISSING:
        items = tuple(replace(item, help=f"on a board: {item.help}" if item.help else "") for item in items)
    return (board, *items)


def _read(path: Path, limit: int = 4096) -> str:
    try:
        with path.open("rb") as file:
            return file.read(limit).decode("utf-8", "replace").replace("\0", " ").strip()
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
    if "Nano" in model:
        return Item("board", State.MISSING, f"{model}: Orin Nano has no DLA", "Use an Orin NX or AGX Orin.")
    if "Orin" not in model and "Xavier" not in model:
        return Item(
            "board", State.MISSING, f"{model}: no DLA is known on it", "Use an Orin NX, AGX Orin or DRIVE Orin."
        )
    return Item("board", State.GOOD, model)


def _release(root: Path) -> Item:
    text = _read(root / "etc/nv_tegra_release")
    found = re.search(r"R(\d+) \(release\), REVISION: ([\d.]+)", text)
    if found is None:
        drive = re.match(r"\d+(?:\.\d+)+", _read(root / "etc/nvidia/version-ubuntu-rootfs.txt"))
        if drive is not None:
            return Item("software release", State.GOOD, f"DRIVE OS {drive.group()}: a target is drive-orin")
        help_text = "Flash the board with JetPack (SDK Manager), or with DRIVE OS."
        return Item("software release", State.UNKNOWN, "no /etc/nv_tegra_release", help_text)
    version = f"{found.group(1)}.{found.group(2)}"
    stack = release_of(version)
    if stack is None:
        help_text = "Choose the release with the nearest TensorRT: orinport targets lists them."
        return Item("software release", State.UNKNOWN, f"Jetson Linux {version}, no release that we know", help_text)
    return Item("software release", State.GOOD, f"Jetson Linux {version}, {stack.title}: --target BOARD/{stack.name}")


def _trtexec(root: Path) -> Item:
    given = os.environ.get("TRTEXEC")
    default = root / "usr/src/tensorrt/bin/trtexec"
    path = given or shutil.which("trtexec") or (str(default) if default.is_file() else "")
    if given and not os.access(given, os.X_OK):
        return Item("trtexec", State.MISSING, f"TRTEXEC names {given}, which is no program", "unset TRTEXEC")
    if not path:
        return Item("trtexec", State.MISSING, "not found", "sudo apt-get install tensorrt, or set TRTEXEC to its path")
    return Item("trtexec", State.GOOD, path)


def _library(title: str, name: str, help_text: str) -> Item:
    found = ctypes.util.find_library(name)
    if found is None:
        return Item(title, State.MISSING, f"no lib{name}", help_text)
    return Item(title, State.GOOD, found)


def _python() -> Item:
    """What builds without trtexec, and what `run` needs."""
    name = "TensorRT for Python"
    if has_package():
        return Item(name, State.GOOD, "the package tensorrt")
    help_text = "sudo apt-get install python3-libnvinfer, and a virtual environment with --system-site-packages"
    return Item(name, State.MISSING, "no package tensorrt: run and builds without trtexec need it", help_text, False)


def _compiler(root: Path) -> Item:
    """Without the DLA's compiler TensorRT finds no core: `Cannot create DLA engine, 0 not available`."""
    path = root / _COMPILER
    if path.is_file() and path.stat().st_size:
        return Item("DLA compiler", State.GOOD, str(path))
    found = ctypes.util.find_library("nvdla_compiler")
    if found is not None:
        return Item("DLA compiler", State.GOOD, found)
    help_text = "sudo apt-get install nvidia-l4t-dla-compiler, then sudo ldconfig"
    return Item("DLA compiler", State.MISSING, "no libnvdla_compiler: TensorRT finds no DLA core", help_text)


def _cores(root: Path) -> Item:
    nodes = sorted((root / "sys/devices/platform").glob("**/158*.nvdla*/power/runtime_status"))
    if not nodes:
        return Item("DLA cores", State.MISSING, "no nvdla device", "Use a board with DLA cores; Orin Nano has none.")
    states = ", ".join(f"{node.parent.parent.name} {_read(node)}" for node in nodes)
    return Item("DLA cores", State.GOOD, f"{len(nodes)}: {states}")


def _power_mode(root: Path) -> Item:
    text = _command("nvpmodel", "-q")
    found = re.search(r"NV Power Mode: *(\S+)", text or "")
    if found is None:
        absent = shutil.which("nvpmodel") is None
        what = "nvpmodel is not there" if absent else "nvpmodel does not say it to this user"
        help_text = (
            "sudo apt-get install nvidia-l4t-nvpmodel" if absent else "sudo orinport doctor, or sudo nvpmodel -q"
        )
        return Item("power mode", State.UNKNOWN, what, help_text)
    name = found.group(1)
    if name.startswith("MAXN"):
        return Item("power mode", State.GOOD, name)
    modes = re.findall(r"< *POWER_MODEL +ID=(\d+) +NAME=(\S+) *>", _read(root / "etc/nvpmodel.conf", 1 << 20))
    fastest = next((f"sudo nvpmodel -m {number} chooses {mode}" for number, mode in modes if mode[:4] == "MAXN"), "")
    help_text = fastest or "sudo nvpmodel -p --verbose lists the modes, sudo nvpmodel -m ID chooses one"
    return Item("power mode", State.SLOW, f"{name}: predict with --power-mode, or choose the fastest", help_text)


def _clocks() -> tuple[Item, ...]:
    """Whether CPU, GPU and memory are locked, and what the DLA runs at; it has no lower bound of its own."""
    text = _command("jetson_clocks", "--show")
    rows = list(_CLOCK.finditer(text or ""))
    if not rows:
        absent = shutil.which("jetson_clocks") is None
        what = "jetson_clocks is not there" if absent else "jetson_clocks shows none to this user"
        help_text = "sudo apt-get install nvidia-l4t-tools" if absent else "sudo orinport doctor"
        return (Item("clocks", State.UNKNOWN, what, help_text),)
    cores = [row for row in rows if row["name"].startswith("DLA")]
    others = [row for row in rows if not row["name"].startswith(("DLA", "PVA")) and "Online=0" not in row["before"]]
    loose = [row["name"] for row in others if row["low"] != row["high"] and "FreqOverride=1" not in row["after"]]
    names = dict.fromkeys("CPU" if name.startswith("cpu") else name for name in loose)
    locked = Item("clocks", State.GOOD, "locked")
    if loose:
        locked = Item("clocks", State.SLOW, f"not locked: {', '.join(names)}", "sudo jetson_clocks locks them")
    if not cores:
        return (locked,)
    shown = ", ".join(f"{row['name']} {int(row['now']) / 1e6:g} MHz" for row in cores)
    below = [row["name"] for row in cores if row["now"] != row["high"]]
    if below:
        help_text = "sudo jetson_clocks; if it stays so, the board is too hot or throttled: sudo tegrastats"
        return (locked, Item("DLA clocks", State.SLOW, f"below their highest: {shown}", help_text))
    return (locked, Item("DLA clocks", State.GOOD, shown))


def _plugin(here: Path) -> Item:
    """Networks with DCNv4 need it, others do not."""
    found = next((here / name for name in _PLUGINS if (here / name).is_file()), None)
    if found is not None:
        return Item("DCNv4 plugin", State.GOOD, str(found))
    help_text = "orinport dcnv4 plugin build --trt-root DIR"
    return Item("DCNv4 plugin", State.MISSING, "not built here: only networks with DCNv4 need it", help_text, False)
