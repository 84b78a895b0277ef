"""Measured beside predicted: utilisation and bandwidth of every measured layer or region."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orinport.device.names import by_name, parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from orinport.device.measured import MeasuredLayer, Measurement
    from orinport.predict.prediction import LayerPrediction, Prediction

__all__ = ["ComparedRow", "Comparison", "compare"]

_NVM = re.compile(r"(?P<tensor>.+) (?:to nvm|from nvm|copy finish)")
"""Rows beside a ForeignNode in profiles that TensorRT makes with NvMedia: its time is theirs (TensorRT issue 3143)."""
_REFORMAT = re.compile(r"Reformatting CopyNode |.* (?:to nvm|from nvm|copy finish)$|.*\bcopy\b", re.IGNORECASE)


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
    numbers: tuple[int, ...] = ()
    """Where those layers stand in the prediction."""
    regions: tuple[int, ...] = ()
    """The DLA regions of the prediction that this row covers whole, launches included."""


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

    @property
    def reformats(self) -> tuple[MeasuredLayer, ...]:
        """What brings tensors into another format or memory: the measured cost of transitions."""
        missing = set(self.unmatched)
        return tuple(each for each in self.measurement.layers if each.name in missing and _REFORMAT.match(each.name))


def compare(
    measurement: Measurement,
    prediction: Prediction,
    *,
    beside: Prediction | None = None,
    nodes: Mapping[str, Sequence[str]] | None = None,
) -> Comparison:
    """Match by name: a fused name stands for its parts, a ForeignNode for the region between its ends.

    `beside` gives the predicted times where they differ from `prediction`, for instance without the gaps between
    operations. `nodes` are ONNX nodes by measured name, from TensorRT's layer information.
    """
    network = _Network(prediction, nodes or {})
    times = network.times if beside is None else _Network(beside, {}).times
    whole = measurement.source == "trtexec profile"
    found = _without_repeats([(each, network.meant(each.name)) for each in measurement.layers], measurement.source)
    spans = {each.name: numbers for each, numbers in found if numbers and "..." in each.name}
    extra: dict[str, float] = {}
    unmatched = []
    for each, numbers in found:
        if not numbers:
            owner = network.owner(each.name, spans)
            if owner is None:
                unmatched.append(each.name)
            else:
                extra[owner] = extra.get(owner, 0.0) + each.us
    rows = tuple(
        _row(each.name, each.us + extra.get(each.name, 0.0), numbers, network, times, whole=whole)
        for each, numbers in found
        if numbers
    )
    return Comparison(measurement, prediction, rows, tuple(unmatched))


def _without_repeats(
    found: list[tuple[MeasuredLayer, list[int]]], source: str
) -> list[tuple[MeasuredLayer, list[int]]]:
    """In layer statistics a layer that has a row of its own is no part of a fused row that names it too.

    DLA-SW's sample shows it: `Conv + BatchNormalization + Relu + MaxPool`, and then `MaxPool`.
    """
    if source != "cudla statistics":
        return found
    alone = {numbers[0] for _, numbers in found if len(numbers) == 1}
    return [
        (each, [number for number in numbers if number not in alone] or numbers if len(numbers) > 1 else numbers)
        for each, numbers in found
    ]


class _Network:
    """A prediction, asked by name."""

    def __init__(self, prediction: Prediction, nodes: Mapping[str, Sequence[str]]) -> None:
        self.prediction, self.layers, self._nodes = prediction, prediction.layers, nodes
        self._known = by_name((each.layer, number) for number, each in enumerate(self.layers))
        self._of_node: dict[str, list[int]] = {}
        for number, each in enumerate(self.layers):
            for node in each.layer.nodes:
                self._of_node.setdefault(node, []).append(number)
        self.spans: list[range] = []
        start = 0
        for region in prediction.regions:
            self.spans.append(range(start, start + len(region.layers)))
            start += len(region.layers)

    @property
    def times(self) -> tuple[list[float], list[float]]:
        """Predicted time of each layer, and what launching each region adds, in us."""
        return [each.us for each in self.layers], [region.launch_us for region in self.prediction.regions]

    def meant(self, name: str) -> list[int]:
        """The layers that a measured name stands for."""
        if name in self._known:
            return self._known[name]
        if name.startswith("Reformatting CopyNode "):
            return []
        told = self._numbers(self._nodes.get(name, ()), self._of_node)
        found = told or self._numbers(parts(name, self._known), self._known)
        return self._between(found) if "..." in name and found else found

    def _numbers(self, names: Iterable[str], known: Mapping[str, list[int]]) -> list[int]:
        return sorted({number for name in names for number in known.get(name, ())})

    def _between(self, ends: list[int]) -> list[int]:
        """The layers on the DLA from the first end to the last: of their regions, what is neither before nor after.

        TensorRT names a region after its first and its last layer; where branches run side by side, its order need
        not be ours.
        """
        regions = [number for number, span in enumerate(self.spans) if any(end in span for end in ends)]
        chosen = [
            number
            for region in range(regions[0], regions[-1] + 1)
            for number in self.spans[region]
            if region in regions or self.layers[number].device == "dla"
        ]
        before, after = self._before(ends[0], chosen), self._after(ends[-1], chosen)
        return [number for number in chosen if number not in before and number not in after]

    def _before(self, last: int, chosen: list[int]) -> set[int]:
        wanted = {tensor.name for tensor in self.layers[last].layer.inputs}
        found: set[int] = set()
        for number in reversed([each for each in chosen if each < last]):
            layer = self.layers[number].layer
            if any(tensor.name in wanted for tensor in layer.outputs):
                found.add(number)
                wanted |= {tensor.name for tensor in layer.inputs}
        return found

    def _after(self, first: int, chosen: list[int]) -> set[int]:
        made = {tensor.name for tensor in self.layers[first].layer.outputs}
        found: set[int] = set()
        for number in [each for each in chosen if each > first]:
            layer = self.layers[number].layer
            if any(tensor.name in made for tensor in layer.inputs):
                found.add(number)
                made |= {tensor.name for tensor in layer.outputs}
        return found

    def owner(self, name: str, spans: Mapping[str, list[int]]) -> str | None:
        """The measured region that a row such as `x from nvm` belongs to: one that gives or takes the tensor."""
        found = _NVM.fullmatch(name)
        if found is None:
            return None
        tensor = found["tensor"]
        gives = (span for span, numbers in spans.items() if any(self._has(n, tensor, "outputs") for n in numbers))
        takes = (span for span, numbers in spans.items() if any(self._has(n, tensor, "inputs") for n in numbers))
        first, second = (takes, gives) if name.endswith("to nvm") else (gives, takes)
        return next(first, None) or next(second, None)

    def _has(self, number: int, tensor: str, side: str) -> bool:
        return any(each.name == tensor for each in getattr(self.layers[number].layer, side))


def _row(
    name: str,
    us: float,
    numbers: list[int],
    network: _Network,
    times: tuple[list[float], list[float]],
    *,
    whole: bool,
) -> ComparedRow:
    layers: list[LayerPrediction] = [network.layers[number] for number in numbers]
    macs = sum(each.macs for each in layers)
    moved = sum(each.bytes.moved for each in layers)
    peak = network.prediction.roof[0] * 1e3
    on_dla = all(each.device == "dla" for each in layers)
    inside = set(numbers)
    regions = tuple(
        number
        for number, span in enumerate(network.spans)
        if whole and network.prediction.regions[number].device == "dla" and inside.issuperset(span)
    )
    return ComparedRow(
        name,
        us,
        sum(times[0][number] for number in numbers) + sum(times[1][region] for region in regions),
        macs,
        moved,
        macs / (peak * us) if us and peak and on_dla else 0.0,
        moved / us / 1e3 if us else 0.0,
        tuple(each.layer.name for each in layers),
        tuple(dict.fromkeys(node for each in layers for node in each.layer.nodes)),
        tuple(numbers),
        regions,
    )
