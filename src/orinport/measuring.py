"""A measurement of a board beside the prediction, and the constants of the prediction fitted to it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import median
from typing import TYPE_CHECKING, Any

from orinport.checking import as_precision, as_target, check_model
from orinport.device.compare import compare
from orinport.errors import OrinportError
from orinport.placement.place import all_on_gpu
from orinport.placing import placed_anew
from orinport.predict.constants import EQUAL, constants_of
from orinport.predict.fit import Determined, determine
from orinport.predict.network import predict_network
from orinport.predict.prediction import Bound
from orinport.targets import DEFAULT_TARGET

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orinport.device.compare import ComparedRow, Comparison
    from orinport.device.measured import Measurement
    from orinport.placement.placement import Placement
    from orinport.predict.constants import Constants
    from orinport.predict.fit import Values
    from orinport.predict.prediction import Prediction
    from orinport.targets.target import Precision, Target

__all__ = ["Build", "FittedConstant", "FittedRow", "Refit", "Refused", "lay_beside", "refit"]

_DLA, _GPU = "orin-dla", "orin-gpu"
_STATISTICS = "cudla statistics"
_GAPS = ("gap_us", "falcon_gap_us")
"""What passes between operations: layer statistics do not count it to any layer."""
_FROM_STATISTICS = {_DLA: ("mac_efficiency", "rubik_fp16_ghz", "dram_gbps")}
_FROM_PROFILE = {
    _DLA: ("mac_efficiency", "rubik_fp16_ghz", "dram_gbps", "falcon_gap_us", "launch_us"),
    _GPU: ("compute_efficiency", "memory_efficiency", "launch_us"),
}
_UNKNOWN_SHARE = 0.1
"""Part of a row's predicted time that layers without a model may have."""
_LEAST_MET = 0.5
"""Part of the measured time that has to lie in the bands after a fit."""
_FEWEST_GAPS = 3
_WIDEST_GAP = 0.15


@dataclass(frozen=True, slots=True)
class FittedConstant:
    """A constant before and after the fit; `relative_error` is its standard error over its value."""

    model: str
    key: str
    unit: str
    before: float
    after: float
    relative_error: float
    measurements: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A constant that the measurement does not determine, or a row that says nothing about constants, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class FittedRow:
    """One measured row, and what was predicted for it before and after the fit, all in us."""

    name: str
    measured_us: float
    before_us: float
    after_us: float
    met: bool
    """The measured time lies in the band of the prediction after the fit."""


@dataclass(frozen=True, slots=True)
class Refit:
    """Constants fitted to a measurement, what it leaves undetermined, and how well the rows are met."""

    model: str
    target: Target
    source: str
    constants: tuple[FittedConstant, ...]
    refused: tuple[Refused, ...]
    rows: tuple[FittedRow, ...]
    left_out: tuple[Refused, ...]

    def errors(self, *, after: bool) -> tuple[float, float]:
        """Mean and largest relative error of the rows, before or after the fit; zeros without rows."""
        found = [abs((row.after_us if after else row.before_us) / row.measured_us - 1) for row in self.rows]
        return (sum(found) / len(found), max(found)) if found else (0.0, 0.0)

    @property
    def met(self) -> float:
        """Part of the measured time whose rows lie in the predictions' bands after the fit; 0 without rows."""
        total = sum(row.measured_us for row in self.rows)
        return sum(row.measured_us for row in self.rows if row.met) / total if total else 0.0

    @property
    def holds(self) -> bool:
        """Predictions with the fitted constants meet most of what they were fitted to."""
        return self.met >= _LEAST_MET


@dataclass(frozen=True, slots=True)
class _Placed:
    """A placed network on its target, predicted from whatever constants."""

    name: str
    placement: Placement
    target: Target
    precision: Precision

    def constants(self) -> dict[str, Constants]:
        return {name: constants_of(name, self.target) for name in (_DLA, _GPU)}

    def predict(self, constants: Mapping[str, Constants]) -> Prediction:
        return predict_network(
            self.name, self.placement, self.target, self.precision, dla=constants[_DLA], gpu=constants[_GPU]
        )

    def beside(self, source: str, constants: Mapping[str, Constants]) -> Prediction:
        """As `predict`, with times that mean what those of the source mean."""
        if source != _STATISTICS:
            return self.predict(constants)
        return self.predict({**constants, _DLA: constants[_DLA].with_values(dict.fromkeys(_GAPS, 0.0))})


@dataclass(frozen=True, slots=True)
class Build:
    """How the network was built that was measured, and in which power mode."""

    target: str | Target = DEFAULT_TARGET
    precision: str | Precision = "int8"
    power_mode: str | None = None
    shapes: Any = None
    nodes: Mapping[str, Sequence[str]] | None = None
    """ONNX nodes by measured name, from TensorRT's layer information."""
    dla: bool = True
    """False for an engine that was built for the GPU alone."""
    gpu_layers: tuple[str, ...] = ()
    """Layers that the DLA takes and that were built for the GPU all the same."""


def _placed(model: Any, build: Build) -> _Placed:
    from orinport.model.load import load

    network = load(model, shapes=build.shapes)
    report = check_model(network, as_target(build.target, build.power_mode), as_precision(build.precision))
    if build.gpu_layers:
        wishes = dict.fromkeys(build.gpu_layers, "gpu")
        report = placed_anew(report, network, optimize=False, wishes=wishes).report
    placement = report.placement if build.dla else all_on_gpu(report.placement)
    return _Placed(network.name, placement, report.target, report.precision)


def lay_beside(model: Any, measurement: Measurement, build: Build) -> Comparison:
    """Every measured layer or region beside its prediction.

    Raises OrinportError for a model or target that cannot be predicted.
    """
    return _compare(_placed(model, build), measurement, build.nodes)


def _compare(placed: _Placed, measurement: Measurement, nodes: Mapping[str, Sequence[str]] | None) -> Comparison:
    constants = placed.constants()
    beside = placed.beside(measurement.source, constants)
    return compare(measurement, placed.predict(constants), beside=beside, nodes=nodes)


def refit(model: Any, measurement: Measurement, build: Build) -> Refit:
    """Fit the constants of the prediction to a measurement.

    Layer statistics of cuDLA give the pipelines' efficiency, the rates of memory and copies, and the gap between
    operations; a profile of trtexec those of the GPU, and of the DLA as far as it has enough regions. Only constants
    that the measurement determines are fitted. Raises OrinportError if there is none.
    """
    placed = _placed(model, build)
    comparison = _compare(placed, measurement, build.nodes)
    used, left_out = _usable(comparison)
    constants = placed.constants()
    candidates = _FROM_STATISTICS if measurement.source == _STATISTICS else _FROM_PROFILE
    start = {f"{name}.{key}": constants[name][key] for name, keys in candidates.items() for key in keys}

    def times(values: Values) -> list[float]:
        beside = placed.beside(measurement.source, _with(constants, values))
        return [_time(row, beside) for row in used]

    measured = [row.measured_us for row in used]
    highest = {key: 1.0 for key in start if key.endswith("_efficiency")}
    found = determine(start, times, measured, highest=highest)
    determined, refused = dict(found.determined), dict(found.refused)
    if measurement.source == _STATISTICS:
        gap = _gap(measurement)
        if isinstance(gap, Determined):
            determined[f"{_DLA}.gap_us"] = gap
        else:
            refused[f"{_DLA}.gap_us"] = gap
        refused[f"{_DLA}.falcon_gap_us"] = "layer statistics do not show it"
    if not determined:
        reasons = "; ".join(f"{key.partition('.')[2]}: {reason}" for key, reason in refused.items())
        raise OrinportError(
            f"The measurement determines none of the constants ({reasons}).",
            "Layer statistics of a network with many layers on the DLA say most.",
        )
    before, after = times({}), placed.beside(measurement.source, _with(constants, found.values))
    return Refit(
        placed.name,
        placed.target,
        measurement.source,
        tuple(each for key, found in determined.items() for each in _fitted(constants, key, found)),
        tuple(Refused(key, reason) for key, reason in refused.items()),
        tuple(_fitted_row(row, us, after) for row, us in zip(used, before, strict=True)),
        tuple(left_out),
    )


def _with(constants: Mapping[str, Constants], values: Values) -> dict[str, Constants]:
    """The constants with `values`, whose keys are `model.key`."""
    changed = {name: {} for name in constants}  # type: dict[str, dict[str, float]]
    for key, value in values.items():
        name, _, constant = key.partition(".")
        changed[name][constant] = value
    return {name: each.with_values(changed[name]) for name, each in constants.items()}


def _fitted(constants: Mapping[str, Constants], key: str, found: Determined) -> list[FittedConstant]:
    """A constant that was fitted, and those that follow it."""
    name, _, constant = key.partition(".")
    figures = constants[name].figures
    keys = [constant, *(EQUAL.get(constant, ()) if name == _DLA else ())]
    return [
        FittedConstant(
            name, each, figures[each].unit, figures[each].value, found.value, found.relative_error, found.measurements
        )
        for each in keys
    ]


def _fitted_row(row: ComparedRow, before_us: float, after: Prediction) -> FittedRow:
    us, low, high = _time(row, after), 0.0, 0.0
    for part in (after.regions[number] for number in row.regions):
        low, high = low + part.band.low, high + part.band.high
    if not row.regions:
        bands = [after.layers[number].band for number in row.numbers]
        low, high = sum(band.low for band in bands), sum(band.high for band in bands)
    return FittedRow(row.name, row.measured_us, before_us, us, low <= row.measured_us <= high)


def _time(row: ComparedRow, prediction: Prediction) -> float:
    """Predicted time of a row's layers, and of launching the regions that it covers."""
    layers, regions = prediction.layers, prediction.regions
    return sum(layers[number].us for number in row.numbers) + sum(regions[each].launch_us for each in row.regions)


def _usable(comparison: Comparison) -> tuple[list[ComparedRow], list[Refused]]:
    """Rows that say something about constants, and the others with the reason why not."""
    claims: dict[int, int] = {}
    for row in comparison.rows:
        for number in row.numbers:
            claims[number] = claims.get(number, 0) + 1
    used, left_out = [], []
    for row in comparison.rows:
        reason = _unusable(row, comparison, claims)
        if reason:
            left_out.append(Refused(row.name, reason))
        else:
            used.append(row)
    left_out += [Refused(name, "it stands for no layer of the network") for name in comparison.unmatched]
    return used, left_out


def _unusable(row: ComparedRow, comparison: Comparison, claims: Mapping[int, int]) -> str:
    layers = [comparison.prediction.layers[number] for number in row.numbers]
    if not row.measured_us or not row.predicted_us:
        return "no time was measured, or none is predicted"
    if any(claims[number] > 1 for number in row.numbers):
        return "its layers are part of another row too"
    unknown = sum(each.us for each in layers if each.bound is Bound.UNKNOWN)
    if unknown > _UNKNOWN_SHARE * row.predicted_us:
        return "layers in it have no model"
    devices = {each.device for each in layers}
    if len(devices) > 1:
        return "its layers are predicted on both devices"
    if comparison.measurement.source == _STATISTICS:
        return "" if devices == {"dla"} else "it is predicted on the GPU"
    on_dla = row.name.startswith("{ForeignNode[") and devices == {"dla"}
    if devices == {"dla"} and not on_dla:
        return "it was measured on the GPU and is predicted on the DLA"
    covered = sum(len(comparison.prediction.regions[number].layers) for number in row.regions)
    return "it is a part of a predicted region" if on_dla and covered != len(row.numbers) else ""


def _gap(measurement: Measurement) -> Determined | str:
    """The time between consecutive operations, or why the statistics do not say it."""
    spans = sorted(
        (each.start_us, each.end_us)
        for each in measurement.layers
        if each.start_us is not None and each.end_us is not None
    )
    gaps = [start - end for (_, end), (start, _) in pairwise(spans)]
    if len(gaps) < _FEWEST_GAPS:
        return f"{len(gaps)} gaps between layers are too few, {_FEWEST_GAPS} are needed"
    middle = median(gaps)
    if middle <= 0:
        return "the layers overlap"
    spread = 1.4826 * median(abs(gap - middle) for gap in gaps)  # the standard deviation, were they normal
    uncertain = 1.2533 * spread / sqrt(len(gaps)) / middle  # standard error of a median
    if uncertain > _WIDEST_GAP:
        return f"the gaps scatter too much: it would be uncertain by {100 * uncertain:.0f} %"
    return Determined(middle, uncertain, len(gaps))
