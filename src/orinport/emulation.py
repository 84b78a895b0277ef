"""`verify --as dla-int8` and `--as dla-fp16`: a network as the DLA will compute it, against FP32."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.errors import OrinportError
from orinport.precision.calibrate import input_specs
from orinport.precision.data import DataSpec, Samples, open_data
from orinport.precision.emulate import Arithmetic, Typed, arithmetic_of, emulate
from orinport.precision.emulate_measure import measure, tensors_in_common
from orinport.precision.qdq import has_qdq, strip_qdq
from orinport.precision.scales import Origin, Scales
from orinport.precision.sensitivity import rank
from orinport.precision.single import to_single
from orinport.precision.ties import Ties
from orinport.precision.unrounded import unrounded
from orinport.rewrites.edges import board_feed, moved_inputs
from orinport.rewrites.random_inputs import random_inputs
from orinport.rewrites.runner import NotProvableError
from orinport.rules.finding import Verdict
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from orinport.model.model import Model
    from orinport.precision.emulate_measure import TensorRow
    from orinport.precision.sensitivity import Sensitivity
    from orinport.quantization import Int8Options
    from orinport.results import CheckReport
    from orinport.rewrites.edges import EdgeMapping
    from orinport.rules.finding import Finding
    from orinport.targets.target import Target

__all__ = [
    "MIN_SNR",
    "EmulationOptions",
    "EmulationReport",
    "Reference",
    "emulate_model",
    "named_source",
    "open_samples",
    "precision_of",
    "require_ratio",
]

MIN_SNR = 20.0
"""dB. A convention: the error is a tenth of the signal, root mean square."""


@dataclass(frozen=True, slots=True)
class EmulationOptions:
    """What is fed, and what counts as wrong."""

    data: str | None = None
    """Samples as `quantize` takes them; random inputs without."""
    preprocess: Path | None = None
    cases: int = 3
    """How many samples, from the first on; 0 for all of the data."""
    seed: int = 0
    min_snr: float = MIN_SNR
    rank: bool = False
    """Try every INT8 layer in FP16."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What an emulation is compared with, in place of the network itself in FP32."""

    model: Model
    """Its tensors have the same names; those that it lacks are not compared."""
    name: str
    prepared: bool = False
    """It was rewritten as the network was, so that it has all its tensors, and the constants that it was made from."""


@dataclass(frozen=True, slots=True)
class EmulationReport:
    """A network as the DLA will compute it, against FP32, tensor by tensor."""

    model: str
    target: Target
    precision: Precision
    rows: tuple[TensorRow, ...]
    outputs: tuple[str, ...]
    """Floating-point outputs of the network."""
    samples: int
    source: str
    min_snr: float
    int8: int
    """Nodes that compute in INT8."""
    fp16: int
    fp32: int
    """Nodes that are not on the DLA."""
    ranking: tuple[Sensitivity, ...] | None
    """INT8 layers by what FP16 gains; None if nobody asked."""
    findings: tuple[Finding, ...] = ()
    reference: str = ""
    """The network in FP32 that it is compared with; empty for the network itself."""
    stored: Precision | None = None
    """What the network's weights are rounded to, where FP32 has them rounded too; None where it has them exact."""

    def wrong(self, row: TensorRow) -> bool:
        """The tensor has gone wrong."""
        return row.snr_db < self.min_snr or row.broken > 0

    @property
    def output_rows(self) -> tuple[TensorRow, ...]:
        """The rows of the network's outputs."""
        return tuple(row for row in self.rows if row.name in self.outputs)

    @property
    def first_wrong(self) -> TensorRow | None:
        """The first tensor, in order of execution, whose SNR is below `min_snr`."""
        return next((row for row in self.rows if self.wrong(row)), None)

    @property
    def good(self) -> bool:
        """No output has gone wrong."""
        return not any(self.wrong(row) for row in self.output_rows)


def require_ratio(snr_db: float) -> None:
    """Raise OrinportError for a signal-to-noise ratio that nothing compares with: every output would pass."""
    if isnan(snr_db):
        raise OrinportError("--min-snr is no number.", "Give a signal-to-noise ratio in dB, for example 20.")


def precision_of(emulate: str) -> Precision:
    """`dla-int8` or `dla-fp16`. Raises OrinportError for anything else."""
    try:
        return Precision(emulate.removeprefix("dla-")) if emulate.startswith("dla-") else Precision("")
    except ValueError:
        raise OrinportError(f"{emulate!r} cannot be emulated.", "Use dla-int8 or dla-fp16.") from None


def emulate_model(
    model: Model,
    target: Target,
    precision: Precision,
    options: EmulationOptions,
    *,
    int8: Int8Options | None = None,
    edges: Sequence[EdgeMapping] = (),
    reference: Reference | None = None,
    progress: Callable[[str], None] | None = None,
) -> EmulationReport:
    """Emulate a network; see `orinport.verify`. `edges` says which inputs were moved, `int8` where scales come from and
    which layers are in FP16 in spite of theirs.

    Raises OrinportError if `reference` takes other inputs or has other outputs, or was prepared and has other weights.
    """
    _require_options(options, precision)
    single = to_single(model)
    stored = Precision.INT8 if has_qdq(model) else Precision.FP16 if single.model is not model else None
    model = single.model
    model, scales, findings, report = _scaled(model, target, precision, int8, progress)
    layers = tuple(row.layer for row in report.layers)
    arithmetic = arithmetic_of(layers, _on_dla(report), scales if precision is Precision.INT8 else None)
    if int8 is not None:
        named = {node for layer in layers if layer.name in int8.fp16 for node in layer.nodes}
        _turn(arithmetic, named, Arithmetic.INT8, Arithmetic.FP16)
    typed = None
    if target.stack.strongly_typed:
        pairs = frozenset(name for name, scale in scales.tensors.items() if scale.origin is Origin.QDQ)
        typed = Typed(single.kept, pairs or None)
        _turn(arithmetic, single.kept, Arithmetic.FP16, Arithmetic.FP32)
    plain, exact = _compared_with(model, reference, scales)
    samples, source = open_samples(
        model, edges, data=options.data, preprocess=options.preprocess, cases=options.cases, seed=options.seed
    )
    samples = list(samples)
    found = emulate(model, arithmetic, scales, typed=typed, exact=exact if precision is Precision.FP16 else None)
    rows = measure(model, found, samples, reference=plain)
    outputs = tuple(tensor.name for tensor in model.outputs if tensor.name in found.tensors)
    ranking = None
    if options.rank:
        ranked = rank(
            model,
            layers,
            arithmetic,
            scales,
            samples,
            typed=typed,
            reference=plain,
            exact=exact,
            outputs=outputs,
            progress=progress,
        )
        ranking = _priced(ranked, report)
    kinds = list(arithmetic.values())
    return EmulationReport(
        model.name,
        target,
        precision,
        rows,
        outputs,
        len(samples),
        source,
        options.min_snr,
        kinds.count(Arithmetic.INT8),
        kinds.count(Arithmetic.FP16),
        kinds.count(Arithmetic.FP32),
        ranking,
        findings,
        "" if reference is None else reference.name,
        stored if reference is None else None,
    )


def _require_options(options: EmulationOptions, precision: Precision) -> None:
    require_ratio(options.min_snr)
    if options.cases < 0:
        raise OrinportError("The number of samples cannot be negative.", "Use 0 for all of the data.")
    if options.data is None and options.preprocess is not None:
        raise OrinportError("Random inputs are not preprocessed.", "Give --data, or leave --preprocess out.")
    if options.rank and precision is not Precision.INT8:
        raise OrinportError("Only layers in INT8 are ranked.", "Use --as dla-int8, or leave --rank out.")


def _scaled(
    model: Model,
    target: Target,
    precision: Precision,
    int8: Int8Options | None,
    progress: Callable[[str], None] | None,
) -> tuple[Model, Scales, tuple[Finding, ...], CheckReport]:
    """The network without Q/DQ layers, its scales, what was noticed of them, and where its layers run."""
    from orinport.quantization import checked_as_written, quantize_model

    if precision is Precision.INT8:
        if int8 is None:
            raise OrinportError("INT8 cannot be emulated without scales.", "Give --scales FILE; quantize writes one.")
        if target.stack.strongly_typed and has_qdq(model):
            int8 = _as_stated(int8)
        quantized = quantize_model(model, target, int8, progress=progress)
        return quantized.model, quantized.scales, quantized.findings, quantized.checked
    scales = Scales({})
    if has_qdq(model):
        model, stated = strip_qdq(model, target)
        scales = Scales({}, weights=stated.weights)
    return model, scales, (), checked_as_written(model, target, precision)


def _turn(arithmetic: dict[str, Arithmetic], nodes: Iterable[str], old: Arithmetic, new: Arithmetic) -> None:
    """Make `new` of `old` for those of `nodes` that compute in it."""
    arithmetic |= {node: new for node in nodes if arithmetic.get(node) is old}


def _as_stated(int8: Int8Options) -> Int8Options:
    """Without ties: from TensorRT 11 on each pair says its own scale. Raises OrinportError if others were asked for."""
    if int8.ties is not Ties.ALL:
        raise OrinportError(
            "From TensorRT 11 on ranges are what the network's Q/DQ layers say.",
            "Leave --ties out; prepare takes it.",
        )
    return replace(int8, ties=Ties.NONE)


def _compared_with(
    model: Model, reference: Reference | None, scales: Scales
) -> tuple[Model | None, Mapping[str, NDArray[Any]]]:
    """The network to compare with, in FP32 and without Q/DQ layers, and the constants of `model` from before rounding.

    Without a reference that is None, for the network itself, and no constants.
    """
    if reference is None:
        return None, {}
    plain = to_single(reference.model).model
    plain = strip_qdq(plain)[0] if has_qdq(plain) else plain
    common = tensors_in_common(model, plain)
    for tensor in (*model.inputs, *model.outputs):
        if tensor.name not in common:
            raise OrinportError(
                f"{reference.name!r} has no tensor {tensor.name!r} of shape {list(tensor.shape or ())}.",
                "Give the network that was prepared or quantised.",
            )
    if extra := {tensor.name for tensor in plain.inputs} - {tensor.name for tensor in model.inputs}:
        raise OrinportError(f"{reference.name!r} has a further input {min(extra)!r}.")
    found = unrounded(model, plain, scales.weights)
    if reference.prepared and found.others:
        raise OrinportError(
            f"{reference.name!r} is not what the bundle was prepared from: {found.others[0]!r} has other numbers.",
            "Give the network that was prepared, or prepare this one again.",
        )
    return plain, found.constants


def _on_dla(report: CheckReport) -> frozenset[int]:
    """Layers that run on the DLA; with TensorRT 11, where types decide what a layer computes in anywhere, all."""
    everything = report.target.stack.strongly_typed
    return frozenset(row.layer.index for row in report.layers if everything or row.verdict is Verdict.DLA)


def open_samples(
    model: Model,
    edges: Sequence[EdgeMapping] = (),
    *,
    data: str | None = None,
    preprocess: Path | None = None,
    cases: int = 3,
    seed: int = 0,
) -> tuple[Sequence[Mapping[str, NDArray[Any]]], str]:
    """What `model` is fed, and what to call where it comes from: samples of `data`, or random inputs without it.

    Data has the shapes of the original network; `edges` says which inputs were moved. `cases` samples are taken, from
    the first on, 0 for all of the data; each is read when it is asked for. Raises OrinportError for bad data, and for
    inputs without fixed shapes.
    """
    if data is None:
        input_specs(model)
        rng = np.random.default_rng(seed)
        try:
            return [random_inputs(model.graph.inputs, rng) for _ in range(max(1, cases))], "random inputs"
        except NotProvableError as error:
            raise OrinportError(f"The network cannot be run: {error}.", "Give samples with --data.") from error
    moved, feed = moved_inputs(edges), board_feed(edges)
    specs = tuple(
        replace(spec, shape=tuple(moved[spec.name].original_shape)) if spec.name in moved else spec
        for spec in input_specs(model)
    )
    opened = open_data(DataSpec(data, specs, "" if preprocess is None else str(preprocess), max(0, cases)))
    count = min(len(opened), cases) if cases > 0 else len(opened)
    return _Fed(opened, count, feed or dict), named_source(data, opened, count)


def named_source(data: str, samples: Samples, taken: int) -> str:
    """What to call `data` in a report, with what of it is in no sample where all samples are taken."""
    return f"{data}, {samples.left_out}" if samples.left_out and taken == len(samples) else data


class _Fed(Sequence[Mapping[str, "NDArray[Any]"]]):
    """The first samples of some data, as a network takes them; none is kept."""

    def __init__(
        self,
        samples: Samples,
        count: int,
        feed: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]],
    ) -> None:
        self._samples, self._count, self._feed = samples, count, feed

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._feed(self._samples[index])


def _priced(ranking: tuple[Sensitivity, ...], report: CheckReport) -> tuple[Sensitivity, ...]:
    """The ranking with predicted times, where a measurement covers the target.

    What a layer costs that rides along with another one and then would have to run by itself is not predicted.
    """
    from orinport.predict.network import predict_network

    try:
        int8, fp16 = (
            {
                each.layer.index: None if each.fused_into else each.us
                for each in predict_network(report.model, report.placement, report.target, precision).layers
            }
            for precision in (Precision.INT8, Precision.FP16)
        )
    except OrinportError:
        return ranking
    found = []
    for each in ranking:
        before, after = int8.get(each.layers[0]), fp16.get(each.layers[0])
        found.append(each if before is None or after is None else replace(each, extra_us=after - before))
    return tuple(found)
