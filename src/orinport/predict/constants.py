"""Constants of the prediction, read from `targets/data/predict/`; every one with its source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from orinport.targets.target import Confidence
from orinport.toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orinport.targets.target import Target

__all__ = ["EQUAL", "Constant", "Constants", "constants_of", "load_constants"]


EQUAL = {"dram_gbps": ("weight_gbps", "copy_gbps")}
"""Constants of the DLA that follow another one in every fit: their sources say why."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A number with its unit and source; `low` and `high` bound it where the source gives a range."""

    value: float
    unit: str
    source: str
    confidence: Confidence
    low: float
    high: float
    fitted: bool


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of one model of hardware."""

    name: str
    figures: Mapping[str, Constant]

    def __getitem__(self, key: str) -> float:
        """The value of a constant; KeyError means a defect in the data file."""
        return self.figures[key].value

    def with_values(self, values: Mapping[str, float]) -> Constants:
        """The same constants with some values replaced, for fitting, and those that are equal to them."""
        figures = dict(self.figures)
        equal = {other: value for key, value in values.items() for other in EQUAL.get(key, ()) if other in figures}
        for key, value in {**equal, **values}.items():
            old = figures[key]
            figures[key] = Constant(value, old.unit, old.source, old.confidence, old.low, old.high, old.fitted)
        return Constants(self.name, figures)


def constants_of(name: str, target: Target) -> Constants:
    """The constants of `name`, with those of the target's own profile in their place."""
    constants = load_constants(name)
    own = target.profile.constants.get(name, {}) if target.profile is not None else {}
    figures = {
        key: Constant(figure.value, figure.unit, figure.source, figure.confidence, figure.value, figure.value, False)
        for key, figure in own.items()
    }
    return Constants(name, {**constants.figures, **figures}) if figures else constants


@cache
def load_constants(name: str) -> Constants:
    """The constants of `name`: `orin-dla`, `orin-gpu` or `nvdla-v1`."""
    table = read_toml(resources.files("orinport.targets") / "data" / "predict" / f"{name}.toml")["figures"]
    return Constants(
        name,
        {
            key: Constant(
                float(entry["value"]),
                entry["unit"],
                entry["source"],
                Confidence(entry["confidence"]),
                float(entry.get("low", entry["value"])),
                float(entry.get("high", entry["value"])),
                bool(entry.get("fitted", False)),
            )
            for key, entry in table.items()
        },
    )
