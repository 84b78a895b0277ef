"""Constants of the prediction, read from `targets/data/predict/`; every one with its source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from orinport.targets.target import Confidence
from orinport.targets.toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Constant", "Constants", "load_constants"]


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
        """The same constants with some values replaced, for fitting."""
        figures = dict(self.figures)
        for key, value in values.items():
            old = figures[key]
            figures[key] = Constant(value, old.unit, old.source, old.confidence, old.low, old.high, old.fitted)
        return Constants(self.name, figures)


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
