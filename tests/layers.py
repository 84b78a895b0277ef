"""Layers made by hand, and the rules run over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orinport.model.layer import DType, Layer, LayerKind, Tensor
from orinport.rules.engine import RuleReport, check_layers
from orinport.rules.finding import Finding, Verdict
from orinport.targets.load import load_target
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from collections.abc import Sequence

SHAPE = (1, 64, 56, 56)

CONVOLUTION: dict[str, Any] = {
    "kernel": (3, 3),
    "stride": (1, 1),
    "dilation": (1, 1),
    "pre_padding": (1, 1),
    "post_padding": (1, 1),
    "groups": 1,
    "output_maps": 64,
    "has_bias": True,
    "constant_kernel": True,
    "weight_values": 36864,
}
RELU: dict[str, Any] = {"type": "RELU", "alpha": 0.0, "beta": 0.0}


def tensor(
    name: str,
    shape: tuple[int, ...] | None = SHAPE,
    dtype: DType = DType.FP32,
    *,
    constant: bool = False,
) -> Tensor:
    """A tensor of 64 channels of 56x56 in FP32, unless said otherwise."""
    return Tensor(name, shape, dtype, constant)


def layer(
    kind: LayerKind,
    inputs: Sequence[Tensor | str] = ("x",),
    outputs: Sequence[Tensor | str] = ("y",),
    *,
    index: int = 0,
    name: str = "",
    **attributes: Any,
) -> Layer:
    """One layer; names stand for tensors of the usual shape. The layer is named after its first output."""

    def tensors(given: Sequence[Tensor | str]) -> tuple[Tensor, ...]:
        return tuple(tensor(one) if isinstance(one, str) else one for one in given)

    made = tensors(outputs)
    name = name or (made[0].name if made else kind.value)
    return Layer(index, name, kind, tensors(inputs), made, (f"node_{name}",), attributes)


def convolution(source: Tensor | str = "x", result: Tensor | str = "y", **changes: Any) -> Layer:
    """A 3x3 convolution of 64 channels; attributes may be changed."""
    return layer(LayerKind.CONVOLUTION, (source,), (result,), **{**CONVOLUTION, **changes})


def relu(source: Tensor | str = "x", result: Tensor | str = "y") -> Layer:
    """A ReLU."""
    return layer(LayerKind.ACTIVATION, (source,), (result,), **RELU)


def chain(*layers: Layer) -> tuple[Layer, ...]:
    """The layers, numbered."""
    return tuple(
        Layer(index, one.name, one.kind, one.inputs, one.outputs, one.nodes, one.attributes)
        for index, one in enumerate(layers)
    )


def run(
    layers: Sequence[Layer] | Layer,
    *,
    target: str = "orin-agx-64gb/jp6.0",
    precision: str = "fp16",
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    **options: Any,
) -> RuleReport:
    """All rules over `layers`; inputs and outputs of the network are what nobody makes and what nobody reads."""
    numbered = chain(*layers) if not isinstance(layers, Layer) else (layers,)
    read = {one.name: one for each in numbered for one in each.inputs}
    made = {one.name: one for each in numbered for one in each.outputs}
    ins = [name for name in read if name not in made and not read[name].constant] if inputs is None else inputs
    outs = [name for name in made if name not in read] if outputs is None else outputs
    return check_layers(
        numbered,
        inputs=[read.get(name) or tensor(name) for name in ins],
        outputs=[made.get(name) or tensor(name) for name in outs],
        target=load_target(target),
        precision=Precision(precision),
        **options,
    )


def found(report: RuleReport, code: str) -> tuple[Finding, ...]:
    """The findings of one code."""
    return tuple(finding for finding in report.findings if finding.code == code)


def verdicts(report: RuleReport) -> list[Verdict]:
    """Verdicts in the order of the layers."""
    return [report.verdicts[index] for index in sorted(report.verdicts)]
