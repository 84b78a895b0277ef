"""`measure`: an emulation beside the network in FP32, tensor by tensor.

For each tensor: signal-to-noise ratio `10 log10(sum r^2 / sum (r - e)^2)` in dB and cosine `r.e / (|r| |e|)` over all
samples, r the FP32 tensor and e the emulated one; how many values lie beyond the range, how many that are not zero
become zero, and how much of the range is used. Values that are not finite in FP32 are counted and left out.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from math import inf, log10, nan, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from orinport.errors import OrinportError, first_line
from orinport.model.model import display_name, shape_of
from orinport.model.runtime import open_session
from orinport.precision.emulate import Arithmetic
from orinport.precision.scales import LEVELS
from orinport.rewrites.runnable import runnable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from orinport.model.model import Model
    from orinport.precision.emulate import Emulated

__all__ = ["Runner", "TensorRow", "measure", "outputs_of", "restrict", "snr_of", "tensors_in_common"]

Arrays = dict[str, "NDArray[Any]"]


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One tensor: emulated against FP32."""

    name: str
    node: str
    """What makes it, by display name; empty for an input of the network."""
    arithmetic: Arithmetic
    """What makes it computes in this."""
    range: float | None
    """Largest magnitude that its INT8 scale represents; None if it is not quantised."""
    snr_db: float
    """inf where both are equal, -inf where FP32 gives only zeros and the emulation does not."""
    cosine: float
    """Of the values that are finite in both; NaN where all others are `broken`."""
    largest: float
    """Largest magnitude in FP32."""
    max_abs: float
    """Largest difference of values that are finite in both; NaN where all others are `broken`."""
    saturated: float
    """Share of values beyond the range (INT8) or beyond 65504 (FP16)."""
    vanished: float
    """Share of values that are not zero in FP32 and zero in the emulation."""
    nonfinite: int
    """Values that are NaN or infinite in FP32."""
    broken: int
    """Values that are finite in FP32 and not in the emulation."""

    @property
    def used(self) -> float | None:
        """The part of its range that it needs; above 1 it saturates."""
        return None if self.range is None else self.largest / self.range


class Runner:
    """A model in ONNX Runtime."""

    def __init__(self, model: ir.Model, *, threads: int = 0, optimise: bool = True) -> None:
        self.outputs = [value.name or "" for value in model.graph.outputs]
        size = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
        try:
            with tempfile.TemporaryDirectory(prefix="orinport-") as folder:
                source: bytes | str
                if size < _INLINE:
                    source = runnable(ir.to_proto(model)).SerializeToString()
                else:
                    source = str(Path(folder) / "emulated.onnx")
                    ir.save(model, source, external_data="emulated.bin")
                self._session = open_session(source, threads=threads, optimise=optimise)
        except Exception as error:
            raise OrinportError(f"ONNX Runtime does not run the network: {first_line(error)}") from error

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> Arrays:
        """All outputs by name."""
        try:
            return dict(zip(self.outputs, self._session.run(self.outputs or None, dict(feeds)), strict=True))
        except Exception as error:
            raise OrinportError(f"ONNX Runtime does not run the network: {first_line(error)}") from error


_INLINE = 1 << 30
"""Bytes of constants up to which a model goes to ONNX Runtime in memory: a protobuf holds 2 GB."""


def with_outputs(model: Model, names: Collection[str]) -> ir.Model:
    """A copy of the network in FP32 whose outputs are these tensors."""
    graph = model.graph.clone()
    for node in graph.all_nodes():
        node.name = None  # ONNX Runtime refuses two nodes of one name
    found = [value for node in graph for value in node.outputs if value.name in names]
    graph.outputs.clear()
    graph.outputs.extend(found)
    return ir.Model(graph, ir_version=model.ir.ir_version, functions=list(model.ir.functions.values()))


def restrict(found: Emulated, names: Collection[str]) -> ir.Model:
    """The emulation with these tensors of the network as its only outputs."""
    wanted = {found.tensors[name].output for name in names if name in found.tensors}
    graph = found.model.graph.clone()
    kept = [value for value in graph.outputs if value.name in wanted]
    graph.outputs.clear()
    graph.outputs.extend(kept)
    return ir.Model(graph, ir_version=found.model.ir_version)


def outputs_of(found: Emulated, results: Mapping[str, NDArray[Any]], names: Iterable[str]) -> Iterator[NDArray[Any]]:
    """Real values of tensors of the network, from what the emulation gave (and was given)."""
    for name in names:
        shown = found.tensors[name]
        array = results[shown.output]
        yield array if shown.scale is None else array * np.float32(shown.scale)


def measure(
    model: Model,
    found: Emulated,
    samples: Iterable[Mapping[str, NDArray[Any]]],
    *,
    reference: Model | None = None,
    threads: int = 0,
) -> tuple[TensorRow, ...]:
    """A row for every tensor of the emulation, in the order of execution, over all samples.

    `reference` is the network in FP32 to compare with, by default `model` itself; tensors that it has not, by name and
    shape, have no row.
    """
    makers = {value.name: node for node in model.graph for value in node.outputs}
    names = list(found.tensors)
    if reference is not None:
        common = tensors_in_common(model, reference)
        names = [name for name in names if name in common]
    plain = Runner(with_outputs(reference or model, set(names)), threads=threads)
    other = Runner(found.model, threads=threads)
    sums = {name: _Sums() for name in names}
    for feeds in samples:
        wanted: Mapping[str, NDArray[Any]] = {**feeds, **plain.run(feeds)}
        had: Mapping[str, NDArray[Any]] = {**feeds, **other.run(feeds)}
        for name in names:
            shown = found.tensors[name]
            bound = inf if shown.scale is None else shown.scale * LEVELS
            node = makers.get(name)
            if shown.scale is None and node is not None and _kind(found, node) is Arithmetic.FP16:
                bound = float(np.finfo(np.float16).max)
            sums[name].add(wanted[name], next(outputs_of(found, had, [name])), bound)
    return tuple(_row(name, makers.get(name), found, sums[name]) for name in names)


def tensors_in_common(model: Model, other: Model) -> frozenset[str]:
    """Names of the run-time tensors that both networks have, in the same shape."""
    shapes = [
        {
            value.name: shape_of(value)
            for value in (*each.graph.inputs, *(v for node in each.graph for v in node.outputs))
        }
        for each in (model, other)
    ]
    return frozenset(name for name, shape in shapes[0].items() if name and shape and shapes[1].get(name) == shape)


def _kind(found: Emulated, node: ir.Node) -> Arithmetic:
    return found.arithmetic.get(display_name(node), Arithmetic.FP32)


_ROUNDING = 1 + 2.0**-20
"""A range that is the largest value itself may be a rounding below it."""


class _Sums:
    """What adds up over samples."""

    def __init__(self) -> None:
        self.signal = self.noise = self.dot = self.power = self.largest = self.max_abs = 0.0
        self.count = self.compared = self.saturated = self.vanished = self.nonfinite = self.broken = 0

    def add(self, wanted: NDArray[Any], had: NDArray[Any], bound: float) -> None:
        finite = np.isfinite(wanted)
        self.nonfinite += int(wanted.size - finite.sum())
        valid = finite & np.isfinite(had)
        self.broken += int(finite.sum() - valid.sum())
        whole = np.abs(wanted[finite].astype(np.float64))
        self.count += whole.size
        self.saturated += int((whole > bound * _ROUNDING).sum())
        self.largest = max(self.largest, float(whole.max(initial=0.0)))
        r, e = wanted[valid].astype(np.float64), had[valid].astype(np.float64)
        gap = r - e
        self.compared += r.size
        self.signal += float(r @ r)
        self.noise += float(gap @ gap)
        self.dot += float(r @ e)
        self.power += float(e @ e)
        self.max_abs = max(self.max_abs, float(np.abs(gap).max(initial=0.0)))
        self.vanished += int(((r != 0) & (e == 0)).sum())


def _row(name: str, node: ir.Node | None, found: Emulated, sums: _Sums) -> TensorRow:
    shown = found.tensors[name]
    count = max(sums.count, 1)
    norm = sqrt(sums.signal) * sqrt(sums.power)
    same = sums.signal == sums.power == 0
    nothing = sums.broken and not sums.compared
    return TensorRow(
        name,
        "" if node is None else display_name(node),
        Arithmetic.FP32 if node is None else _kind(found, node),
        None if shown.scale is None else shown.scale * LEVELS,
        _decibels(sums.signal, inf if sums.broken else sums.noise),
        nan if nothing else 1.0 if same else (sums.dot / norm if norm else 0.0),
        sums.largest,
        nan if nothing else sums.max_abs,
        sums.saturated / count,
        sums.vanished / count,
        sums.nonfinite,
        sums.broken,
    )


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return inf
    if signal == 0 or noise == inf:
        return -inf
    return 10 * log10(signal / noise)


def snr_of(wanted: Sequence[Arrays], had: Sequence[Arrays]) -> float:
    """SNR in dB of outputs over samples: the lowest of all outputs."""
    lowest = inf
    for name in wanted[0]:
        sums = _Sums()
        for left, right in zip(wanted, had, strict=True):
            sums.add(left[name], right[name], inf)
        lowest = min(lowest, _decibels(sums.signal, inf if sums.broken else sums.noise))
    return lowest
