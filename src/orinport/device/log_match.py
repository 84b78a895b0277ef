"""Lays a log beside our own verdicts: which ONNX nodes its layers are, and where TensorRT and we disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orinport.device.names import by_name, parts
from orinport.rules.finding import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orinport.device.log import LogReport
    from orinport.results import CheckReport, LayerVerdict
    from orinport.rules.finding import Finding

__all__ = ["Difference", "LogMatch", "match_log"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A layer on which the log and our verdict contradict each other."""

    layer: str
    nodes: tuple[str, ...]
    ours: str
    log: str
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogMatch:
    """ONNX nodes by layer name of the log, names that are not in the network, and contradictions."""

    nodes: Mapping[str, tuple[str, ...]]
    unmatched: tuple[str, ...]
    differences: tuple[Difference, ...]
    causes: Mapping[str, tuple[Finding, ...]]
    """What our own rules say against the layers that the log refuses, by layer name of the log."""


def match_log(log: LogReport, check: CheckReport) -> LogMatch:
    """Match the log's layers with those of the network that it was made of."""
    known = by_name((row.layer, row) for row in check.layers)
    nodes: dict[str, tuple[str, ...]] = {}
    unmatched: list[str] = []
    for name in dict.fromkeys((*_named(log), *log.dla_regions, *log.gpu_layers)):
        rows = _rows(name, known)
        if rows:
            nodes[name] = tuple(dict.fromkeys(node for row in rows for node in row.layer.nodes))
        else:
            unmatched.append(name)
    against: dict[str, list[Finding]] = {}
    for finding in check.findings:
        if finding.verdict is not None:
            against.setdefault(finding.layer, []).append(finding)
    causes = {
        name: tuple(finding for row in _rows(name, known) for finding in against.get(row.layer.name, ()))
        for name in log.refused
    }
    return LogMatch(nodes, tuple(unmatched), tuple(_differences(log, known)), causes)


def _named(log: LogReport) -> Iterable[str]:
    for finding in log.findings:
        yield from finding.names


def _rows(name: str, known: Mapping[str, list[LayerVerdict]]) -> list[LayerVerdict]:
    if name in known:
        return known[name]
    return [row for piece in parts(name, known) for row in known.get(piece, ())]


def _differences(log: LogReport, known: Mapping[str, list[LayerVerdict]]) -> Iterable[Difference]:
    refused = dict.fromkeys(log.refused)
    on_gpu = dict.fromkeys(piece for name in log.gpu_layers for piece in (name, *parts(name)))
    summarised = bool(log.gpu_layers or log.dla_regions)
    seen: set[int] = set()
    for name, says in [*((n, "refused") for n in refused), *((n, "on the GPU") for n in on_gpu)]:
        for row in known.get(name, ()):
            if row.verdict is Verdict.DLA and row.layer.index not in seen and not row.layer.folds:
                seen.add(row.layer.index)
                yield Difference(row.layer.name, row.layer.nodes, "dla", says, row.codes)
    if not summarised:
        return
    ends = {piece for name in log.dla_regions for piece in parts(name)}
    for name in ends:
        for row in known.get(name, ()):
            if row.verdict is Verdict.GPU and row.layer.index not in seen:
                seen.add(row.layer.index)
                yield Difference(row.layer.name, row.layer.nodes, "gpu", "at the end of a DLA region", row.codes)
