"""A user's own profile: a TOML file that names a target and replaces constants of its prediction.

    target = "orin-agx-64gb/jp6.2"
    power_mode = "MAXN"

    ["orin-dla".mac_efficiency]
    value = 0.87
    source = "..."

`orinport profile --refit` writes it, and every command takes it where it takes a target.
"""

from __future__ import annotations

from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from orinport.errors import OrinportError
from orinport.targets.target import Confidence, Figure, Profile
from orinport.toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["load_profile"]

_MODELS = ("orin-dla", "orin-gpu")
_LONGEST = 500
_LARGEST = 1e9
_COUNTS = ("channels", "kernels", "pipelines", "banks", "B", "channels, kernels", "positions")
"""Units of constants that are whole numbers."""


def load_profile(path: Path) -> tuple[str, str | None, Profile]:
    """Target, power mode (None: the board's first) and constants of a profile.

    Raises OrinportError if the file cannot be read, is no profile, or names a constant that does not exist.
    """
    try:
        table = read_toml(path)
    except OSError as error:
        raise OrinportError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise OrinportError(f"{str(path)!r} is no TOML: {error}.") from error
    target, mode = table.get("target"), table.get("power_mode")
    if not isinstance(target, str) or target.endswith(".toml") or not isinstance(mode, str | None):
        raise OrinportError(f"{str(path)!r} names no target.", 'Begin it with target = "orin-agx-64gb/jp6.2".')
    constants = {model: _constants(path, model, table[model]) for model in _MODELS if model in table}
    if not constants:
        raise OrinportError(f"{str(path)!r} holds no constants.", "orinport profile --refit writes such a file.")
    return target, mode, Profile(path.name, MappingProxyType(constants))


def _constants(path: Path, model: str, table: Any) -> Mapping[str, Figure]:
    known = read_toml(resources.files("orinport.targets") / "data" / "predict" / f"{model}.toml")["figures"]
    found = {}
    for key, entry in table.items() if isinstance(table, dict) else ():
        value = entry.get("value") if isinstance(entry, dict) else None
        if key not in known:
            raise OrinportError(f"{str(path)!r} sets {key!r}, which is no constant of {model}.")
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= _LARGEST:
            raise OrinportError(f"{str(path)!r} sets {key} to {value!r}.", "Constants are positive numbers.")
        unit = known[key]["unit"]
        if unit in _COUNTS and value != int(value):
            raise OrinportError(f"{str(path)!r} sets {key} to {value!r}.", f"It counts {unit}.")
        source = str(entry.get("source", f"profile {path.name}"))[:_LONGEST]
        found[key] = Figure(float(value), unit, source, Confidence.OBSERVED)
    return MappingProxyType(found)
