"""The public functions: each takes a path, bytes, an `onnx.ModelProto` or an onnx_ir model and returns a value."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from orinport.checking import as_precision, as_target, check_model, require_batch
from orinport.errors import OrinportError
from orinport.rules.finding import Verdict
from orinport.targets import DEFAULT_TARGET
from orinport.words import count, some

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from orinport.device.compare import Comparison
    from orinport.device.measured import Measurement
    from orinport.device.record import BundleRecord
    from orinport.emulation import EmulationOptions, EmulationReport
    from orinport.matmul.planner import MatmulReport
    from orinport.measuring import Build, Refit
    from orinport.model.model import Model
    from orinport.precision.calibrate import CalibrationOptions
    from orinport.predict.prediction import Prediction
    from orinport.quantization import Int8Options, QuantizeReport
    from orinport.results import CheckReport, PrepareReport
    from orinport.rewrites.edges import EdgeMapping
    from orinport.rewrites.log import VerifyReport
    from orinport.rewrites.rewrite import Safety
    from orinport.targets.target import Target

__all__ = ["check", "plan_matmul", "predict", "prepare", "profile", "quantize", "refit", "verify"]


def check(
    model: Any,
    *,
    target: str | Target = DEFAULT_TARGET,
    precision: str = "fp16",
    shapes: str | Sequence[str] | Mapping[str, Sequence[int]] | None = None,
    standalone: bool = False,
    gpu_fallback: bool = True,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> CheckReport:
    """Say which layers of a network the DLA takes, and why it refuses the others.

    `shapes` replaces dynamic input dimensions, spelled `"x:1x3x224x224"` or as a mapping. `select` and
    `ignore` filter the findings by code prefix and leave the verdicts alone. Raises OrinportError if the
    model cannot be read or the target does not exist.
    """
    from orinport.collector import collection_paused

    with collection_paused():
        from orinport.model.load import load

        return check_model(
            load(model, shapes=shapes),
            as_target(target),
            as_precision(precision),
            standalone=standalone,
            gpu_fallback=gpu_fallback,
            select=select,
            ignore=ignore,
        )


def prepare(
    model: Any,
    *,
    target: str | Target = DEFAULT_TARGET,
    precision: str = "fp16",
    shapes: str | Sequence[str] | Mapping[str, Sequence[int]] | None = None,
    standalone: bool = False,
    output: str | Path | None = None,
    force: bool = False,
    keep_io: bool = False,
    cut_tail: bool = False,
    dla_core: int = 0,
    consent: Collection[Safety] | None = None,
    optimize: bool = False,
    keep: Mapping[str, str] | None = None,
    cores: int = 1,
    data: str | Path | None = None,
    preprocess: str | Path | None = None,
    scales: str | Path | None = None,
    calibration: CalibrationOptions | None = None,
    ties: str = "all",
    fp16: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> PrepareReport:
    """Rewrite a network until the DLA takes it, prove that it still computes the same, and write the bundle.

    `output` is the folder to write; by default the model's path with `.orin` in place of `.onnx`. An
    existing bundle is replaced only with `force`. `keep_io` leaves the network's inputs and outputs alone.
    `cut_tail` saves what the DLA does not take at the end as `tail.onnx`; the board's model then returns its inputs.
    `consent` says which safety classes of rewrites may be applied, by default only exact ones. `optimize` leaves
    layers that the DLA takes to the GPU where that is predicted to be faster; `keep` maps names of layers or nodes to
    `dla` or `gpu`. With 2 `cores` the network is also written in parts for both DLA cores and the GPU, where that is
    predicted to shorten one inference; `keep` may name `dla0` and `dla1` then. INT8 needs `data` to calibrate with, or
    `scales` from a file, as for `quantize`; `fp16` names layers or nodes that run in FP16 all the same. The input is
    never touched. Raises OrinportError if the model cannot be read, the target does not exist, or the folder cannot be
    written.
    """
    from orinport.model.load import load
    from orinport.pipeline import prepare_model

    return prepare_model(
        load(model, shapes=shapes),
        as_target(target),
        as_precision(precision),
        folder=_output_folder(model, output),
        standalone=standalone,
        force=force,
        keep_io=keep_io,
        cut_tail=cut_tail,
        dla_core=dla_core,
        consent=consent,
        optimize=optimize,
        keep=keep,
        cores=cores,
        int8=_int8(data, preprocess, scales, calibration, ties, fp16),
        progress=progress,
    )


def quantize(
    model: Any,
    *,
    data: str | Path | None = None,
    scales: str | Path | None = None,
    target: str | Target = DEFAULT_TARGET,
    shapes: str | Sequence[str] | Mapping[str, Sequence[int]] | None = None,
    preprocess: str | Path | None = None,
    calibration: CalibrationOptions | None = None,
    ties: str = "all",
    progress: Callable[[str], None] | None = None,
) -> QuantizeReport:
    """INT8 scales of a network, as the DLA wants them, and which tensors have none.

    They come from `data` (a folder of pictures or arrays, a .npy or .npz file, or `FILE.py:FUNCTION`, which runs that
    code), from the file `scales`, or from the network's own Q/DQ layers. `preprocess` is the TOML file that describes
    how pictures become inputs, `calibration` how data becomes ranges. `ties` says which ranges are made equal: `all`
    that documents demand, `except-products`, or `none`. Raises OrinportError for bad data, and if nothing gives scales.
    """
    from orinport.model.load import load
    from orinport.quantization import quantize_model

    options = _int8(data, preprocess, scales, calibration, ties)
    return quantize_model(load(model, shapes=shapes), as_target(target), options, progress=progress)


def _int8(
    data: str | Path | None,
    preprocess: str | Path | None,
    scales: str | Path | None,
    calibration: CalibrationOptions | None,
    ties: str,
    fp16: Sequence[str] = (),
) -> Int8Options:
    from orinport.precision.calibrate import CalibrationOptions
    from orinport.precision.ties import Ties
    from orinport.quantization import Int8Options

    try:
        chosen = Ties(ties)
    except ValueError:
        raise OrinportError(f"{ties!r} is no choice of ties.", "Use all, except-products or none.") from None
    return Int8Options(
        data=None if data is None else str(data),
        preprocess=None if preprocess is None else Path(preprocess),
        scales=None if scales is None else Path(scales),
        calibration=calibration or CalibrationOptions(),
        ties=chosen,
        fp16=tuple(fp16),
    )


@overload
def verify(
    reference: Any,
    candidate: Any,
    *,
    shapes: str | Sequence[str] | Mapping[str, Sequence[int]] | None = None,
    cases: int = 3,
    seed: int = 0,
    tolerance: float | None = None,
    emulate: None = None,
) -> VerifyReport: ...


@overload
def verify(
    reference: Any,
    candidate: Any = None,
    *,
    shapes: str | Sequence[str] | Mapping[str, Sequence[int]] | None = None,
    cases: int = 3,
    seed: int = 0,
    emulate: str,
    target: str | Target | None = None,
    scales: str | Path | None = None,
    data: str | Path | None = None,
    preprocess: str | Path | None = None,
    ties: str = "all",
    min_snr: float | None = None,
    rank: bool = False,
    progress: Callable[[str], None] | None = None,
) -> EmulationReport: ...


def verify(
    reference: Any,
    candidate: Any = None,
    *,
    shapes: str | Sequence[str] | Mapping[str, Sequence[int]] | None = None,
    cases: int = 3,
    seed: int = 0,
    tolerance: float | None = None,
    emulate: str | None = None,
    target: str | Target | None = None,
    scales: str | Path | None = None,
    data: str | Path | None = None,
    preprocess: str | Path | None = None,
    ties: str = "all",
    min_snr: float | None = None,
    rank: bool = False,
    progress: Callable[[str], None] | None = None,
) -> VerifyReport | EmulationReport:
    """Run two networks on the same random inputs in ONNX Runtime and compare every output.

    `candidate` may be a bundle: its record of moved edges is used then, and its tail runs behind its model; dynamic
    inputs of `reference` get the shapes that the bundle was prepared for, unless `shapes` says otherwise. `tolerance`
    bounds the difference relative to an output's largest magnitude; by default it follows from the data types. Raises
    OrinportError if the inputs or outputs of the two do not fit.

    `emulate`, `dla-int8` or `dla-fp16`, runs one network (or a bundle) as the DLA of `target` would, against itself in
    FP32, tensor by tensor; `target` is by default what a bundle was prepared for. INT8 needs `scales` from a file,
    unless the network has Q/DQ layers or the bundle its own. With a `candidate` it is the candidate that is run so,
    against `reference` in FP32: a bundle against the network that it was prepared from, or one that was quantised or
    converted against the one before, whose tensors are compared as far as they have the same names. `data` holds
    samples as `quantize` takes them, of which the first `cases` count (0: all). An output whose SNR is below `min_snr`
    dB is wrong. `rank` tries every INT8 layer in FP16.
    """
    if seed < 0:
        raise OrinportError(f"The seed {seed} is negative.", "Use 0 or more.")
    if tolerance is not None and not 0 <= tolerance < float("inf"):
        raise OrinportError(f"{tolerance} is no tolerance.", "Use a number that is 0 or more, for example 0.001.")
    if emulate is not None:
        if tolerance is not None:
            raise OrinportError("A tolerance is for two networks.", "An emulation has --min-snr.")
        if scales is not None and emulate == "dla-fp16":
            raise OrinportError("FP16 has no scales.", "Use --as dla-int8, or leave --scales out.")
        from orinport.emulation import MIN_SNR, EmulationOptions

        options = EmulationOptions(
            data=None if data is None else str(data),
            preprocess=None if preprocess is None else Path(preprocess),
            cases=cases,
            seed=seed,
            min_snr=MIN_SNR if min_snr is None else min_snr,
            rank=rank,
        )
        network, original = (reference, None) if candidate is None else (candidate, reference)
        return _emulated(network, original, emulate, target, options, shapes, scales, ties, progress)
    if target is not None:
        raise OrinportError("A target is for an emulation.", "Add --as dla-int8, or leave it out.")
    if scales is not None or data is not None or preprocess is not None or rank:
        raise OrinportError("Scales, data and ranking are for an emulation.", "Add --as dla-int8, or leave them out.")
    if candidate is None:
        raise OrinportError("There is nothing to compare with.", "Give a second network, or --as dla-int8.")
    if cases < 1:
        raise OrinportError(f"{cases} random inputs compare nothing.", "Use --cases 1 or more.")
    return _compared(reference, candidate, shapes, cases=cases, seed=seed, tolerance=tolerance)


def _compared(
    reference: Any,
    candidate: Any,
    shapes: str | Sequence[str] | Mapping[str, Sequence[int]] | None,
    *,
    cases: int,
    seed: int,
    tolerance: float | None,
) -> VerifyReport:
    """`verify` of two networks."""
    from orinport.model.load import load
    from orinport.rewrites.proof import compare_models

    edges: tuple[EdgeMapping, ...] = ()
    stated = 0.0
    bundle, names = _bundle(candidate), [_name(reference), _name(candidate)]
    if bundle is not None:
        from orinport.device.record import read_record

        record = read_record(bundle / "report.json")
        edges, stated = record.edges, record.stated
    second = load(candidate if bundle is None else bundle / "model.onnx", shapes=None if edges else shapes)
    if bundle is not None and shapes is None:
        from orinport.rewrites.edges import prepared_shapes

        shapes = prepared_shapes(reference, second, edges)
    first = load(reference, shapes=shapes)
    if bundle is not None and (bundle / "tail.onnx").is_file():
        from orinport.rewrites.ends import chain

        tail = load(bundle / "tail.onnx")
        second = chain(second, tail, [value.name or "" for value in first.graph.outputs])
    return compare_models(
        first,
        second,
        edges,
        cases=cases,
        seed=seed,
        tolerance=tolerance,
        allowance=stated,
        names=(names[0], names[1]),
        any_precision=True,
    )


def _emulated(
    network: Any,
    original: Any,
    emulate: str,
    target: str | Target | None,
    options: EmulationOptions,
    shapes: str | Sequence[str] | Mapping[str, Sequence[int]] | None,
    scales: str | Path | None,
    ties: str,
    progress: Callable[[str], None] | None,
) -> EmulationReport:
    """`verify` of one network as the DLA computes it, against itself or what it was made from."""
    from orinport.emulation import Reference, emulate_model, precision_of
    from orinport.model.load import load
    from orinport.precision.cache import read_layer_precisions
    from orinport.precision.qdq import has_qdq
    from orinport.targets.target import Precision

    edges: tuple[EdgeMapping, ...] = ()
    bundle, record = _bundle(network), None
    precision = precision_of(emulate)
    if bundle is not None:
        from orinport.device.record import read_record

        record = read_record(bundle / "report.json")
        edges = record.edges
    model = load(network if bundle is None else bundle / "model.onnx", shapes=None if edges else shapes)
    reference = None
    if original is not None and record is None:
        reference = Reference(load(original, shapes=shapes), _name(original))
    elif original is not None and record is not None:
        reference = Reference(_prepared(original, model, record, shapes, progress), _name(original), prepared=True)
    if record is not None:
        model = replace(model, name=record.model or model.name)
        target = target or record.target
    if bundle is not None and scales is None and not has_qdq(model) and (bundle / "scales.json").exists():
        scales = bundle / "scales.json"
    int8 = None
    if precision is Precision.INT8 and (scales is not None or has_qdq(model)):
        chosen = () if bundle is None else read_layer_precisions(bundle / "layer_precisions.txt")
        int8 = _int8(None, None, scales, None, ties, chosen)
    return emulate_model(
        model,
        as_target(target or DEFAULT_TARGET),
        precision,
        options,
        int8=int8,
        edges=edges,
        reference=reference,
        progress=progress,
    )


def _prepared(
    original: Any,
    board: Model,
    record: BundleRecord,
    shapes: str | Sequence[str] | Mapping[str, Sequence[int]] | None,
    progress: Callable[[str], None] | None,
) -> Model:
    """`original` rewritten as it was for the bundle that holds `board`."""
    from orinport.model.load import load
    from orinport.pipeline import prepared_again
    from orinport.rewrites.edges import prepared_shapes

    if record.rewriting is None:
        raise OrinportError(
            "The bundle's report does not say how its network was rewritten.",
            "Prepare it again, or emulate it by itself; a part has no such record, the bundle that holds it has.",
        )
    if shapes is None:
        shapes = prepared_shapes(original, board, record.edges)
    return prepared_again(
        load(original, shapes=shapes),
        as_target(record.target),
        as_precision(record.precision),
        record.rewriting,
        progress=progress,
    )


def predict(
    model: Any,
    *,
    target: str | Target = DEFAULT_TARGET,
    precision: str = "int8",
    power_mode: str | None = None,
    shapes: str | Sequence[str] | Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    sparse: bool = False,
    linear_io: bool = False,
    rewrite: bool = False,
    compare_gpu: bool = False,
    optimize: bool = False,
    keep: Mapping[str, str] | None = None,
    cores: int = 1,
    progress: Callable[[str], None] | None = None,
) -> Prediction:
    """Predict time, bound, MAC utilisation and bytes of every layer, without a board.

    The network is predicted as it is; with `rewrite` it is rewritten first, and what `prepare` would write is
    predicted. `batch` is the number of images of one inference.
    `sparse`: weights have the 2:4 pattern. `linear_io`: FP32 linear inputs and outputs instead of the formats
    that the bundle asks for. `optimize`, `keep` and `cores` place the layers as in `prepare`. `compare_gpu` predicts
    the whole network on the GPU beside it. Raises OrinportError for boards that no public measurement covers.
    """
    from orinport.model.load import load
    from orinport.placement.place import all_on_gpu
    from orinport.predict.batch import with_batch
    from orinport.predict.network import predict_network

    aim = as_target(target, power_mode)
    chosen = as_precision(precision)
    network = load(model, shapes=shapes)
    if rewrite:
        from orinport.pipeline import rewrite_for

        network, _, _ = rewrite_for(network, aim, chosen, progress=progress)
    report = check_model(network, aim, chosen)
    notes = _blocked_note(report)
    if optimize or keep or cores != 1:
        from orinport.placing import placed_anew

        placed = placed_anew(report, network, optimize=optimize, wishes=keep or {}, cores=cores, batch=batch)
        report, notes = placed.report, (*notes, *placed.notes)
    placement = report.placement
    if batch is not None:
        placement = with_batch(placement, batch)
        require_batch(placement, batch, aim, chosen)
    gpu_us = None
    if compare_gpu:
        gpu_us = predict_network(network.name, all_on_gpu(placement), aim, chosen).total_us
    prediction = predict_network(
        network.name, placement, aim, chosen, sparse=sparse, linear_io=linear_io, gpu_us=gpu_us
    )
    return replace(prediction, notes=notes) if notes else prediction


def _blocked_note(report: CheckReport) -> tuple[str, ...]:
    """That a prediction leaves out what TensorRT cannot build, if there is such a layer."""
    names = [row.layer.name for row in report.layers if row.verdict is Verdict.BLOCKED]
    if not names:
        return ()
    return (
        f"TensorRT cannot build the network as it is: {count(len(names), 'layer')} blocked ({some(names)}), whose time"
        " and bytes are left out here; orinport check says why",
    )


def profile(
    model: Any,
    measurement: str | Path,
    *,
    target: str | Target = DEFAULT_TARGET,
    precision: str = "int8",
    power_mode: str | None = None,
    shapes: str | Sequence[str] | Mapping[str, Sequence[int]] | None = None,
    layers: str | Path | None = None,
) -> Comparison:
    """Lay what a board measured beside the prediction, layer by layer.

    `measurement` is a profile of trtexec or a CSV of cuDLA's layer statistics, `layers` trtexec's layer information of
    the same engine. Raises OrinportError for a file that is neither, and for targets that no measurement covers.
    """
    from orinport.measuring import lay_beside

    return lay_beside(model, *_measured(measurement, layers, target, precision, power_mode, shapes))


def refit(
    model: Any,
    measurement: str | Path,
    *,
    target: str | Target = DEFAULT_TARGET,
    precision: str = "int8",
    power_mode: str | None = None,
    shapes: str | Sequence[str] | Mapping[str, Sequence[int]] | None = None,
    layers: str | Path | None = None,
) -> Refit:
    """Fit the constants of the prediction to what a board measured; arguments as those of `profile`.

    Raises OrinportError if the measurement determines none of the constants.
    """
    from orinport.measuring import refit as fit

    return fit(model, *_measured(measurement, layers, target, precision, power_mode, shapes))


def _measured(
    measurement: str | Path,
    layers: str | Path | None,
    target: str | Target,
    precision: str,
    power_mode: str | None,
    shapes: str | Sequence[str] | Mapping[str, Sequence[int]] | None,
) -> tuple[Measurement, Build]:
    """A measurement, and how the network was built that was measured."""
    from orinport.device.measured import read_layer_nodes, read_measurement
    from orinport.measuring import Build

    nodes = None if layers is None else read_layer_nodes(Path(layers))
    return read_measurement(Path(measurement)), Build(target, precision, power_mode, shapes, nodes)


def plan_matmul(
    m: int,
    k: int,
    n: int,
    *,
    count: int = 1,
    constant: str = "rhs",
    distinct: bool = False,
    values: NDArray[Any] | None = None,
    target: str | Target = DEFAULT_TARGET,
    precision: str = "int8",
    power_mode: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> MatmulReport:
    """Rank the ways to compute `count` products of (m, k) by (k, n) on the DLA; the best is proved against NumPy.

    `constant` says which operand is known when the network is built: `rhs`, `lhs` or `none`; `distinct`: each
    product has its own. `values` is that operand, (m, k) or (k, n) or one for each product; random if left
    out. Raises OrinportError for sizes or values that do not fit.
    """
    from orinport.matmul.planner import plan_matmul as plan
    from orinport.matmul.product import Constant, Product

    try:
        side = Constant(constant)
    except ValueError:
        raise OrinportError(f"{constant!r} is no operand.", "Use rhs, lhs or none.") from None
    return plan(
        Product(m, k, n, count, side, distinct),
        target=as_target(target, power_mode),
        precision=as_precision(precision),
        values=values,
        progress=progress,
    )


def _output_folder(model: Any, output: str | Path | None) -> Path:
    if output is not None:
        return Path(output)
    if isinstance(model, (str, PathLike)):
        path = Path(model)
        return path.with_name(f"{path.name.removesuffix('.onnx')}.orin")
    raise OrinportError("A model that comes from no file needs a name for its folder.", "Give output=...")


def _bundle(source: Any) -> Path | None:
    """The folder, if `source` is one; None if it is a network."""
    return Path(source) if isinstance(source, (str, PathLike)) and Path(source).is_dir() else None


def _name(source: Any) -> str:
    return Path(source).name if isinstance(source, (str, PathLike)) else type(source).__name__
