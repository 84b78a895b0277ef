"""INT8 scales on their way through the rooms: from data or a file to what a target's software reads."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orinport.errors import OrinportError
from orinport.files import write_whole
from orinport.model.layer import DType
from orinport.model.save import save
from orinport.precision.cache import (
    cache_text,
    fits_a_line,
    is_safe_layer_name,
    layer_precisions,
    read_scales,
    scales_json,
)
from orinport.precision.calibrate import CalibrationOptions, calibrate, input_specs
from orinport.precision.complete import complete, constant_scales, cut_constants
from orinport.precision.constants import constant_findings
from orinport.precision.coverage import Coverage, check_ranges, check_scales, coverage
from orinport.precision.explicit import insert_qdq
from orinport.precision.findings import unwritable_name
from orinport.precision.fuse import mark_fused
from orinport.precision.half import to_half
from orinport.precision.qdq import has_qdq, strip_qdq
from orinport.precision.scales import Scales
from orinport.precision.ties import Ties, tie
from orinport.rewrites.edges import board_feed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from orinport.model.layer import Layer
    from orinport.model.model import Model
    from orinport.placement.placement import IOFormat, Placement
    from orinport.results import CheckReport
    from orinport.rewrites.edges import EdgeMapping
    from orinport.rules.finding import Finding
    from orinport.targets.target import Precision, Target

__all__ = [
    "Int8Options",
    "QuantizeReport",
    "cache_files",
    "checked_as_written",
    "find_scales",
    "finish",
    "quantise",
    "quantize_model",
    "require_source",
    "require_writable",
    "wished_in_fp16",
    "with_scaled_edges",
    "without_qdq",
    "write_scales",
]


@dataclass(frozen=True, slots=True)
class Int8Options:
    """Where scales come from, and what is done about them."""

    data: str | None = None
    preprocess: Path | None = None
    scales: Path | None = None
    """A calibration cache or JSON file, in place of data."""
    calibration: CalibrationOptions = field(default_factory=CalibrationOptions)
    ties: Ties = Ties.ALL
    fp16: tuple[str, ...] = ()
    """Names of layers or ONNX nodes that run in FP16 all the same."""
    found: Scales | None = None
    """The scales of the network's own Q/DQ layers."""


@dataclass(frozen=True, slots=True)
class QuantizeReport:
    """A network and its scales on a target."""

    model: Model
    """The network that the scales belong to: without Q/DQ layers."""
    target: Target
    scales: Scales
    coverage: Coverage
    checked: CheckReport
    """The network's layers and where they run, in INT8."""
    constants: tuple[Finding, ...] = ()
    """Constants that FP16 cannot hold, of layers that run in FP16 for want of a scale."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was noticed while the scales were found, which tensors have none, and what FP16 cannot hold there."""
        return (*self.scales.findings, *self.coverage.findings, *self.constants)


def quantize_model(
    model: Model,
    target: Target,
    options: Int8Options,
    *,
    progress: Callable[[str], None] | None = None,
) -> QuantizeReport:
    """Scales of a network as it is; see `orinport.quantize`."""
    from orinport.targets.target import Precision

    model, options = without_qdq(model, options, target)
    scales = find_scales(model, model, (), options, progress=progress)
    return finish(scales, model, checked_as_written(model, target, Precision.INT8), options)


def checked_as_written(model: Model, target: Target, precision: Precision) -> CheckReport:
    """`check` of a network in the types that the target's software wants it in: FP16 from TensorRT 11 on.

    One that FP16 cannot hold, which `prepare` refuses there, is checked as it is.
    """
    from orinport.checking import check_model

    if target.stack.strongly_typed:
        with suppress(OrinportError):
            model = to_half(model)[0]
    return check_model(model, target, precision)


def without_qdq(model: Model, options: Int8Options, target: Target) -> tuple[Model, Int8Options]:
    """The network without its Q/DQ layers, whose scales are in the options then.

    Raises OrinportError unless scales come from exactly one place.
    """
    if not has_qdq(model):
        require_source(options)
        return model, options
    if options.data is not None or options.scales is not None:
        raise OrinportError(
            f"{model.name!r} has Q/DQ layers and with them scales of its own.",
            "Leave --data and --scales out, or give the network from before quantisation.",
        )
    clean, found = strip_qdq(model, target)
    return clean, replace(options, found=found)


def find_scales(
    original: Model,
    written: Model,
    edges: Sequence[EdgeMapping],
    options: Int8Options,
    *,
    progress: Callable[[str], None] | None = None,
) -> Scales:
    """Scales of `written` as they come from data, which is what `original` takes, or from a file.

    Raises OrinportError if there is neither.
    """
    if options.found is not None:
        return options.found
    require_source(options)
    if options.scales is not None:
        return read_scales(options.scales)
    assert options.data is not None
    return calibrate(
        written,
        options.data,
        preprocess=options.preprocess,
        options=options.calibration,
        inputs=input_specs(original),
        feed=board_feed(edges),
        progress=progress,
    )


def require_source(options: Int8Options) -> None:
    """Raise OrinportError unless scales come from exactly one place."""
    if options.data is not None and options.scales is not None:
        raise OrinportError("Scales come from data or from a file, not from both.", "Give --data or --scales.")
    if options.data is None and options.scales is None:
        raise OrinportError(
            "INT8 needs a scale for every tensor, and there are neither data nor scales.",
            "Give --data with calibration data, or --scales with a calibration cache or a JSON file.",
        )
    if options.data is None and (options.preprocess is not None or options.calibration != CalibrationOptions()):
        raise OrinportError(
            "Options of a calibration were given, and the scales come from a file.",
            "Give --data in place of --scales, or leave --preprocess, --method and their like out.",
        )


def finish(scales: Scales, model: Model, report: CheckReport, options: Int8Options) -> QuantizeReport:
    """Complete scales for the layers of `report`, equal where the DLA wants them so, and what still lacks one."""
    layers = tuple(row.layer for row in report.layers)
    regions = _regions(report)
    outputs = {tensor.name for tensor in model.outputs}
    noticed: tuple[Finding, ...] = ()
    if options.scales is not None:
        noticed = check_scales(scales, layers)
    elif options.found is not None:
        noticed = check_ranges(scales, layers)
    full = complete(scales.merged(constant_scales(model, layers), noticed), layers, outputs)
    running = [layer for region in regions for layer in region]
    marked = mark_fused(full, running, outputs, report.target)
    tied = cut_constants(tie(marked, running, report.target, options.ties), layers)
    if not report.target.stack.strongly_typed:
        tied = _writable(tied)
    done = coverage(tied, regions)
    constants = constant_findings(model, done.fp16_layers, half=True)
    return QuantizeReport(model, report.target, tied, done, report, tuple(constants))


def _writable(scales: Scales) -> Scales:
    """The scales that a calibration cache can hold; the others are told."""
    unfit = [name for name in scales.tensors if not fits_a_line(name)]
    kept = {name: scale for name, scale in scales.tensors.items() if name not in unfit}
    return replace(scales, tensors=kept, findings=(*scales.findings, *map(unwritable_name, unfit)))


def _regions(report: CheckReport) -> tuple[tuple[Layer, ...], ...]:
    """The DLA's regions; with TensorRT 11, where no verdict is certain in INT8, everything that runs."""
    if report.target.stack.strongly_typed:
        return (tuple(row.layer for row in report.layers if not row.layer.folds),)
    return tuple(region.layers for region in report.placement.regions if region.device == "dla")


@dataclass(frozen=True, slots=True)
class Quantised:
    """What INT8 adds to a bundle."""

    after: CheckReport
    model: Model
    texts: dict[str, str]
    notes: tuple[str, ...]
    cache: str
    layer_precisions: bool


def quantise(
    original: Model,
    rewritten: Model,
    written: Model,
    after: CheckReport,
    edges: Sequence[EdgeMapping],
    options: Int8Options,
    *,
    progress: Callable[[str], None] | None = None,
) -> Quantised:
    """Find the scales of the rewritten network and put them where the target's software looks for them.

    `written` is what the bundle is going to hold, `after` the report on it.
    """
    scales = find_scales(original, rewritten, edges, options, progress=progress)
    report = finish(scales, written, after, options)
    findings = tuple(finding for finding in after.findings if finding.code != _ASKS_FOR_SCALES)
    after = replace(
        after,
        findings=(*findings, *report.findings),
        placement=with_scaled_edges(after.placement, report.scales, after.target),
    )
    done = report.coverage
    covered = (
        f"{done.covered} of {len(done.tensors)} tensors on the DLA have a scale ({report.scales.method or 'given'})"
    )
    texts = {"scales.json": scales_json(report.scales)}
    wished = wished_in_fp16(after, options.fp16)
    in_fp16 = [row.layer for row in after.layers if row.layer.name in wished]
    unfit = [each for each in constant_findings(written, in_fp16, half=True) if each not in after.findings]
    after = replace(after, findings=(*after.findings, *unfit))
    if after.target.stack.strongly_typed:
        explicit, lost = insert_qdq(written, report.scales)
        after = replace(after, findings=(*after.findings, *lost))
        return Quantised(after, explicit, texts, (covered, _EXPLICIT), "", False)
    caches, notes = cache_files(report, wished)
    return Quantised(
        after,
        written,
        {**texts, **caches},
        (covered, *notes),
        "calibration.cache",
        "layer_precisions.txt" in caches,
    )


_EXPLICIT = (
    "the scales stand in the network as QuantizeLinear and DequantizeLinear; the layers above are those without them,"
    " and which of these patterns the DLA takes is not documented"
)
_ASKS_FOR_SCALES = "DLA204"
"""The note that INT8 needs scales."""


def wished_in_fp16(report: CheckReport, names: Sequence[str]) -> tuple[str, ...]:
    """The layers that `names`, of layers or ONNX nodes, stand for. Raises OrinportError for names of neither."""
    if names and report.target.stack.strongly_typed:
        raise OrinportError(
            "From TensorRT 11 on the network's own types decide what runs in FP16.",
            "Leave the layers' scales out instead.",
        )
    found: dict[str, None] = {}
    for name in names:
        layers = [
            row.layer for row in report.layers if not row.layer.folds and name in (row.layer.name, *row.layer.nodes)
        ]
        if not layers:
            raise OrinportError(f"{name!r} is no layer and no node of the prepared network.")
        for layer in layers:
            if not is_safe_layer_name(layer.name):
                raise OrinportError(
                    f"The layer name {layer.name!r} cannot stand in --layerPrecisions.", "Rename the node."
                )
            found[layer.name] = None
    return tuple(found)


def cache_files(report: QuantizeReport, wished: Sequence[str] = ()) -> tuple[dict[str, str], tuple[str, ...]]:
    """`calibration.cache` and, where layers run in FP16, `layer_precisions.txt`; and notes on what is not in them.

    `wished` are layers that run in FP16 although they have their scales.
    """
    names = list(dict.fromkeys([*(layer.name for layer in report.coverage.fp16_layers), *wished]))
    safe = [name for name in names if is_safe_layer_name(name)]
    texts = {"calibration.cache": cache_text(report.scales.tensors, report.target.stack.tensorrt)}
    if safe:
        texts["layer_precisions.txt"] = layer_precisions(safe) + "\n"
    left = [name for name in names if name not in safe]
    if not left:
        return texts, ()
    return texts, (
        f"{len(left)} layers without scales have names that --layerPrecisions cannot hold, the first {left[0]!r};"
        " TensorRT runs them in FP16 of its own accord",
    )


def with_scaled_edges(placement: Placement, scales: Scales, target: Target) -> Placement:
    """Inputs and outputs in INT8 only where they have a scale, and not at all where types decide."""

    def checked(edge: IOFormat) -> IOFormat:
        if edge.dtype is not DType.INT8 or (edge.name in scales and not target.stack.strongly_typed):
            return edge
        reason = "the network's own types decide" if target.stack.strongly_typed else "it has no INT8 scale"
        return replace(edge, dtype=DType.FP16, format="chw16", reason=reason)

    return replace(
        placement,
        inputs=tuple(checked(edge) for edge in placement.inputs),
        outputs=tuple(checked(edge) for edge in placement.outputs),
    )


def require_writable(path: Path, target: Target) -> None:
    """Raise OrinportError, before the work, if `write_scales` could not write `path` for `target`."""
    ending = path.suffix.lower()
    if ending not in (".cache", ".json", ".onnx"):
        raise OrinportError(f"{str(path)!r} does not say what to write.", "Let it end in .json, .cache or .onnx.")
    if ending == ".cache":
        cache_text({}, target.stack.tensorrt)
    if not path.absolute().parent.is_dir():
        raise OrinportError(f"{str(path)!r} cannot be written: No such file or directory.")


def write_scales(report: QuantizeReport, path: Path) -> None:
    """Write the scales to `path`, in the format that its ending names. Raises OrinportError for any other ending."""
    ending = path.suffix.lower()
    if ending == ".onnx":
        model = to_half(report.model)[0] if report.target.stack.strongly_typed else report.model
        save(insert_qdq(model, report.scales)[0], path)
        return
    if ending == ".json":
        text = scales_json(report.scales)
    elif ending == ".cache":
        text = cache_text(report.scales.tensors, report.target.stack.tensorrt)
    else:
        raise OrinportError(f"{str(path)!r} does not say what to write.", "Let it end in .json, .cache or .onnx.")
    try:
        write_whole(path, text)
    except OSError as error:
        raise OrinportError(f"{str(path)!r} cannot be written: {error.strerror}.") from error
