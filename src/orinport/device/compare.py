"""Measured beside predicted: utilisation and bandwidth of every measured layer or region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orinport.device.log_match import parts

if TYPE_CHECKING:
    from orinport.device.measured import Measurement
    from orinport.predict.prediction import LayerPrediction, Prediction

__all__ = ["ComparedRow", "Comparison", "compare"]


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One measured layer or region, and the layers of the network that it stands for.

    `mac_utilisation` and `gbps` are achieved: known multiply-accumulates and bytes over measured time.
    """

    name: str
    measured_us: float
    predicted_us: float | None
    macs: int
    bytes: int
    mac_utilisation: float
    gbps: float
    layers: tuple[str, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A measurement laid beside a prediction."""

    measurement: Measurement
    prediction: Prediction
    rows: tuple[ComparedRow, ...]
    unmatched: tuple[str, ...]
    """Measured names that stand for no layer of the network: reformats, copies, or another network."""

    @property
    def unmatched_us(self) -> float:
        """Time of what stands for no layer."""
        missing = set(self.unmatched)
        return sum(layer.us for layer in self.measurement.layers if layer.name in missing)


def compare(measurement: Measurement, prediction: Prediction) -> Comparison:
    """Match by name: a fused name stands for its parts, a ForeignNode for the region between its ends."""
    known: dict[str, list[int]] = {}
    layers = prediction.layers
    for number, each in enumerate(layers):
        for name in dict.fromkeys((each.layer.name, *each.layer.nodes)):
            known.setdefault(name, []).append(number)
    region_of: dict[int, range] = {}
    start = 0
    for region in prediction.regions:
        span = range(start, start + len(region.layers))
        region_of |= dict.fromkeys(span, span)
        start += len(region.layers)
    rows, unmatched = [], []
    for measured in measurement.layers:
        found = _meant(measured.name, known, region_of)
        if not found:
            unmatched.append(measured.name)
            continue
        rows.append(_row(measured.name, measured.us, [layers[number] for number in found], prediction))
    return Comparison(measurement, prediction, tuple(rows), tuple(unmatched))


def _meant(name: str, known: dict[str, list[int]], region_of: dict[int, range]) -> list[int]:
    if name in known:
        return known[name]
    pieces = parts(name)
    found = sorted({number for piece in pieces for number in known.get(piece, ())})
    if "..." in name and found and len(pieces) >= 1:
        return sorted({number for each in found for number in region_of[each]})
    return found


def _row(name: str, us: float, layers: list[LayerPrediction], prediction: Prediction) -> ComparedRow:
    macs = sum(each.macs for each in layers)
    moved = sum(each.bytes.moved for each in layers)
    peak = prediction.roof[0] * 1e3
    on_dla = all(each.device == "dla" for each in layers)
    return ComparedRow(
        name,
        us,
        sum(each.us for each in layers),
        macs,
        moved,
        macs / (peak * us) if us and peak and on_dla else 0.0,
        moved / us / 1e3 if us else 0.0,
        tuple(each.layer.name for each in layers),
        tuple(dict.fromkeys(node for each in layers for node in each.layer.nodes)),
    )
