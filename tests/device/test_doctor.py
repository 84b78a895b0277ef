"""Looking at a machine: files in the places of Jetson Linux and DRIVE OS, and stand-ins that print what boards print."""

# ruff: noqa: E501 the outputs are as their programs write them

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from boards import write_program
from orinport.cli import main
from orinport.device.doctor import Item, State, examine
from orinport.targets.load import release_of

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOSE = """SOC family:tegra234  Machine:Jetson AGX Orin
Online CPUs: 0-1
cpu0:  Online=1 Governor=schedutil MinFreq=729600 MaxFreq=2201600 CurrentFreq=1190400 IdleStates: WFI=1 c7=1
cpu1:  Online=0 Governor=schedutil MinFreq=729600 MaxFreq=2201600 CurrentFreq=729600 IdleStates: WFI=1 c7=1
GPU MinFreq=306000000 MaxFreq=1300500000 CurrentFreq=306000000
Active GPU TPCs: 8
EMC MinFreq=204000000 MaxFreq=3199000000 CurrentFreq=2133000000 FreqOverride=0
DLA0_CORE:   Online=1 MinFreq=0 MaxFreq=1600000000 CurrentFreq=1600000000
DLA0_FALCON: Online=1 MinFreq=0 MaxFreq=844800000 CurrentFreq=844800000
PVA0_VPS0: Online=1 MinFreq=0 MaxFreq=1152000000 CurrentFreq=115200000
FAN Dynamic Speed control=active hwmon2_pwm1=55
NV Power Mode: MAXN
"""
LOCKED = (
    LOOSE.replace("MinFreq=729600 MaxFreq=2201600", "MinFreq=2201600 MaxFreq=2201600")
    .replace("MinFreq=306000000", "MinFreq=1300500000")
    .replace("FreqOverride=0", "FreqOverride=1")
)
LOCKED_7 = """cpu5:  Governor=schedutil MinFreq=2201600 MaxFreq=2201600 CurrentFreq=2201600 IdleStates: WFI=0 c7=0
GPU MinFreq=1300500000 MaxFreq=1300500000 CurrentFreq=1300500000
EMC MinFreq=3199000000 MaxFreq=3199000000 CurrentFreq=3199000000
DLA0_CORE:   Online=1 MinFreq=0 MaxFreq=1600000000 CurrentFreq=1600000000
"""
CONF = "< POWER_MODEL ID=0 NAME=15W >\n...\n< POWER_MODEL ID=2 NAME=MAXN_SUPER >\n"


class Board:
    """A file system like a board's, and programs that print what they are told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = folder / "root"
        self.programs = folder / "bin"
        self.programs.mkdir()
        monkeypatch.setenv("PATH", f"{self.programs}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.delenv("TRTEXEC", raising=False)
        self.write("proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0")
        self.write("etc/nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic\n")
        self.write("usr/lib/aarch64-linux-gnu/nvidia/libnvdla_compiler.so", "library")
        for core in ("15880000.nvdla0", "158c0000.nvdla1"):
            self.write(f"sys/devices/platform/13e00000.host1x/{core}/power/runtime_status", "suspended\n")
        self.prints("nvpmodel", "NV Power Mode: MAXN\n0\n")
        self.prints("jetson_clocks", LOCKED)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def prints(self, program: str, text: str, status: int = 0) -> None:
        write_program(self.programs / program, f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {status}\n")

    def items(self) -> Mapping[str, Item]:
        return {item.name: item for item in examine(self.root, self.root)}


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    return Board(tmp_path, monkeypatch)


def test_a_machine_without_a_dla(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = {item.name: item for item in examine(tmp_path, tmp_path)}
    assert items["board"].state is State.MISSING
    assert items["DLA cores"].state is State.MISSING
    assert all(item.help for item in items.values() if item.state is not State.GOOD)
    assert items["DLA compiler"].help.startswith("on a board: sudo apt-get install")
    assert main(["doctor", "-f", "json"]) == 1
    rows = json.loads(capsys.readouterr().out)["items"]
    assert {row["name"] for row in rows} == set(items)
    assert main(["doctor"]) == 1
    assert "DLA cores: missing" in capsys.readouterr().out


def test_a_board_that_is_as_it_should_be(board: Board) -> None:
    items = board.items()
    assert items["board"].state is State.GOOD
    assert items["software release"].found == "Jetson Linux 36.4.3, JetPack 6.1 to 6.2: --target BOARD/jp6.2"
    assert items["DLA compiler"].state is State.GOOD
    assert items["DLA cores"].found == "2: 15880000.nvdla0 suspended, 158c0000.nvdla1 suspended"
    assert (items["power mode"].state, items["power mode"].found) == (State.GOOD, "MAXN")
    assert (items["clocks"].state, items["clocks"].found) == (State.GOOD, "locked")
    assert items["DLA clocks"].found == "DLA0_CORE 1600 MHz, DLA0_FALCON 844.8 MHz"


def test_clocks_that_are_not_locked(board: Board) -> None:
    board.prints("jetson_clocks", LOOSE)
    clocks = board.items()["clocks"]
    assert (clocks.state, clocks.found) == (State.SLOW, "not locked: CPU, GPU, EMC")
    assert clocks.help == "sudo jetson_clocks locks them"


def test_clocks_as_jetpack_7_shows_them(board: Board) -> None:
    board.prints("jetson_clocks", LOCKED_7)
    assert board.items()["clocks"].state is State.GOOD


def test_a_dla_below_its_clock(board: Board) -> None:
    board.prints("jetson_clocks", LOCKED.replace("CurrentFreq=1600000000", "CurrentFreq=614400000"))
    clocks = board.items()["DLA clocks"]
    assert clocks.state is State.SLOW
    assert "DLA0_CORE 614.4 MHz" in clocks.found
    assert "sudo jetson_clocks" in clocks.help


def test_a_slow_power_mode_and_the_number_of_the_fastest(board: Board) -> None:
    board.prints("nvpmodel", "NV Power Mode: 15W\n0\n")
    mode = board.items()["power mode"]
    assert (mode.state, mode.help) == (
        State.SLOW,
        "sudo nvpmodel -p --verbose lists the modes, sudo nvpmodel -m ID chooses one",
    )
    board.write("etc/nvpmodel.conf", CONF)
    assert board.items()["power mode"].help == "sudo nvpmodel -m 2 chooses MAXN_SUPER"


def test_programs_that_want_root_or_are_not_there(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    board.prints("nvpmodel", "Error opening", 1)
    board.prints("jetson_clocks", "Error: Run this script as a root user", 1)
    items = board.items()
    assert (items["power mode"].state, items["clocks"].state) == (State.UNKNOWN, State.UNKNOWN)
    assert "sudo orinport doctor" in items["power mode"].help
    assert items["clocks"].help == "sudo orinport doctor"
    for program in board.programs.iterdir():
        program.unlink()
    items = board.items()
    assert items["power mode"].help == "sudo apt-get install nvidia-l4t-nvpmodel"
    assert items["clocks"].help == "sudo apt-get install nvidia-l4t-tools"


@pytest.mark.parametrize("content", [None, ""])
def test_without_the_compiler_of_the_dla(board: Board, content: str | None) -> None:
    """Containers hold an empty file in its place."""
    path = board.root / "usr/lib/aarch64-linux-gnu/nvidia/libnvdla_compiler.so"
    path.unlink()
    if content is not None:
        path.write_text(content)
    compiler = board.items()["DLA compiler"]
    assert compiler.state is State.MISSING
    assert "sudo apt-get install nvidia-l4t-dla-compiler" in compiler.help


@pytest.mark.parametrize(
    ("l4t", "stack"),
    [("35.4.1", "jp5.1"), ("36.3.0", "jp6.0"), ("36.4.0", "jp6.2"), ("36.4.7", "jp6.2"), ("39.2.0", "jp7.2")],
)
def test_releases_of_jetson_linux(l4t: str, stack: str) -> None:
    found = release_of(l4t)
    assert found is not None
    assert found.name == stack


def test_releases_that_are_not_known(board: Board) -> None:
    assert release_of("34.1") is None
    board.write("etc/nv_tegra_release", "# R38 (release), REVISION: 2.0, GCID: 1, BOARD: generic\n")
    release = board.items()["software release"]
    assert (release.state, release.found) == (State.UNKNOWN, "Jetson Linux 38.2.0, no release that we know")


def test_drive_os(board: Board) -> None:
    (board.root / "etc/nv_tegra_release").unlink()
    board.write("etc/nvidia/version-ubuntu-rootfs.txt", "6.0.9.0-34565678\n")
    assert board.items()["software release"].found == "DRIVE OS 6.0.9.0: a target is drive-orin"


@pytest.mark.parametrize(
    ("model", "found"),
    [("NVIDIA Jetson Orin Nano Developer Kit", "has no DLA"), ("NVIDIA Jetson TX2", "no DLA is known")],
)
def test_boards_without_a_dla(board: Board, model: str, found: str) -> None:
    board.write("proc/device-tree/model", model)
    assert board.items()["board"].state is State.MISSING
    assert found in board.items()["board"].found


def test_trtexec_that_the_environment_names(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRTEXEC", "/nowhere/trtexec")
    trtexec = board.items()["trtexec"]
    assert (trtexec.state, trtexec.help) == (State.MISSING, "unset TRTEXEC")
    monkeypatch.setenv("TRTEXEC", str(write_program(board.programs / "mine", "#!/bin/sh\n")))
    assert board.items()["trtexec"].state is State.GOOD


def test_the_plugin_is_for_some_networks_only(board: Board) -> None:
    plugin = board.items()["DCNv4 plugin"]
    assert (plugin.state, plugin.needed) == (State.MISSING, False)
    board.write("build/orinport-plugins/liborinport_plugins.so", "library")
    assert board.items()["DCNv4 plugin"].state is State.GOOD
