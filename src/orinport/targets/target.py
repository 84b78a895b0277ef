"""Targets: hardware times software stack, read from TOML, every number with its source."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orinport.targets.version import Version

__all__ = [
    "Confidence",
    "Figure",
    "Hardware",
    "LogMessage",
    "Platform",
    "PowerMode",
    "Precision",
    "Profile",
    "RuleRow",
    "Stack",
    "Target",
]


class Confidence(str, Enum):
    """How well a rule or number is founded."""

    DOCUMENTED = "documented"
    OBSERVED = "observed"
    INFERRED = "inferred"


class Platform(str, Enum):
    """Generation of the DLA."""

    XAVIER = "xavier"
    ORIN = "orin"


class Precision(str, Enum):
    """Precision that a network is prepared for on the DLA."""

    FP16 = "fp16"
    INT8 = "int8"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its unit, source and confidence."""

    value: float
    unit: str
    source: str
    confidence: Confidence


@dataclass(frozen=True, slots=True)
class PowerMode:
    """Clocks of one power mode, by name: `dla_mhz`, `gpu_mhz`, `emc_mhz`, `dla_tops_int8_sparse`, ..."""

    name: str
    figures: Mapping[str, Figure] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Hardware:
    """A module or developer kit, e.g. `orin-agx-64gb`."""

    name: str
    title: str
    platform: Platform
    family: str
    """`agx`, `nx` or `drive`: some software releases name only one family."""
    figures: Mapping[str, Figure] = field(hash=False)
    """`dla_cores`, `dla_sram_kib`, `gpu_sms`, ..."""
    power_modes: tuple[PowerMode, ...]


@dataclass(frozen=True, slots=True)
class Stack:
    """A software release, e.g. `jp6.0`."""

    name: str
    title: str
    tensorrt: Version
    dla: Version | None
    line: str
    """`jetson` or `drive`: the two lines number TensorRT differently."""
    cuda: Version | None
    opset: int
    """Newest ONNX opset that its parser is documented for."""
    platforms: tuple[Platform, ...]
    families: tuple[str, ...]
    source: str
    confidence: Confidence
    l4t: tuple[str, ...] = ()
    """Versions of Jetson Linux, major and minor, that it is made of."""

    @property
    def strongly_typed(self) -> bool:
        """TensorRT 11: tensor types decide, no precision flags, no calibration cache."""
        return self.tensorrt.parts[0] >= 11


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One row of the acceptance catalogue: what holds, where, from and until when, and who says so.

    `values` holds its numbers (`min`, `max`, `allowed`, ...); rule code reads them and has none itself.
    """

    id: str
    layers: tuple[str, ...]
    kind: str
    """limit, accept, refuse, tie, behaviour, advice, open (undocumented) or conflict (between documents)."""
    text: str
    platforms: tuple[Platform, ...]
    precisions: tuple[Precision, ...]
    """Empty: not related to precision, or not stated."""
    since: Version | None
    until: Version | None
    """None: still stated in the newest documents."""
    until_exclusive: bool
    open_ended: bool
    """`until` is only the last document that was to be had: the row holds on as inferred."""
    source: str
    confidence: Confidence
    values: Mapping[str, Any] = field(hash=False)
    inferred_before: Version | None = None
    """Below this version the row is inferred: no document names its first version."""


@dataclass(frozen=True, slots=True)
class LogMessage:
    """One message of builder, run time or trtexec, and what it means.

    `texts` are the wordings on record, `pattern` is a regular expression that finds them in a log and has
    the group `layer` where the message names one.
    """

    id: str
    texts: tuple[str, ...]
    pattern: str
    seen: str
    """TensorRT versions or tools in which the wording occurs."""
    meaning: str
    rows: tuple[str, ...]
    help: str = ""
    """What to do; empty where there is nothing to do."""
    weight: str = "note"
    """`refusal`, `fatal` or `note`."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A user's own constants of the prediction, measured on one board: `orinport profile --refit` writes them."""

    name: str
    """The file's name."""
    constants: Mapping[str, Mapping[str, Figure]] = field(hash=False)
    """Constants that replace ours, by model of hardware (`orin-dla`, `orin-gpu`) and name."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a network is prepared for: `orin-agx-64gb/jp6.0`."""

    hardware: Hardware
    stack: Stack
    power_mode: PowerMode
    profile: Profile | None = None

    @property
    def name(self) -> str:
        """`hardware/stack`."""
        return f"{self.hardware.name}/{self.stack.name}"

    @property
    def platform(self) -> Platform:
        """Generation of the DLA."""
        return self.hardware.platform
