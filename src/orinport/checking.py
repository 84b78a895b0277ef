"""Checking a network that is loaded already, and the judgements on pieces of it that rewriting asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx_ir as ir

    from orinport.model.layer import Tensor
    from orinport.model.model import Model
    from orinport.placement.placement import Placement
    from orinport.results import CheckReport
    from orinport.targets.target import Precision, Target

__all__ = ["as_precision", "as_target", "check_model", "dla_clock", "dla_judge", "require_batch"]


def check_model(
    model: Model,
    target: Target,
    precision: Precision,
    *,
    standalone: bool = False,
    gpu_fallback: bool = True,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> CheckReport:
    """`check` of a network that is loaded already."""
    from orinport.model.lower import lower
    from orinport.placement.place import place
    from orinport.precision.constants import constant_findings
    from orinport.results import CheckReport, LayerVerdict
    from orinport.rules.engine import check_layers, selected
    from orinport.rules.finding import Verdict
    from orinport.targets.target import Precision

    layers = lower(model, tensorrt=target.stack.tensorrt)
    rules = check_layers(
        layers,
        inputs=model.inputs,
        outputs=model.outputs,
        target=target,
        precision=precision,
        standalone=standalone,
        gpu_fallback=gpu_fallback,
        select=select,
        ignore=ignore,
    )
    placement = place(
        layers,
        rules.verdicts,
        inputs=model.inputs,
        outputs=model.outputs,
        target=target,
        precision=precision,
        standalone=standalone,
    )
    on_dla = [layer for layer in layers if not layer.folds and rules.verdicts[layer.index] is Verdict.DLA]
    constants = [
        finding
        for finding in constant_findings(model, on_dla, half=precision is Precision.FP16)
        if selected(finding.code, select, ignore)
    ]
    codes = {finding.layer: (finding.code,) for finding in constants}
    rows = tuple(
        LayerVerdict(
            layer, rules.verdicts[layer.index], (*rules.codes.get(layer.index, ()), *codes.get(layer.name, ()))
        )
        for layer in layers
    )
    return CheckReport(model.name, target, precision, rows, (*rules.findings, *constants), placement)


def require_batch(placement: Placement, batch: int, target: Target, precision: Precision) -> None:
    """Raise OrinportError if layers that are placed on the DLA have a larger batch than it takes."""
    from orinport.rules.engine import check_layers

    layers = tuple(layer for region in placement.regions if region.device == "dla" for layer in region.layers)
    found = check_layers(layers, inputs=(), outputs=(), target=target, precision=precision, standalone=False).findings
    reason = next((finding.message for finding in found if finding.code == "DLA100"), None)
    if reason is not None:
        raise OrinportError(f"The DLA does not take batch {batch}: {reason}", "Choose a smaller one.")


def as_target(target: str | Target, power_mode: str | None = None) -> Target:
    """The target of that name, in that power mode; a Target is given back as it is."""
    from orinport.targets.load import load_target

    if not isinstance(target, str):
        if power_mode is None:
            return target
        return replace(load_target(target.name, power_mode=power_mode), profile=target.profile)
    return load_target(target, power_mode=power_mode)


def as_precision(precision: str | Precision) -> Precision:
    """The precision of that name. Raises OrinportError for any but fp16 and int8."""
    from orinport.targets.target import Precision

    try:
        return Precision(precision)
    except ValueError:
        raise OrinportError(f"{precision!r} is not a precision of the DLA.", "Use fp16 or int8.") from None


def dla_judge(target: Target, precision: Precision, *, standalone: bool) -> Callable[[ir.Model], frozenset[str]]:
    """Says which nodes of a model the DLA does not take: what the rewriting driver asks.

    A strongly typed stack gets the network in FP16 in the end, so FP32 tensors are judged as FP16 there.
    """
    from dataclasses import replace

    from orinport.model.lower import lower
    from orinport.model.model import Model
    from orinport.rules.engine import check_layers
    from orinport.rules.finding import Verdict

    def off_the_dla(graph: ir.Model) -> frozenset[str]:
        model = Model(graph, "piece")
        layers = lower(model, tensorrt=target.stack.tensorrt)
        inputs, outputs = model.inputs, model.outputs
        if target.stack.strongly_typed:
            layers = tuple(
                replace(layer, inputs=_halved(layer.inputs), outputs=_halved(layer.outputs)) for layer in layers
            )
            inputs, outputs = _halved(inputs), _halved(outputs)
        verdicts = check_layers(
            layers,
            inputs=inputs,
            outputs=outputs,
            target=target,
            precision=precision,
            standalone=standalone,
        ).verdicts
        return frozenset(node for layer in layers if verdicts[layer.index] is not Verdict.DLA for node in layer.nodes)

    return off_the_dla


def dla_clock(target: Target, precision: Precision) -> Callable[[ir.Model], float] | None:
    """Predicts what a small model takes on the DLA, in us; None for boards that no public measurement covers."""
    from orinport.model.model import Model
    from orinport.predict.network import predict_network
    from orinport.targets.target import Platform

    if target.platform is not Platform.ORIN:
        return None

    def microseconds(graph: ir.Model) -> float:
        placement = check_model(Model(graph, "piece"), target, precision).placement
        return predict_network("piece", placement, target, precision).total_us

    return microseconds


def _halved(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    from dataclasses import replace

    from orinport.model.layer import DType

    return tuple(replace(each, dtype=DType.FP16) if each.dtype is DType.FP32 else each for each in tensors)
