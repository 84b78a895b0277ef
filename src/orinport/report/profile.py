"""A measurement beside the prediction, as text and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orinport.report.json import SCHEMA_VERSION
from orinport.report.predict import time_text
from orinport.report.style import PLAIN, Style, clean
from orinport.words import count

if TYPE_CHECKING:
    from orinport.device.compare import Comparison

__all__ = ["profile_document", "profile_text"]


def profile_document(
    comparison: Comparison, times: dict[str, float], clocks: dict[str, tuple[float, float]]
) -> dict[str, Any]:
    """The document of `profile`, schema version 1."""
    measurement, prediction = comparison.measurement, comparison.prediction
    return {
        "schema_version": SCHEMA_VERSION,
        "model": prediction.model,
        "target": prediction.target.name,
        "power_mode": prediction.target.power_mode.name,
        "precision": prediction.precision.value,
        "source": measurement.source,
        "runs": measurement.runs,
        "measured_us": measurement.total_us,
        "predicted_us": prediction.total_us,
        "gaps_us": measurement.gaps_us,
        "times_us": times,
        "clocks": {name: {"mean": mean, "max": most} for name, (mean, most) in clocks.items()},
        "rows": [
            {
                "name": row.name,
                "measured_us": row.measured_us,
                "predicted_us": row.predicted_us,
                "macs": row.macs,
                "bytes": row.bytes,
                "mac_utilisation": row.mac_utilisation,
                "gbps": row.gbps,
                "layers": list(row.layers),
                "nodes": list(row.nodes),
            }
            for row in comparison.rows
        ],
        "unmatched": list(comparison.unmatched),
        "unmatched_us": comparison.unmatched_us,
        "transitions": prediction.transitions,
        "reformats": [{"name": each.name, "us": each.us} for each in comparison.reformats],
        "outside_layers_us": _outside(comparison, times),
        "profile": None if prediction.target.profile is None else prediction.target.profile.name,
    }


def _outside(comparison: Comparison, times: dict[str, float]) -> float | None:
    """Time of an inference that is in none of its layers, in us; negative where the profiler itself costs time.

    None unless the times of inferences and of layers are both known.
    """
    if "compute" not in times or comparison.measurement.source != "trtexec profile":
        return None
    return times["compute"] - sum(layer.us for layer in comparison.measurement.layers)


def profile_text(
    comparison: Comparison,
    times: dict[str, float],
    clocks: dict[str, tuple[float, float]],
    style: Style = PLAIN,
    *,
    rows: int = 40,
) -> str:
    """Totals, then the layers that took longest: measured, predicted, achieved utilisation and bandwidth."""
    measurement, prediction = comparison.measurement, comparison.prediction
    longest = sorted(comparison.rows, key=lambda row: -row.measured_us)[:rows]
    lines = [
        style.bold(f"{clean(prediction.model)}: {measurement.source}, {count(measurement.runs, 'run')}"),
        f"measured {time_text(measurement.total_us)}, predicted {time_text(prediction.total_us)} for"
        f" {prediction.target.name}, {prediction.target.power_mode.name}, {prediction.precision.value}",
    ]
    if prediction.target.profile is not None:
        lines.append(f"with the constants of {clean(prediction.target.profile.name)}")
    if measurement.gaps_us:
        lines.append(f"no layer ran for {time_text(measurement.gaps_us)} of it")
    if times:
        medians = ", ".join(f"{name} {time_text(us)}" for name, us in times.items() if name != "runs")
        lines.append(f"medians of {times['runs']:.0f} inferences: {medians}")
    lines += [f"{name}: {mean:.0f} on average, {most:.0f} at most" for name, (mean, most) in clocks.items()]
    lines += _transitions(comparison, times)
    lines += _other_clocks(comparison, clocks)
    lines += ["", f"  {'measured':>9} {'predicted':>9} {'util':>6} {'GB/s':>6} layer"]
    lines += [
        f"  {row.measured_us:9.1f} {row.predicted_us or 0.0:9.1f} {100 * row.mac_utilisation:5.1f}% {row.gbps:6.1f}"
        f" {clean(row.name)[:90]} ({count(len(row.layers), 'layer')})"
        for row in longest
    ]
    if comparison.unmatched:
        shown = ", ".join(clean(name) for name in comparison.unmatched[:5])
        number = count(len(comparison.unmatched), "line")
        lines += [
            "",
            f"{time_text(comparison.unmatched_us)} in {number} that stand for no layer of the network: {shown}",
        ]
    lines += ["", "utilisation and GB/s: known multiplications and bytes over measured time, against one DLA's peak"]
    return "\n".join(lines) + "\n"


_CLOCKS = {"dla_mhz": ("dla0_mhz", "dla1_mhz"), "emc_mhz": ("emc_mhz",), "gpu_mhz": ("gpu_mhz",)}
_SAME_CLOCK = 0.02


def _other_clocks(comparison: Comparison, clocks: dict[str, tuple[float, float]]) -> list[str]:
    """Clocks that the log shows and the power mode of the prediction does not have."""
    prediction = comparison.prediction
    lines = []
    for name, keys in _CLOCKS.items():
        seen = max((clocks[key][1] for key in keys if key in clocks), default=0.0)
        if seen and abs(seen / prediction.clocks[name] - 1) > _SAME_CLOCK:
            mode = prediction.target.power_mode.name
            lines.append(
                f"{name.removesuffix('_mhz').upper()} ran at {seen:g} MHz at most, and {mode}"
                f" has {prediction.clocks[name]:g}: choose --power-mode, or lock the clocks with sudo jetson_clocks"
            )
    return lines


def _transitions(comparison: Comparison, times: dict[str, float]) -> list[str]:
    """What passes between devices, and what passes in no layer."""
    lines = []
    reformats, transitions = comparison.reformats, comparison.prediction.transitions
    if reformats:
        us = sum(each.us for each in reformats)
        lines.append(
            f"copies and reformats: {time_text(us)} in {count(len(reformats), 'line')}, for"
            f" {count(transitions, 'transition')} between DLA and GPU and the edges of the network"
        )
    outside = _outside(comparison, times)
    if outside is not None and outside >= 0:
        lines.append(f"{time_text(outside)} of the median inference pass in none of its layers")
    elif outside is not None:
        lines.append(f"layers take {time_text(-outside)} longer than the median inference: the profiler costs time too")
    return lines
