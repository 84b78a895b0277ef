"""Lays a log beside our own verdicts: which ONNX nodes its layers are, and where TensorRT and we disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orinport.device.names import by_name, parts
from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orinport.device.log import LogReport
    from orinport.model.layer import Tensor
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
    kind: str = ""
    tensors: str = ""
    """Types and shapes: `fp32 1x64x56x56, ... -> fp32 1x64x56x56`; constants are marked."""
    attributes: str = ""
    evidence: str = ""
    """Id and first line of the message that speaks of the layer."""


@dataclass(frozen=True, slots=True)
class LogMatch:
    """ONNX nodes by layer name of the log, names that are not in the network, and contradictions."""

    nodes: Mapping[str, tuple[str, ...]]
    unmatched: tuple[str, ...]
    differences: tuple[Difference, ...]
    causes: Mapping[str, tuple[Finding, ...]]
    """What our own rules say against the layers that the log refuses, by layer name of the log."""
    target: str = ""
    precision: str = ""
    tensorrt: str = ""
    """TensorRT's version of the target."""


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
    differences = tuple(_differences(log, known, check))
    target = check.target
    return LogMatch(
        nodes,
        tuple(unmatched),
        differences,
        causes,
        target.name,
        check.precision.value,
        str(target.stack.tensorrt),
    )


def _named(log: LogReport) -> Iterable[str]:
    for finding in log.findings:
        yield from finding.names


def _rows(name: str, known: Mapping[str, list[LayerVerdict]]) -> list[LayerVerdict]:
    if name in known:
        return known[name]
    return [row for piece in parts(name, known) for row in known.get(piece, ())]


def _differences(log: LogReport, known: Mapping[str, list[LayerVerdict]], check: CheckReport) -> Iterable[Difference]:
    """Layers that the log has on the GPU and we on the DLA, and the other way round.

    A partition names the ends of a region; what lies on a way from the one to the other is inside, unless the log has
    it on the GPU or TensorRT may have taken it away altogether.
    """
    refused = dict.fromkeys(log.refused)
    on_gpu = dict.fromkeys(piece for name in log.gpu_layers for piece in (name, *parts(name, known)))
    elsewhere = {row.layer.index for name in (*refused, *on_gpu) for row in known.get(name, ())}
    seen: set[int] = set()
    for name, says in [*((n, "refused") for n in refused), *((n, "on the GPU") for n in on_gpu)]:
        for row in known.get(name, ()):
            if row.verdict is Verdict.DLA and row.layer.index not in seen and not row.layer.folds:
                seen.add(row.layer.index)
                yield _difference(row, "dla", says, log, name)
    for region in log.dla_regions:
        pieces = parts(region, known)
        ends = {row.layer.index for piece in pieces for row in known.get(piece, ())}
        for row in _between(pieces, known, check.layers):
            at_end = row.layer.index in ends
            gone = row.layer.kind in _MAY_VANISH or row.layer.index in elsewhere
            if row.verdict is Verdict.GPU and row.layer.index not in seen and (at_end or not gone):
                seen.add(row.layer.index)
                yield _difference(row, "gpu", f"{'at the end of' if at_end else 'inside'} a DLA region", log, region)


_MAY_VANISH = frozenset(
    {
        *(LayerKind.SHUFFLE, LayerKind.IDENTITY, LayerKind.CONSTANT, LayerKind.CAST, LayerKind.SQUEEZE),
        *(LayerKind.UNSQUEEZE, LayerKind.CONCATENATION, LayerKind.SLICE),
    }
)
"""What TensorRT's builder takes away or turns into offsets where it can."""


def _between(
    pieces: list[str], known: Mapping[str, list[LayerVerdict]], rows: tuple[LayerVerdict, ...]
) -> list[LayerVerdict]:
    """The layers named, and those on a way from the first to the last of them."""
    named = [row for piece in pieces for row in known.get(piece, ())]
    if len(pieces) != 2 or len(named) < 2:
        return named
    after = _reached([named[0]], rows, forwards=True)
    before = _reached([named[-1]], rows, forwards=False)
    return [row for row in rows if row in named or (row.layer.index in after and row.layer.index in before)]


def _reached(start: list[LayerVerdict], rows: tuple[LayerVerdict, ...], *, forwards: bool) -> set[int]:
    def ends(row: LayerVerdict, *, out: bool) -> set[str]:
        return {tensor.name for tensor in (row.layer.outputs if out else row.layer.inputs)}

    tensors = {name for row in start for name in ends(row, out=forwards)}
    found: set[int] = set()
    for row in rows if forwards else reversed(rows):
        if tensors & ends(row, out=not forwards):
            found.add(row.layer.index)
            tensors |= ends(row, out=forwards)
    return found


def _difference(row: LayerVerdict, ours: str, says: str, log: LogReport, name: str) -> Difference:
    layer = row.layer
    inputs, outputs = (", ".join(map(_tensor, tensors)) for tensors in (layer.inputs, layer.outputs))
    spoken = next((each for each in log.findings if name in each.names), None)
    return Difference(
        layer.name,
        layer.nodes,
        ours,
        says,
        row.codes,
        layer.kind.value,
        f"{inputs} -> {outputs}",
        ", ".join(f"{key}={value}" for key, value in layer.attributes.items())[:_LONGEST],
        "partition" if spoken is None else f"{spoken.kind.id}: {spoken.text}",
    )


def _tensor(tensor: Tensor) -> str:
    shape = "unknown shape" if tensor.shape is None else "x".join(map(str, tensor.shape)) or "scalar"
    return f"{tensor.dtype.value} {shape}{' constant' if tensor.constant else ''}"


_LONGEST = 500
