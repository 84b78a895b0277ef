"""Where layers run when the user asks for more than verdicts: wishes, and the fastest placement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from orinport.errors import OrinportError
from orinport.placement.cores import CORES, choose_cores, schedule
from orinport.placement.graph import Costs
from orinport.placement.place import all_on_gpu, place
from orinport.placement.search import choose_devices, placement_us
from orinport.predict.batch import with_batch
from orinport.predict.constants import constants_of
from orinport.predict.network import predict_network
from orinport.rules.finding import Verdict
from orinport.targets.catalogue import rows_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orinport.model.layer import Layer
    from orinport.model.model import Model
    from orinport.placement.cores import Assignment
    from orinport.placement.placement import Placement
    from orinport.results import CheckReport

__all__ = ["Placed", "on_one_core", "parse_wishes", "placed_anew"]

_UNITS = ("dla", *CORES, "gpu")
_LEAST_GAIN = 0.05
"""Part of an inference's time that a split has to save: several engines cost the host time that no source states."""
_NO_GAIN = (
    f"nothing makes one inference more than {100 * _LEAST_GAIN:.0f} % shorter; an instance on each core gives more"
    " images a second"
)


@dataclass(frozen=True, slots=True)
class Placed:
    """A report with another placement; `moved` names layers that leave the DLA though it takes them."""

    report: CheckReport
    moved: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def parse_wishes(words: tuple[str, ...]) -> dict[str, str]:
    """`{"name": "gpu"}` of `("name=gpu",)`. Raises OrinportError for another spelling or device."""
    wishes = {}
    for word in words:
        name, separator, device = word.rpartition("=")
        if not separator or not name or device not in _UNITS:
            raise OrinportError(
                f"{word!r} is no wish.",
                "Write the layer's or node's name, = and dla, gpu, or with --cores 2 dla0 or dla1.",
            )
        wishes[name] = device
    return wishes


def on_one_core(wishes: Mapping[str, str]) -> dict[str, str]:
    """The wishes as far as they speak of DLA and GPU."""
    return {name: "dla" if device in CORES else device for name, device in wishes.items()}


def placed_anew(
    report: CheckReport,
    model: Model,
    *,
    optimize: bool,
    wishes: Mapping[str, str],
    standalone: bool = False,
    cores: int = 1,
    batch: int | None = None,
) -> Placed:
    """The report with another placement, chosen for inferences of `batch` images, by default the network's own batch.

    `wishes` maps names of layers or ONNX nodes to devices; without `optimize` only they bring layers to the GPU that
    the DLA takes. With 2 `cores` the network is split over both where that makes one inference shorter. A wish for the
    DLA cannot be granted to a layer that it does not take. Raises OrinportError for names that do not exist, wishes
    that cannot be granted, and targets that cannot be predicted.
    """
    _require_cores(report, cores, wishes)
    layers = [row.layer for row in report.layers if not row.layer.folds and row.verdict is not Verdict.BLOCKED]
    may_dla = {row.layer.index for row in report.layers if row.verdict is Verdict.DLA and not row.layer.folds}
    fixed = _fixed(layers, may_dla, wishes)
    one = {index: "dla" if on in CORES else on for index, on in fixed.items()}
    device = {layer.index: "dla" if layer.index in may_dla else "gpu" for layer in layers} | one
    costs = _costs(report, batch, apart=cores > 1) if optimize or cores > 1 else None
    if costs is not None and optimize:
        device = choose_devices(layers, may_dla, costs, one)
    notes: tuple[str, ...] = ()
    placement = _placed(report, model, device, standalone=standalone)
    if costs is not None and cores > 1:
        found = choose_cores(layers, may_dla, costs, fixed, may_gpu=optimize)
        reason = _why_not_split(layers, found, device, costs)
        if not reason:
            chosen = {index: "gpu" if on == "gpu" else "dla" for index, on in found.device.items()}
            split = _placed(report, model, chosen, standalone=standalone, assignment=found)
            if _us(report, split, batch) <= (1 - _LEAST_GAIN) * _us(report, placement, batch):
                device, placement = chosen, split
            else:
                reason = _NO_GAIN
        if reason:
            notes = (f"the network is not split over both DLA cores: {reason}",)
    moved = tuple(layer.name for layer in layers if layer.index in may_dla and device[layer.index] == "gpu")
    if standalone and moved:
        raise OrinportError("A standalone loadable runs on the DLA alone.", "Leave out --optimize and --keep.")
    return Placed(replace(report, placement=placement), moved, notes)


def _placed(
    report: CheckReport,
    model: Model,
    device: Mapping[int, str],
    *,
    standalone: bool,
    assignment: Assignment | None = None,
) -> Placement:
    """The placement with these layers on the GPU, besides those that the DLA does not take."""
    verdicts = {row.layer.index: row.verdict for row in report.layers}
    verdicts |= {index: Verdict.GPU for index, on in device.items() if on == "gpu"}
    return place(
        [row.layer for row in report.layers],
        verdicts,
        inputs=model.inputs,
        outputs=model.outputs,
        target=report.target,
        precision=report.precision,
        standalone=standalone,
        assignment=assignment,
    )


def _us(report: CheckReport, placement: Placement, batch: int | None) -> float:
    """What one inference is predicted to take."""
    placed = placement if batch is None else with_batch(placement, batch)
    return predict_network(report.model, placed, report.target, report.precision).total_us


def _require_cores(report: CheckReport, cores: int, wishes: Mapping[str, str]) -> None:
    most = int(report.target.hardware.figures["dla_cores"].value)
    if not 1 <= cores <= min(most, len(CORES)):
        raise OrinportError(f"{report.target.hardware.title} has {most} DLA cores, not {cores}.")
    if cores == 1 and (wished := next((on for on in wishes.values() if on in CORES), None)):
        raise OrinportError(f"Without --cores 2 no layer can be given to {wished}.", "Write dla, or add --cores 2.")


def _why_not_split(layers: Sequence[Layer], found: Assignment, device: Mapping[int, str], costs: Costs) -> str:
    """Why the network stays one engine; empty if it is split."""
    split = schedule(layers, found, costs)
    if split is None:
        return "each core would hold too many loadables"
    single = placement_us(layers, device, costs)
    if split.us > (1 - _LEAST_GAIN) * single or len(split.regions) < 2:
        return _NO_GAIN
    makers = {tensor.name: layer for layer in layers for tensor in layer.outputs}
    home = {layer.index: number for number, region in enumerate(split.regions) for layer in region}
    for layer in layers:
        for tensor in layer.runtime_inputs:
            source = makers.get(tensor.name)
            if source is None or home[source.index] == home[layer.index]:
                continue
            if shared := set(source.nodes) & set(layer.nodes):
                return f"node {min(shared)!r} would have to be cut in two"
    return ""


def _fixed(layers: list[Layer], may_dla: set[int], wishes: Mapping[str, str]) -> dict[int, str]:
    fixed: dict[int, str] = {}
    for name, device in wishes.items():
        meant = [layer for layer in layers if name == layer.name or name in layer.nodes]
        if not meant:
            raise OrinportError(f"There is no layer or node {name!r} in the network as it is written.")
        if device != "gpu" and (refused := [layer for layer in meant if layer.index not in may_dla]):
            raise OrinportError(f"The DLA does not take {refused[0].name!r}.", "orinport check says why.")
        fixed |= {layer.index: device for layer in meant}
    return fixed


def _costs(report: CheckReport, batch: int | None, *, apart: bool) -> Costs:
    """Times of every layer on either device, by prediction; `apart`: each region may be an engine of its own.

    A tensor that goes from one core to the other is written to the DRAM and read, where it could have stayed in SRAM.
    From TensorRT 11 on it has its own type then, which is FP16 in a network in INT8 too.
    """
    target, precision = report.target, report.precision
    placement = report.placement if batch is None else with_batch(report.placement, batch)
    layers = [layer for region in placement.regions for layer in region.layers]
    dla = predict_network(report.model, placement, target, precision)
    gpu = predict_network(report.model, all_on_gpu(placement), target, precision)
    on_dla = {each.layer.index: each.us for each in dla.layers if each.device == "dla"}
    on_gpu = {each.layer.index: each.us for each in gpu.layers}
    constants = constants_of("orin-dla", target)
    rate = constants[f"reformat_gbps_{precision.value}"] * 1e3
    rate *= dla.clocks["emc_mhz"] / constants["emc_reference_mhz"]
    inside = 1 if precision.value == "int8" else 2
    outside = 2 if apart and target.stack.strongly_typed else inside
    tensors = {t.name: t for layer in layers for t in (*layer.runtime_inputs, *layer.outputs)}
    counts = {name: prod(t.shape or (0,)) for name, t in tensors.items()}
    sram = 1024 * report.target.hardware.figures["dla_sram_kib"].value
    return Costs(
        dla={layer.index: on_dla.get(layer.index, 0.0) for layer in layers},
        gpu={layer.index: on_gpu.get(layer.index, 0.0) for layer in layers},
        launch=constants["launch_us"],
        transfer={name: 2 * outside * size / rate for name, size in counts.items()},
        loadables=_loadables(report),
        handover={
            name: 2 * (outside * size - (0 if inside * size <= sram else inside * size)) / (dla.roof[1] * 1e3)
            for name, size in counts.items()
        },
    )


def _loadables(report: CheckReport) -> int:
    """DLA regions that a core holds at once: rows G09a to G09c."""
    rows = rows_for(report.target, report.precision)
    return min(int(str(rows[name].values["max"])) for name in ("G09a", "G09b", "G09c") if name in rows)
