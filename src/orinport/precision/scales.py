"""`Scales`: one symmetric INT8 scale for every tensor, and where it comes from.

TensorRT's implicit quantisation has one dynamic range for each tensor, `[-range, range]`, and the scale
`range / 127`; a calibration cache holds the scale as binary32. The scale is the value that is kept here, so that
what is written is what was computed, bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from orinport.rules.finding import Finding

__all__ = ["LEVELS", "Origin", "Scale", "Scales", "is_valid"]

LEVELS = 127
"""Positive values of symmetric INT8: -128 is not used (NvInfer.h, IInt8Calibrator and setDynamicRange)."""


class Origin(str, Enum):
    """Where a scale comes from."""

    DATA = "data"
    """Calibrated: the tensor was watched on data."""
    QDQ = "qdq"
    """A QuantizeLinear on this very tensor."""
    CACHE = "cache"
    """A calibration cache."""
    FILE = "file"
    """A JSON file of scales."""
    CONSTANT = "constant"
    """The tensor's values are known at build time."""
    BOUND = "bound"
    """The operator bounds its output, e.g. Sigmoid by 1."""
    KEPT = "kept"
    """Taken over from a tensor that holds the same values."""
    TIED = "tied"
    """Widened to the range of tensors that the DLA wants equal."""
    FUSED = "fused"
    """1.0, the mark for a convolution that the DLA's compiler fuses with the addition behind it."""
    FREE = "free"
    """Only zeros were seen, so any scale is right."""


def is_valid(scale: float) -> bool:
    """True if `scale` can be written: finite and positive as binary32."""
    with np.errstate(over="ignore"):
        single = float(np.float32(scale))
    return isfinite(single) and single > 0


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale: the step of INT8, rounded to binary32. Raises ValueError unless it is finite and positive."""

    value: float
    origin: Origin
    note: str = ""
    """The tensor that it was taken over from, or what else a reader should know."""

    def __post_init__(self) -> None:
        if not is_valid(self.value):
            raise ValueError(f"{self.value!r} is not a scale")
        object.__setattr__(self, "value", float(np.float32(self.value)))

    @classmethod
    def of_range(cls, largest: float, origin: Origin, note: str = "") -> Scale:
        """The scale whose range is `[-largest, largest]`: `largest / 127`, both in binary32."""
        return cls(float(np.float32(largest) / np.float32(LEVELS)), origin, note)

    @property
    def range(self) -> float:
        """The largest magnitude that it represents, `scale * 127` in binary32."""
        with np.errstate(over="ignore"):
            return float(np.float32(self.value) * np.float32(LEVELS))


@dataclass(frozen=True, slots=True)
class Scales:
    """Scales by tensor name, how they were found, and what was noticed on the way."""

    tensors: Mapping[str, Scale] = field(hash=False)
    method: str = ""
    findings: tuple[Finding, ...] = ()
    weights: Mapping[str, NDArray[np.float32]] = field(default_factory=dict, hash=False, compare=False)
    """Steps of constants that the network itself has in INT8, by name, in a shape that broadcasts against them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))
        object.__setattr__(self, "weights", MappingProxyType(dict(self.weights)))

    def __getitem__(self, name: str) -> Scale:
        return self.tensors[name]

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __len__(self) -> int:
        return len(self.tensors)

    def get(self, name: str) -> Scale | None:
        """The scale of a tensor, None if it has none."""
        return self.tensors.get(name)

    def merged(self, more: Mapping[str, Scale], findings: Iterable[Finding] = ()) -> Scales:
        """With the scales in `more` beside or in place of the ones here, and further findings."""
        return replace(self, tensors={**self.tensors, **more}, findings=(*self.findings, *findings))

    def __reduce__(self) -> tuple[object, ...]:
        return Scales, (dict(self.tensors), self.method, self.findings, dict(self.weights))
