"""Targets by name: `load_target("orin-agx-64gb/jp6.0")`."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from orinport.errors import OrinportError
from orinport.targets.target import Confidence, Figure, Hardware, Platform, PowerMode, Stack, Target
from orinport.targets.version import Version
from orinport.toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from importlib.abc import Traversable

__all__ = ["list_targets", "load_target", "release_of"]


def load_target(name: str, power_mode: str | None = None) -> Target:
    """The target `hardware/stack`, or `hardware` alone with its usual software, or the one that a user's profile names.

    `power_mode` is one of the hardware's, by default the first that its file lists. A name that ends in `.toml` is the
    path of a profile that `orinport profile --refit` has written. Raises OrinportError, naming the possibilities, if
    one of the three does not exist or if the software does not run there, and for a profile that is none.
    """
    if name.endswith(".toml"):
        from orinport.targets.profile import load_profile

        base, mode_name, profile = load_profile(Path(name))
        return replace(load_target(base, power_mode or mode_name), profile=profile)
    board, _, release = name.partition("/")
    hardware = _pick(board, _hardware(), "board")
    stack = _pick(release or _default_stack(board), _stacks(), "software release")
    if not _runs(stack, hardware):
        fitting = [other.name for other in _stacks().values() if _runs(other, hardware)]
        raise OrinportError(
            f"{stack.title} does not run on {hardware.title}.",
            f"Releases for {hardware.name}: {', '.join(fitting)}.",
        )
    modes = {mode.name: mode for mode in hardware.power_modes}
    mode = _pick(power_mode, modes, "power mode") if power_mode else hardware.power_modes[0]
    return Target(hardware, stack, mode)


def list_targets() -> tuple[Target, ...]:
    """Every board with every software release that runs on it, in the default power mode."""
    return tuple(
        Target(hardware, stack, hardware.power_modes[0])
        for hardware in _hardware().values()
        for stack in _stacks().values()
        if _runs(stack, hardware)
    )


def _runs(stack: Stack, hardware: Hardware) -> bool:
    return hardware.platform in stack.platforms and hardware.family in stack.families


def _pick(name: str, table: Mapping[str, Any], what: str) -> Any:
    if name in table:
        return table[name]
    folded = {key.lower(): key for key in table}
    if name.lower() in folded:
        return table[folded[name.lower()]]
    close = get_close_matches(name.lower(), folded, n=1)
    guess = f"Did you mean {folded[close[0]]}? " if close else ""
    raise OrinportError(f"{name!r} is no {what} that orinport knows.", f"{guess}There are: {', '.join(table)}.")


def _data() -> Traversable:
    return resources.files("orinport.targets") / "data"


def _files(folder: str) -> Iterable[tuple[str, dict[str, Any]]]:
    for file in sorted((_data() / folder).iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".toml"):
            yield file.name.removesuffix(".toml"), read_toml(file)


@cache
def _hardware() -> Mapping[str, Hardware]:
    return MappingProxyType({name: _read_hardware(name, table) for name, table in _files("hardware")})


@cache
def _stacks() -> Mapping[str, Stack]:
    table = read_toml(_data() / "stacks.toml")
    return MappingProxyType({name: _read_stack(name, entry) for name, entry in table.items()})


@cache
def _default_stack(board: str) -> str:
    hardware = _pick(board, _hardware(), "board")
    stack: str = read_toml(_data() / "hardware" / f"{hardware.name}.toml")["default_stack"]
    return stack


def _read_hardware(name: str, table: Mapping[str, Any]) -> Hardware:
    return Hardware(
        name=name,
        title=table["title"],
        platform=Platform(table["platform"]),
        family=table["family"],
        figures=_figures(table["figures"]),
        power_modes=tuple(PowerMode(mode["name"], _figures(mode["figures"])) for mode in table["power_modes"]),
    )


def _read_stack(name: str, table: Mapping[str, Any]) -> Stack:
    return Stack(
        name=name,
        title=table["title"],
        tensorrt=Version.parse(table["tensorrt"]),
        dla=Version.parse(table["dla"]) if "dla" in table else None,
        line=table["line"],
        cuda=Version.parse(table["cuda"]) if "cuda" in table else None,
        opset=table["opset"],
        platforms=tuple(Platform(p) for p in table["platforms"]),
        families=tuple(table["families"]),
        source=table["source"],
        confidence=Confidence(table["confidence"]),
        l4t=tuple(table.get("l4t", ())),
    )


def release_of(l4t: str) -> Stack | None:
    """The software release that a version of Jetson Linux such as `36.4.3` belongs to, None if that is not known."""
    minor = ".".join(l4t.split(".")[:2])
    return next((stack for stack in _stacks().values() if minor in stack.l4t), None)


def _figures(table: Mapping[str, Any]) -> Mapping[str, Figure]:
    return MappingProxyType(
        {
            key: Figure(figure["value"], figure["unit"], figure["source"], Confidence(figure["confidence"]))
            for key, figure in table.items()
        }
    )
