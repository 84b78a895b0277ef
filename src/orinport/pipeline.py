"""`prepare_model`: the way through the rooms, from a loaded network to the folder for the board."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orinport.checking import check_model, dla_clock, dla_judge
from orinport.device.built import outdated_builds
from orinport.device.bundle import Workspace, build_script, parts_script, require_free, write_bundle
from orinport.device.trtexec import BuildOptions
from orinport.errors import OrinportError
from orinport.model.layer import LayerKind
from orinport.model.save import save
from orinport.parts import PARTS, Part, cut_in_parts, write_parts
from orinport.placing import on_one_core, placed_anew
from orinport.precision.half import to_half
from orinport.precision.qdq import has_qdq, strip_qdq
from orinport.predict.network import predict_network
from orinport.quantization import Int8Options, quantise, without_qdq
from orinport.results import PrepareReport, TailReport
from orinport.rewrites.driver import rewrite_model, stated_error
from orinport.rewrites.edges import move_edges
from orinport.rewrites.ends import TailCut, chain, fit_tail
from orinport.rewrites.ends import cut_tail as cut_at_tail
from orinport.rewrites.proof import compare_models
from orinport.rewrites.rewrite import Refusal, Rewriting, Safety
from orinport.targets.target import Precision
from orinport.words import count, some

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from orinport.model.model import Model
    from orinport.placement.placement import Placement
    from orinport.predict.prediction import Prediction
    from orinport.results import CheckReport
    from orinport.rewrites.edges import EdgeMapping
    from orinport.rewrites.log import RewriteLog, VerifyReport
    from orinport.targets.target import Target

__all__ = ["prepare_model", "prepared_again", "rewrite_for"]

FILES = ("build.sh", "model.onnx", "report.html", "report.json", "report.txt")


def prepare_model(
    model: Model,
    target: Target,
    precision: Precision,
    *,
    folder: Path,
    standalone: bool = False,
    force: bool = False,
    keep_io: bool = False,
    cut_tail: bool = False,
    dla_core: int = 0,
    consent: Collection[Safety] | None = None,
    optimize: bool = False,
    keep: Mapping[str, str] | None = None,
    cores: int = 1,
    int8: Int8Options | None = None,
    progress: Callable[[str], None] | None = None,
) -> PrepareReport:
    """Rewrite, prove, place and write; see `orinport.prepare`."""
    wanted = _int8_options(precision, int8)
    most = int(target.hardware.figures["dla_cores"].value)
    if not 0 <= dla_core < most:
        raise OrinportError(f"{target.hardware.title} has no DLA core {dla_core}.", f"Use 0 to {most - 1}.")
    require_free(folder, force=force)
    before = check_model(model, target, precision, standalone=standalone)
    if wanted is not None:
        model, wanted = without_qdq(model, wanted, target)
    how = Rewriting(standalone, keep_io, cut_tail, tuple(consent) if consent is not None else (Safety.EXACT,))
    rewritten, log, edges, cut = _rewrite(model, target, precision, how, progress)
    _say(progress, "comparing the whole network")
    proof, notes = _prove(model, _whole(model, rewritten, cut, edges), edges, log)
    if isinstance(cut, Refusal):
        notes = (*notes, f"no tail was cut: {cut.reason}")
    written = rewritten
    if target.stack.strongly_typed:
        written, lost = to_half(rewritten)
        notes = (*notes, *lost, "the tensors are FP16 now; the comparison above was made before that rounding")
    after = check_model(written, target, precision, standalone=standalone)
    after = _unproved(after, proof)
    wishes = keep or {}
    split = None
    if cores != 1:
        placed = placed_anew(after, written, optimize=optimize, wishes=wishes, standalone=standalone, cores=cores)
        split = placed.report.placement if placed.report.placement.split else None
        notes = (*notes, *placed.notes)
        wishes = on_one_core(wishes)
    moved: tuple[str, ...] = ()
    if optimize or wishes:
        placed = placed_anew(after, written, optimize=optimize, wishes=wishes, standalone=standalone)
        after, moved = placed.report, placed.moved
        notes = (*notes, *_moved_note(moved))
    options = BuildOptions(standalone=standalone, dla_core=dla_core, gpu_layers=moved)
    texts: dict[str, str] = {}
    plain = written
    if wanted is not None:
        quantised = quantise(model, rewritten, written, after, edges, wanted, progress=progress)
        after, written, texts = quantised.after, quantised.model, quantised.texts
        notes = (*notes, *quantised.notes)
        options = replace(options, cache=quantised.cache, layer_precisions=quantised.layer_precisions)
    notes = (*notes, *_constants_note(after))
    prediction, unpredicted = _predict(after)
    files = tuple(sorted((*FILES, *texts)))
    report = PrepareReport(
        before, after, log, edges, proof, (*notes, *unpredicted), folder, files, prediction, rewriting=how
    )
    tail = None
    if isinstance(cut, TailCut):
        tail = fit_tail(cut.tail, written, edges)
        report = replace(report, tail=_tail_report(cut, tail), files=tuple(sorted((*files, "tail.onnx"))))
    parts: tuple[Part, ...] = ()
    if split is not None:
        _say(progress, "cutting the network in parts")
        report, parts = _in_parts(report, plain, split, options, texts)
    return _write(report, written, tail, options, texts, parts, force=force)


def _rewrite(
    model: Model, target: Target, precision: Precision, how: Rewriting, progress: Callable[[str], None] | None = None
) -> tuple[Model, RewriteLog, tuple[EdgeMapping, ...], TailCut | Refusal | None]:
    """What the board runs, what was done, which edges moved, and the tail that was cut off or why none was."""
    rewritten, log, edges = rewrite_for(
        model,
        target,
        precision,
        standalone=how.standalone,
        keep_io=how.keep_io or how.cut_tail,
        consent=how.consent,
        progress=progress,
    )
    if not how.cut_tail:
        return rewritten, log, edges, None
    judge = dla_judge(target, precision, standalone=how.standalone)
    cut = cut_at_tail(rewritten, judge)
    rewritten = cut.head if isinstance(cut, TailCut) else rewritten
    if not how.keep_io:
        rewritten, edges = move_edges(rewritten, judge=judge)
    return rewritten, log, edges, cut


def prepared_again(
    original: Model,
    target: Target,
    precision: Precision,
    how: Rewriting,
    *,
    progress: Callable[[str], None] | None = None,
) -> Model:
    """The network that a bundle was written from, before its types became FP16 or INT8."""
    quantised = precision is Precision.INT8 and has_qdq(original)
    clean = strip_qdq(original, target)[0] if quantised else original
    return _rewrite(clean, target, precision, how, progress)[0]


def _in_parts(
    report: PrepareReport, written: Model, split: Placement, options: BuildOptions, texts: Mapping[str, str]
) -> tuple[PrepareReport, tuple[Part, ...]]:
    """The report with its parts, or with a note why there are none."""
    after = report.after
    prediction = predict_network(after.model, split, after.target, after.precision)
    parts = cut_in_parts(written, split, prediction, after.target, after.precision, options, texts)
    if isinstance(parts, Refusal):
        note = f"the network is not split over both DLA cores: {parts.reason}"
        return replace(report, notes=(*report.notes, note)), ()
    units = sorted({region.unit for region in split.regions})
    note = (
        f"parts/ holds the same network as {len(parts)} engines on {', '.join(units)}, which together are predicted to"
        f" take {prediction.total_us:.0f} us; build_parts.sh builds them"
    )
    return (
        replace(
            report,
            parts=tuple(part.report for part in parts),
            split=prediction,
            notes=(*report.notes, note),
            files=tuple(sorted((*report.files, "build_parts.sh", PARTS, "parts.json"))),
        ),
        parts,
    )


def _whole(model: Model, board: Model, cut: TailCut | Refusal | None, edges: tuple[EdgeMapping, ...]) -> Model:
    """The board's model with its tail behind it, if it has one."""
    if not isinstance(cut, TailCut):
        return board
    names = [value.name or "" for value in model.graph.outputs]
    return chain(board, fit_tail(cut.tail, board, edges), names)


def _tail_report(cut: TailCut, tail: Model) -> TailReport:
    return TailReport(tuple(tensor.name for tensor in tail.inputs), cut.outputs, cut.nodes, cut.share)


def _int8_options(precision: Precision, given: Int8Options | None) -> Int8Options | None:
    """The options of an INT8 bundle; None for FP16. Raises OrinportError if scales cannot come from anywhere."""
    if precision is not Precision.INT8:
        if given is not None and (given.data is not None or given.scales is not None):
            raise OrinportError("Data and scales are for INT8 only.", "Add --precision int8.")
        return None
    return given or Int8Options()


def _moved_note(moved: tuple[str, ...]) -> tuple[str, ...]:
    if not moved:
        return ()
    return (f"{count(len(moved), 'layer')} that the DLA takes will run on the GPU: {some(moved, 5)}",)


def _constants_note(after: CheckReport) -> tuple[str, ...]:
    """Constants that stay layers of their own may need GPU fallback while the builder folds them (row X03)."""
    remaining = sum(row.layer.kind is LayerKind.CONSTANT for row in after.layers)
    if not remaining or not after.placement.all_dla:
        return ()
    return (
        f"{count(remaining, 'constant')} may need GPU fallback while the builder folds constants away: if it refuses,"
        " run sh build.sh --allowGPUFallback and see that no layer stays on the GPU",
    )


def rewrite_for(
    model: Model,
    target: Target,
    precision: Precision,
    *,
    standalone: bool = False,
    keep_io: bool = False,
    consent: Collection[Safety] | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[Model, RewriteLog, tuple[EdgeMapping, ...]]:
    """The network as `prepare` rewrites it, what was done, and which edges moved."""
    judge = dla_judge(target, precision, standalone=standalone)
    rewritten, log = rewrite_model(
        model,
        target=target,
        precision=precision,
        judge=judge,
        clock=dla_clock(target, precision),
        consent=consent if consent is not None else (Safety.EXACT,),
        progress=progress,
    )
    if keep_io:
        return rewritten, log, ()
    moved, edges = move_edges(rewritten, judge=judge)
    return moved, log, edges


def _prove(
    model: Model, rewritten: Model, edges: tuple[EdgeMapping, ...], log: RewriteLog
) -> tuple[VerifyReport | None, tuple[str, ...]]:
    """The whole network before and after; None with a note where ONNX Runtime cannot run the original.

    Approximations may differ by what they state of themselves, added up.
    """
    stated = stated_error((done.rewrite, done.safety) for done in log.applied)
    try:
        proof = compare_models(model, rewritten, edges, allowance=stated, names=(model.name, "model.onnx"))
    except OrinportError as error:
        return None, (f"the whole network could not be compared: {error.message}",)
    cause = "approximations that were allowed" if stated else "rounding"
    return proof, tuple(
        f"output {row.output!r} is not proved: it counts or chooses, and {cause} before it can change that, as here"
        for row in proof.rows
        if row.undecided
    )


def _predict(after: CheckReport) -> tuple[Prediction | None, tuple[str, ...]]:
    """What the network will take; None with a note where no measurement covers the target."""
    try:
        return predict_network(after.model, after.placement, after.target, after.precision), ()
    except OrinportError as error:
        return None, (error.message,)


def _unproved(after: CheckReport, proof: VerifyReport | None) -> CheckReport:
    """`after` as it is if the network was proved; a network that differs is our defect and stops here."""
    if proof is not None and proof.refuted:
        worst = max((row for row in proof.rows if not row.equal and not row.undecided), key=lambda row: row.max_rel)
        raise RuntimeError(
            f"the rewritten network differs from the original at output {worst.output!r} by {worst.max_rel:.3g}"
            f" of its largest value (tolerance {worst.tolerance:.3g}), first at {proof.diverges_at!r}"
        )
    return after


def _write(
    report: PrepareReport,
    model: Model,
    tail: Model | None,
    options: BuildOptions,
    more: Mapping[str, str],
    parts: tuple[Part, ...],
    *,
    force: bool,
) -> PrepareReport:
    from orinport.report.bundle import parts_document, prepare_document
    from orinport.report.html import report_html
    from orinport.report.json import dumps, plain
    from orinport.report.text import prepare_text

    after = report.after
    script = build_script(after.target, after.precision, after.placement, options)
    report = replace(report, build=script.text)
    with Workspace(report.folder) as scratch:
        written = save(model, scratch / "model.onnx") + (() if tail is None else save(tail, scratch / "tail.onnx"))
        report = replace(report, files=tuple(sorted({*report.files, *(path.name for path in written)})))
        require_free(report.folder, force=force)
        document = plain(prepare_document(report))
        texts = {
            "build.sh": script.text,
            "report.html": report_html(document),
            "report.json": dumps(document),
            "report.txt": prepare_text(report),
            **more,
        }
        if parts:
            write_parts(parts, scratch / PARTS)
            texts |= {
                "build_parts.sh": parts_script(part.report.folder for part in parts),
                "parts.json": dumps(parts_document(report)),
            }
        write_bundle(report.folder, scratch, texts)
    return replace(report, notes=(*report.notes, *_outdated_note(report.folder)))


def _outdated_note(folder: Path) -> tuple[str, ...]:
    """That engines of an earlier bundle lie in the folder: the report that was written is the same without them."""
    old = [str(path.relative_to(folder)) for path in outdated_builds(folder)]
    return (f"built before the bundle changed, to be built again: {some(old)}",) if old else ()


def _say(progress: Callable[[str], None] | None, message: str) -> None:
    if progress is not None:
        progress(message)
