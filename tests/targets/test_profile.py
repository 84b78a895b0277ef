"""A user's own profile as a target."""

from __future__ import annotations

from pathlib import Path

import pytest

from orinport.checking import as_target
from orinport.errors import OrinportError
from orinport.predict.constants import constants_of, load_constants
from orinport.targets import load_target

GOOD = 'target = "orin-nx-16gb/jp6.2"\n[orin-dla.mac_efficiency]\nvalue = 0.5\nsource = "mine"\n'


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_constants_take_the_place_of_ours(tmp_path: Path) -> None:
    target = load_target(write(tmp_path / "own.toml", GOOD))
    assert target.name == "orin-nx-16gb/jp6.2"
    assert target.profile is not None
    assert target.profile.name == "own.toml"
    constants = constants_of("orin-dla", target)
    assert constants["mac_efficiency"] == 0.5
    assert constants.figures["mac_efficiency"].source == "mine"
    assert constants["gap_us"] == load_constants("orin-dla")["gap_us"]
    assert constants_of("orin-gpu", target) is load_constants("orin-gpu")


def test_the_power_mode_is_the_profiles_unless_another_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "own.toml", 'power_mode = "15W"\n' + GOOD.replace("orin-nx-16gb", "orin-agx-64gb"))
    assert load_target(path).power_mode.name == "15W"
    assert load_target(path, "30W").power_mode.name == "30W"
    again = as_target(load_target(path), "50W")
    assert (again.power_mode.name, again.profile) == ("50W", load_target(path).profile)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no target"),
        ("target = 3\n", "names no target"),
        ('target = "own.toml"\n[orin-dla.gap_us]\nvalue = 1\n', "names no target"),
        ('target = "orin-nx-16gb"\npower_mode = 15\n[orin-dla.gap_us]\nvalue = 1\n', "names no target"),
        ('target = "orin-nx-16gb"\n', "holds no constants"),
        ('target = "orin-nx-16gb"\n[orin-dla.speed]\nvalue = 1\n', "no constant of orin-dla"),
        ('target = "orin-nx-16gb"\n[orin-dla.gap_us]\nvalue = -1\n', "positive"),
        ('target = "orin-nx-16gb"\n[orin-dla.gap_us]\nvalue = nan\n', "positive"),
        ('target = "orin-nx-16gb"\n[orin-dla.gap_us]\nvalue = true\n', "positive"),
        ('target = "orin-nx-16gb"\n[orin-dla.gap_us]\nvalue = 1e300\n', "positive"),
        ('target = "orin-nx-16gb"\n[orin-dla.atom_channels]\nvalue = 0.5\n', "counts channels"),
        ('target = "orin-nx-16gb"\n[orin-dla]\ngap_us = 1\n', "positive"),
        ('target = "orin-nx-17gb"\n[orin-dla.gap_us]\nvalue = 1\n', "no board"),
        ("[", "no TOML"),
    ],
)
def test_what_is_no_profile_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(OrinportError, match=message) as caught:
        load_target(write(tmp_path / "own.toml", text))
    assert len(str(caught.value).splitlines()) == 1


def test_a_profile_that_is_not_there() -> None:
    with pytest.raises(OrinportError, match="cannot be read"):
        load_target("/nowhere/own.toml")
