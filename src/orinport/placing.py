"""Where layers run when the user asks for more than verdicts: wishes, and the fastest placement."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from orinport.errors import OrinportError
from orinport.placement.place import all_on_gpu, place
from orinport.placement.search import Costs, choose_devices
from orinport.predict.constants import constants_of
from orinport.predict.network import predict_network
from orinport.rules.finding import Verdict
from orinport.targets.catalogue import rows_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orinport.model.layer import Layer
    from orinport.model.model import Model
    from orinport.results import CheckReport

__all__ = ["parse_wishes", "placed_anew"]


def parse_wishes(words: tuple[str, ...]) -> dict[str, str]:
    """`{"name": "gpu"}` of `("name=gpu",)`. Raises OrinportError for another spelling or device."""
    wishes = {}
    for word in words:
        name, separator, device = word.rpartition("=")
        if not separator or not name or device not in ("dla", "gpu"):
            raise OrinportError(f"{word!r} is no wish.", "Write the layer's or node's name, = and dla or gpu.")
        wishes[name] = device
    return wishes


def placed_anew(
    report: CheckReport, model: Model, *, optimize: bool, wishes: Mapping[str, str], standalone: bool = False
) -> tuple[CheckReport, tuple[str, ...]]:
    """The report with another placement, and the names of layers that leave the DLA though it takes them.

    `wishes` maps names of layers or ONNX nodes to devices; without `optimize` only they are followed. A wish
    for the DLA cannot be granted to a layer that it does not take. Raises OrinportError for names that do not
    exist, wishes that cannot be granted, and targets that cannot be predicted.
    """
    layers = [row.layer for row in report.layers if not row.layer.folds and row.verdict is not Verdict.BLOCKED]
    may_dla = {row.layer.index for row in report.layers if row.verdict is Verdict.DLA and not row.layer.folds}
    fixed = _fixed(layers, may_dla, wishes)
    device = {layer.index: "dla" if layer.index in may_dla else "gpu" for layer in layers}
    device |= fixed
    if optimize:
        device = choose_devices(layers, may_dla, _costs(report, layers), fixed)
    moved = tuple(layer.name for layer in layers if layer.index in may_dla and device[layer.index] == "gpu")
    if standalone and moved:
        raise OrinportError("A standalone loadable runs on the DLA alone.", "Leave out --optimize and --keep.")
    verdicts = {row.layer.index: row.verdict for row in report.layers}
    verdicts |= {layer.index: Verdict.GPU for layer in layers if device[layer.index] == "gpu"}
    placement = place(
        [row.layer for row in report.layers],
        verdicts,
        inputs=model.inputs,
        outputs=model.outputs,
        target=report.target,
        precision=report.precision,
        standalone=standalone,
    )
    return replace(report, placement=placement), moved


def _fixed(layers: list[Layer], may_dla: set[int], wishes: Mapping[str, str]) -> dict[int, str]:
    fixed: dict[int, str] = {}
    for name, device in wishes.items():
        meant = [layer for layer in layers if name == layer.name or name in layer.nodes]
        if not meant:
            raise OrinportError(f"There is no layer or node {name!r} in the network as it is written.")
        if device == "dla" and (refused := [layer for layer in meant if layer.index not in may_dla]):
            raise OrinportError(f"The DLA does not take {refused[0].name!r}.", "orinport check says why.")
        fixed |= {layer.index: device for layer in meant}
    return fixed


def _costs(report: CheckReport, layers: list[Layer]) -> Costs:
    """Times of every layer on either device, by prediction."""
    target, precision = report.target, report.precision
    dla = predict_network(report.model, report.placement, target, precision)
    gpu = predict_network(report.model, all_on_gpu(report.placement), target, precision)
    on_dla = {each.layer.index: each.us for each in dla.layers if each.device == "dla"}
    on_gpu = {each.layer.index: each.us for each in gpu.layers}
    constants = constants_of("orin-dla", target)
    rate = constants[f"reformat_gbps_{precision.value}"] * 1e3
    element = 1 if precision.value == "int8" else 2
    tensors = {t.name: t for layer in layers for t in (*layer.runtime_inputs, *layer.outputs)}
    return Costs(
        dla={layer.index: on_dla.get(layer.index, 0.0) for layer in layers},
        gpu={layer.index: on_gpu.get(layer.index, 0.0) for layer in layers},
        launch=constants["launch_us"],
        transfer={name: 2 * prod(t.shape or (0,)) * element / rate for name, t in tensors.items()},
        loadables=_loadables(report),
    )


def _loadables(report: CheckReport) -> int:
    """DLA regions that a core holds at once: rows G09a to G09c."""
    rows = rows_for(report.target, report.precision)
    return min(int(str(rows[name].values["max"])) for name in ("G09a", "G09b", "G09c") if name in rows)
