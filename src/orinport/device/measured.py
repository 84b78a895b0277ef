"""Reading what a board measured: trtexec's exports and cuDLA's layer statistics.

Formats: trtexec `--exportProfile` (samples/common/sampleReporting.cpp, exportJSONProfile) and `--exportTimes`
(exportJSONTrace) of TensorRT 8.5 to 11; the CSV of cuDLA's layer statistics samples with its short
(`layer_name,start_ms,end_ms`) and its long columns, whose net durations are the cost of a layer because
layers may overlap; trtexec `--exportLayerInfo`, names alone or with details, whose `Metadata` names ONNX nodes
from 8.6 on; tegrastats; and the CSV that jtop's own logger example writes (jetson_stats, examples/jtop_logger.py).
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orinport.errors import OrinportError
from orinport.files import decode_json, read_bounded

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "MeasuredLayer",
    "Measurement",
    "read_jtop",
    "read_layer_nodes",
    "read_measurement",
    "read_tegrastats",
    "read_times",
]

_LONGEST = 1e12
"""No number of a measurement is larger: 30 years in ms."""
_NET = ("net_duration_cpipes_ms", "net_duration_rubik_ms", "net_duration_bdma_ms")
_ENTRY = re.compile(r'\{\s*"name"\s*:\s*"(?P<name>.*)"\s*,\s*"timeMs"\s*:\s*(?P<rest>[^{}]*)\}')
_FIELD = re.compile(r'"(\w+)"\s*:\s*(-?[\d.eE+]+)')


@dataclass(frozen=True, slots=True)
class MeasuredLayer:
    """One line of a measurement, times in us.

    `start_us` and `end_us` are None where the source gives durations only; `net_us` are the busy times of
    the units `cpipes`, `rubik` and `bdma` where the source has them.
    """

    name: str
    us: float
    start_us: float | None = None
    end_us: float | None = None
    net_us: tuple[float, float, float] | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """All lines of one file, in its order."""

    source: str
    """`trtexec profile` or `cudla statistics`."""
    layers: tuple[MeasuredLayer, ...]
    runs: int
    """Inferences that were averaged; 1 for cuDLA statistics."""

    @property
    def total_us(self) -> float:
        """From the first start to the last end where they are known, else the sum of the layers."""
        starts = [layer.start_us for layer in self.layers if layer.start_us is not None]
        ends = [layer.end_us for layer in self.layers if layer.end_us is not None]
        if starts and len(ends) == len(self.layers):
            return max(ends)
        return sum(layer.us for layer in self.layers)

    @property
    def gaps_us(self) -> float:
        """Time in which no layer ran, by start and end; 0 where they are not known."""
        spans = sorted(
            (la.start_us, la.end_us) for la in self.layers if la.start_us is not None and la.end_us is not None
        )
        idle, reached = 0.0, 0.0
        for start, end in spans:
            idle += max(0.0, start - reached)
            reached = max(reached, end)
        return idle


def read_measurement(path: Path) -> Measurement:
    """A trtexec profile or a cuDLA CSV, told apart by content. Raises OrinportError for anything else."""
    text = _text(path)
    stripped = text.lstrip()
    if stripped.startswith("["):
        return _profile(path, text)
    if stripped.split("\n", 1)[0].replace("'", "").replace('"', "").startswith("layer_name"):
        return _statistics(path, text)
    raise OrinportError(
        f"{str(path)!r} is neither a profile of trtexec nor layer statistics of cuDLA.",
        "trtexec --exportProfile=FILE writes one.",
    )


def _text(path: Path) -> str:
    try:
        return read_bounded(path).decode("utf-8", errors="replace")
    except OSError as error:
        raise OrinportError(f"{str(path)!r} cannot be read: {error.strerror}.") from error


def _profile(path: Path, text: str) -> Measurement:
    """trtexec writes names as they are, so a name with a quotation mark makes it no JSON: lines are read then."""
    try:
        entries = decode_json(text.encode())
    except ValueError:
        entries = _by_line(text)
    layers = []
    runs = 0
    if not isinstance(entries, list):
        entries = []
    for entry in entries:
        if isinstance(entry, dict) and "count" in entry and "name" not in entry:
            runs = int(_number(path, entry["count"]))
        elif isinstance(entry, dict) and "name" in entry:
            value = entry.get("medianMs", entry.get("averageMs"))
            layers.append(MeasuredLayer(str(entry["name"]), 1e3 * _number(path, value)))
    if not layers:
        raise OrinportError(f"{str(path)!r} holds no layers.", "trtexec --exportProfile=FILE writes them.")
    return Measurement("trtexec profile", tuple(layers), runs)


def _by_line(text: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for line in text.splitlines():
        if found := _ENTRY.search(line):
            values = dict(_FIELD.findall(f'"timeMs" : {found["rest"]}'))
            entries.append({"name": found["name"], **{key: float(value) for key, value in values.items()}})
        elif found := re.search(r'"count"\s*:\s*(\d+)', line):
            entries.append({"count": int(found.group(1))})
    return entries


def _number(path: Path, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise OrinportError(f"{str(path)!r} holds {value!r} where a number belongs.") from None
    if not 0 <= number <= _LONGEST:
        raise OrinportError(f"{str(path)!r} holds {value!r} where a time belongs.")
    return number


def _statistics(path: Path, text: str) -> Measurement:
    quote = "'" if text.count("'") > text.count('"') else '"'
    try:
        rows = list(csv.DictReader(io.StringIO(text), quotechar=quote, skipinitialspace=True))
    except csv.Error as error:
        raise OrinportError(f"{str(path)!r} is no CSV: {error}.") from error
    layers = []
    for row in rows:
        fields = {(key or "").strip().strip("'\""): value for key, value in row.items()}
        name = str(fields.get("layer_name") or "").strip().strip("'\"")
        start = 1e3 * _number(path, fields.get("start_ms"))
        end = 1e3 * _number(path, fields.get("end_ms"))
        if not name or end < start:
            raise OrinportError(f"{str(path)!r} holds a layer without a name, or one that ends before it starts.")
        net = None
        if all(fields.get(column) not in (None, "") for column in _NET):
            cpipes, rubik, bdma = (1e3 * _number(path, fields[column]) for column in _NET)
            net = (cpipes, rubik, bdma)
        layers.append(MeasuredLayer(name, sum(net) if net else end - start, start, end, net))
    if not layers:
        raise OrinportError(f"{str(path)!r} holds no layers.")
    return Measurement("cudla statistics", tuple(layers), 1)


def read_times(path: Path) -> dict[str, float]:
    """Medians in us of `--exportTimes`: `latency`, `compute`, `h2d`, `d2h`, and `runs`."""
    try:
        entries = decode_json(_text(path).encode())
    except ValueError as error:
        raise OrinportError(f"{str(path)!r} is no JSON: {error}.", "trtexec --exportTimes=FILE writes it.") from error
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise OrinportError(f"{str(path)!r} holds no times.", "trtexec --exportTimes=FILE writes them.")
    medians: dict[str, float] = {"runs": float(len(entries))}
    for name in ("latency", "compute", "h2d", "d2h"):
        values = sorted(_number(path, entry[f"{name}Ms"]) for entry in entries if f"{name}Ms" in entry)
        if values:
            medians[name] = 1e3 * values[len(values) // 2]
    return medians


_SEPARATORS = re.compile(r"[\x1e\x1f]")
_ONNX_LAYER = re.compile(r"\[ONNX Layer: (.*?)\](?=\[ONNX Layer: |\s*\+|\s*$)")


def read_layer_nodes(path: Path) -> dict[str, tuple[str, ...]]:
    """ONNX nodes by name of TensorRT's layer, from `--exportLayerInfo`; no nodes where it names none.

    Without `--profilingVerbosity=detailed`, and before TensorRT 8.6, it holds names alone. Raises OrinportError for
    anything else.
    """
    text = _text(path).replace("\x1e", "\\u001e").replace("\x1f", "\\u001f")  # written as they are into the strings
    try:
        document = decode_json(text.encode())
    except ValueError as error:
        raise OrinportError(
            f"{str(path)!r} is no JSON: {error}.", "trtexec --exportLayerInfo=FILE writes it."
        ) from error
    layers = document.get("Layers") if isinstance(document, dict) else None
    if not isinstance(layers, list):
        raise OrinportError(f"{str(path)!r} holds no layers.", "trtexec --exportLayerInfo=FILE writes them.")
    found: dict[str, tuple[str, ...]] = {}
    for layer in layers:
        if isinstance(layer, str):
            found[layer] = ()
        elif isinstance(layer, dict) and "Name" in layer:
            pieces = _SEPARATORS.split(str(layer.get("Metadata") or ""))
            found[str(layer["Name"])] = tuple(node for piece in pieces for node in _ONNX_LAYER.findall(piece))
    return found


_TEGRASTATS = {
    "emc_percent": re.compile(r"EMC_FREQ (\d+)%"),
    "emc_mhz": re.compile(r"EMC_FREQ \d+%@(\d+)"),
    "gpu_percent": re.compile(r"GR3D_FREQ (\d+)%"),
    "gpu_mhz": re.compile(r"GR3D_FREQ \d+%@\[?(\d+)"),
    "dla0_mhz": re.compile(r"NVDLA0(?:_FREQ)? (?:\d+%)?@?(\d+)"),
    "dla1_mhz": re.compile(r"NVDLA1(?:_FREQ)? (?:\d+%)?@?(\d+)"),
    "ram_mb": re.compile(r"RAM (\d+)/\d+MB"),
}


def read_tegrastats(path: Path) -> dict[str, tuple[float, float]]:
    """Mean and largest value of what a tegrastats log shows: clocks in MHz, utilisation in percent, RAM in MB."""
    found: dict[str, list[float]] = {}
    for line in _text(path).splitlines():
        for name, pattern in _TEGRASTATS.items():
            if match := pattern.search(line):
                found.setdefault(name, []).append(float(match.group(1)))
    if not found:
        raise OrinportError(f"{str(path)!r} is no log of tegrastats.")
    return {name: (sum(values) / len(values), max(values)) for name, values in found.items()}


_JTOP = {
    "emc_percent": ("EMC", 1.0),
    "gpu_percent": ("GPU", 1.0),
    "dla0_mhz": ("DLA0_CORE", 1e-3),
    "dla1_mhz": ("DLA1_CORE", 1e-3),
    "dla0_falcon_mhz": ("DLA0_FALCON", 1e-3),
    "dla1_falcon_mhz": ("DLA1_FALCON", 1e-3),
    "power_mw": ("Power TOT", 1.0),
}
"""Columns of jtop's log and their factors: clocks of engines are in kHz, `OFF` while they are off."""


def read_jtop(path: Path) -> dict[str, tuple[float, float]]:
    """Mean and largest value of what a CSV of jtop shows: clocks in MHz while on, use in percent, power in mW."""
    try:
        rows = list(csv.DictReader(io.StringIO(_text(path))))
    except csv.Error as error:
        raise OrinportError(f"{str(path)!r} is no CSV: {error}.") from error
    if not rows or not {"time", "uptime"} <= set(rows[0]):
        raise OrinportError(f"{str(path)!r} is no log of jtop.", "jetson_stats' examples/jtop_logger.py writes one.")
    found = {}
    for name, (column, factor) in _JTOP.items():
        cells = [row.get(column) for row in rows]
        values = [factor * _number(path, cell) for cell in cells if cell not in (None, "", "OFF")]
        if values:
            found[name] = (sum(values) / len(values), max(values))
    return found
