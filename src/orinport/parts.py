"""A network in parts, one engine each: what a bundle holds so that both DLA cores and the GPU work on one inference.

Every part is a bundle in itself, in a folder of its own under `parts/`, so that `build`, `run` and `profile` take it
like any other; `parts.json` says in which order they run, on what, and which tensors lead from one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orinport.checking import check_model
from orinport.device.bundle import build_script
from orinport.model.save import save
from orinport.placement.place import all_on_gpu, place
from orinport.precision.cache import is_safe_layer_name, layer_precisions, parse_json
from orinport.precision.explicit import insert_qdq
from orinport.predict.network import predict_network
from orinport.quantization import with_scaled_edges
from orinport.results import PartReport, PrepareReport
from orinport.rewrites.log import RewriteLog
from orinport.rewrites.parts import join_models, split_model
from orinport.rewrites.proof import compare_models
from orinport.rewrites.rewrite import Refusal
from orinport.rules.finding import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orinport.device.trtexec import BuildOptions
    from orinport.model.model import Model
    from orinport.placement.placement import IOFormat, Placement, Region
    from orinport.precision.scales import Scales
    from orinport.predict.prediction import Prediction
    from orinport.results import CheckReport
    from orinport.targets.target import Precision, Target

__all__ = ["PARTS", "Part", "cut_in_parts", "write_parts"]

PARTS = "parts"
"""The folder in a bundle that holds its parts."""


@dataclass(frozen=True, slots=True)
class Part:
    """One engine: a network of its own, where it runs, and how it is built."""

    report: PartReport
    model: Model
    check: CheckReport
    script: str
    texts: Mapping[str, str]


def cut_in_parts(
    model: Model,
    placement: Placement,
    prediction: Prediction,
    target: Target,
    precision: Precision,
    options: BuildOptions,
    texts: Mapping[str, str],
) -> tuple[Part, ...] | Refusal:
    """The parts of a split placement, proved to compute together what `model` does.

    `texts` are the files with scales that the whole bundle holds. Where these stand in the network, `model` is the one
    without, and each part gets those of its own tensors: what leads from one to the other has its pair in both, which
    changes nothing the second time. Refuses where the DLA would not take a part as a
    network of its own. Raises RuntimeError if the parts differ from the whole, which is our defect.
    """
    regions = placement.regions
    groups = [{node for layer in region.layers for node in layer.nodes} for region in regions]
    makers = {t.name: at for at, region in enumerate(regions) for layer in region.layers for t in layer.outputs}
    models = split_model(model, groups, makers)
    names = [value.name or "" for value in model.graph.outputs]
    made = {value.name for part in models for value in part.graph.outputs}
    if lost := [name for name in names if name not in made]:
        return Refusal(f"no part makes the output {lost[0]!r}")
    for region, part in zip(regions, models, strict=True):
        if not part.graph.outputs:
            return Refusal(f"nothing reads what the part of {region.layers[0].name!r} makes")
    scales = parse_json(texts["scales.json"].encode()) if "scales.json" in texts else None
    checks = []
    for region, part in zip(regions, models, strict=True):
        found = _checked(part, region, target, precision, options, scales)
        if isinstance(found, Refusal):
            return found
        checks.append(found)
    checks = _agreed(checks)
    _require_equal(model, models)
    if scales is not None and target.stack.strongly_typed:
        models = tuple(insert_qdq(part, scales)[0] for part in models)
    folders = [f"{number}-{region.unit}" for number, region in enumerate(regions)]
    parts = []
    for number, (part, check) in enumerate(zip(models, checks, strict=True)):
        report = _report(number, folders, models, placement, prediction)
        own = _texts(texts, check)
        chosen = replace(
            options,
            dla_core=regions[number].core if regions[number].device == "dla" else None,
            gpu_layers=(),
            layer_precisions="layer_precisions.txt" in own,
        )
        script = build_script(target, precision, check.placement, chosen)
        parts.append(Part(report, part, check, script.text, own))
    return tuple(parts)


def _checked(
    part: Model, region: Region, target: Target, precision: Precision, options: BuildOptions, scales: Scales | None
) -> CheckReport | Refusal:
    """The part as a network of its own."""
    on_dla = region.device == "dla"
    check = check_model(part, target, precision, standalone=options.standalone and on_dla)
    if not on_dla:
        return replace(check, placement=all_on_gpu(check.placement))
    refused = next((row for row in check.layers if row.verdict is not Verdict.DLA), None)
    if refused is not None:
        codes = ", ".join(refused.codes)
        return Refusal(f"as a network of its own the DLA does not take {refused.layer.name!r} ({codes})")
    check = _without_dead_layers(check, part, standalone=options.standalone)
    if check.placement.loadables != 1:
        return Refusal(f"the part of {region.layers[0].name!r} would be {check.placement.loadables} loadables")
    return check if scales is None else replace(check, placement=with_scaled_edges(check.placement, scales, target))


def _without_dead_layers(check: CheckReport, part: Model, *, standalone: bool) -> CheckReport:
    """Placed without what nothing reads, such as the outputs of a Split that another part has; the builder drops it."""
    wanted = {tensor.name for tensor in part.outputs}
    live = []
    for row in reversed(check.layers):
        if wanted & {tensor.name for tensor in row.layer.outputs}:
            live.append(row.layer)
            wanted |= {tensor.name for tensor in row.layer.inputs}
    if len(live) == len(check.layers):
        return check
    placement = place(
        live[::-1],
        {row.layer.index: row.verdict for row in check.layers},
        inputs=part.inputs,
        outputs=part.outputs,
        target=check.target,
        precision=check.precision,
        standalone=standalone,
    )
    return replace(check, placement=placement)


def _agreed(checks: list[CheckReport]) -> list[CheckReport]:
    """The GPU takes and gives in the DLA's format what it shares with the DLA, so that nothing is converted between."""
    native = {
        edge.name: edge
        for check in checks
        if check.placement.all_dla
        for edge in (*check.placement.inputs, *check.placement.outputs)
        if edge.format in ("chw16", "chw32")
    }

    def fit(edges: tuple[IOFormat, ...], own: set[str]) -> tuple[IOFormat, ...]:
        return tuple(native[edge.name] if edge.name in native and edge.name in own else edge for edge in edges)

    made = {edge.name for check in checks for edge in check.placement.outputs}
    return [
        check
        if check.placement.all_dla
        else replace(
            check,
            placement=replace(
                check.placement,
                inputs=fit(check.placement.inputs, made),
                outputs=fit(check.placement.outputs, set(native)),
            ),
        )
        for check in checks
    ]


def _require_equal(model: Model, models: tuple[Model, ...]) -> None:
    proof = compare_models(model, join_models(models, model), names=("model.onnx", "the parts"))
    if not proof.equal:
        raise RuntimeError(f"the parts differ from the network, first at {proof.diverges_at!r}")


def _report(
    number: int, folders: list[str], models: tuple[Model, ...], placement: Placement, prediction: Prediction
) -> PartReport:
    makers = {value.name or "": folders[at] for at, part in enumerate(models) for value in part.graph.outputs}
    region, timed = placement.regions[number], prediction.regions[number]
    return PartReport(
        folders[number],
        region.device,
        region.core,
        tuple((value.name or "", makers.get(value.name or "", "")) for value in models[number].graph.inputs),
        tuple(value.name or "" for value in models[number].graph.outputs),
        timed.start_us,
        timed.us,
    )


def _texts(texts: Mapping[str, str], check: CheckReport) -> dict[str, str]:
    """The files with scales, as far as they speak of the part."""
    own = {name: text for name, text in texts.items() if name != "layer_precisions.txt"}
    names = {row.layer.name for row in check.layers}
    chosen = [entry.rpartition(":")[0] for entry in texts.get("layer_precisions.txt", "").strip().split(",")]
    kept = [name for name in chosen if name in names and is_safe_layer_name(name)]
    return {**own, "layer_precisions.txt": layer_precisions(kept) + "\n"} if kept else own


def write_parts(parts: tuple[Part, ...], folder: Path) -> None:
    """Write every part as a bundle under `folder`."""
    from orinport.report.bundle import prepare_document
    from orinport.report.html import report_html
    from orinport.report.json import dumps, plain
    from orinport.report.text import prepare_text

    for number, part in enumerate(parts):
        home = folder / part.report.folder
        home.mkdir(parents=True)
        files = {path.name for path in save(part.model, home / "model.onnx")}
        names = ("build.sh", "report.html", "report.json", "report.txt", *part.texts)
        check = part.check
        report = PrepareReport(
            check,
            check,
            RewriteLog(),
            (),
            None,
            (f"part {number + 1} of {len(parts)}; parts.json in the bundle says how they go together",),
            home,
            tuple(sorted({*files, *names})),
            predict_network(check.model, check.placement, check.target, check.precision),
            part.script,
        )
        document = prepare_document(report)
        texts = {
            "build.sh": part.script,
            "report.html": report_html(plain(document)),
            "report.json": dumps(document),
            "report.txt": prepare_text(report),
            **part.texts,
        }
        for name, text in texts.items():
            (home / name).write_text(text, encoding="utf-8")
        (home / "build.sh").chmod(0o755)
