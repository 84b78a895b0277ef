"""Targets by name, the ways to get a name wrong, and the figures behind them."""

from __future__ import annotations

import pytest

from orinport.errors import OrinportError
from orinport.targets import list_targets, load_target
from orinport.targets.target import Confidence, Platform
from orinport.targets.version import Version


def test_hardware_and_stack() -> None:
    target = load_target("orin-agx-64gb/jp6.0")
    assert target.name == "orin-agx-64gb/jp6.0"
    assert target.platform is Platform.ORIN
    assert target.stack.tensorrt == Version.parse("8.6.2")
    assert target.stack.dla == Version.parse("3.14.1")
    assert not target.stack.strongly_typed


@pytest.mark.parametrize(
    ("board", "stack"),
    [
        ("orin-agx-64gb", "jp6.2"),
        ("orin-agx-32gb", "jp6.2"),
        ("orin-nx-16gb", "jp6.2"),
        ("drive-orin", "drive-6.0.9"),
        ("xavier-agx", "jp5.1"),
    ],
)
def test_a_board_alone_has_its_usual_software(board: str, stack: str) -> None:
    assert load_target(board).name == f"{board}/{stack}"


def test_names_are_case_insensitive() -> None:
    assert load_target("Orin-AGX-64GB/JP6.0").name == "orin-agx-64gb/jp6.0"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("orin-agx-64", "Did you mean orin-agx-64gb?"),
        ("", "There are: drive-orin"),
        ("orin-agx-64gb/jp6.1", "There are: jp5.1"),
        ("orin-agx-64gb/jp6.0/x", "There are: jp5.1"),
        ("orin-nx-16gb/jp7.2.2", "Releases for orin-nx-16gb: jp5.1, jp6.0, jp6.2, jp7.2."),
        ("xavier-agx/jp6.0", "Releases for xavier-agx: jp5.1."),
        ("drive-orin/jp6.0", "Releases for drive-orin: drive-6.0.9."),
        ("orin-agx-64gb/drive-6.0.9", "Releases for orin-agx-64gb: jp5.1, jp6.0, jp6.2, jp7.2, jp7.2.2."),
    ],
)
def test_a_wrong_name_lists_the_possibilities(name: str, hint: str) -> None:
    with pytest.raises(OrinportError) as error:
        load_target(name)
    assert hint in error.value.hint


def test_power_modes() -> None:
    assert load_target("orin-agx-64gb").power_mode.name == "MAXN"
    mode = load_target("orin-agx-64gb", power_mode="15w").power_mode
    assert mode.name == "15W"
    assert mode.figures["dla_mhz"].value == 614.4
    with pytest.raises(OrinportError, match="'20W' is no power mode") as error:
        load_target("orin-agx-64gb", power_mode="20W")
    assert "MAXN, 50W, 30W, 15W" in error.value.hint


def test_the_list_holds_what_can_be_loaded() -> None:
    names = [target.name for target in list_targets()]
    assert len(names) == len(set(names)) == 16
    for name in names:
        assert load_target(name).name == name


def test_only_agx_orin_has_the_newest_release() -> None:
    boards = {target.hardware.name for target in list_targets() if target.stack.name == "jp7.2.2"}
    assert boards == {"orin-agx-64gb", "orin-agx-32gb"}
    assert load_target("orin-agx-64gb/jp7.2.2").stack.strongly_typed


@pytest.mark.parametrize("name", [target.name for target in list_targets()])
def test_every_figure_has_unit_and_source(name: str) -> None:
    target = load_target(name)
    tables = [target.hardware.figures, *(mode.figures for mode in target.hardware.power_modes)]
    for figures in tables:
        for key, figure in figures.items():
            assert figure.value > 0, key
            assert figure.unit, key
            assert len(figure.source) > 3, key
            assert isinstance(figure.confidence, Confidence), key
    assert target.hardware.figures["dla_cores"].value == 2
    for mode in target.hardware.power_modes:
        assert {"dla_mhz", "gpu_mhz", "emc_mhz"} <= set(mode.figures)
    assert target.stack.source


@pytest.mark.parametrize("mode", ["MAXN", "50W", "30W", "15W"])
def test_stated_tops_follow_from_clock_and_array(mode: str) -> None:
    """Two cores, 8192 MAC per cycle, two operations a MAC, twice that with sparsity."""
    target = load_target("orin-agx-64gb", power_mode=mode)
    per_cycle = target.hardware.figures["dla_int8_mac_per_cycle"].value * 2 * 2 * 2
    tops = per_cycle * target.power_mode.figures["dla_mhz"].value / 1e6
    assert tops == pytest.approx(target.power_mode.figures["dla_tops_int8_sparse"].value, rel=0.01)


@pytest.mark.parametrize(("board", "mode"), [("orin-agx-32gb", "MAXN"), ("orin-nx-16gb", "MAXN_SUPER")])
def test_total_tops_follow_from_both_engines(board: str, mode: str) -> None:
    target = load_target(board, power_mode=mode)
    figures, clocks = target.hardware.figures, target.power_mode.figures
    dla = figures["dla_cores"].value * figures["dla_int8_mac_per_cycle"].value * clocks["dla_mhz"].value
    gpu = figures["gpu_sms"].value * figures["gpu_int8_mac_per_cycle_per_sm"].value * clocks["gpu_mhz"].value
    tops = (dla + gpu) * 4 / 1e6
    assert tops == pytest.approx(clocks["total_tops_int8_sparse"].value, rel=0.02)


def test_targets_can_be_keys() -> None:
    again = load_target("orin-agx-64gb/jp6.0")
    assert {load_target("orin-agx-64gb/jp6.0"): 1}[again] == 1
    assert load_target("orin-agx-64gb/jp6.0", power_mode="15W") != again
