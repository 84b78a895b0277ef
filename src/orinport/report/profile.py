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
    }


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
    if measurement.gaps_us:
        lines.append(f"no layer ran for {time_text(measurement.gaps_us)} of it")
    if times:
        medians = ", ".join(f"{name} {time_text(us)}" for name, us in times.items() if name != "runs")
        lines.append(f"medians of {times['runs']:.0f} inferences: {medians}")
    lines += [f"{name}: {mean:.0f} on average, {most:.0f} at most" for name, (mean, most) in clocks.items()]
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
