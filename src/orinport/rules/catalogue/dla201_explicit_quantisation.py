"""Q/DQ layers: explicit quantisation.

## What it checks
QuantizeLinear and DequantizeLinear in the network. Up to TensorRT 10.10 the DLA does not take them. From 10.11
documents contradict each other, and in 11.4 it is not said which patterns are taken: `unknown`.

## Why it matters
A network with Q/DQ that is quick on the GPU falls apart on the DLA: every pair stands between two layers.

## Example
A network exported by a quantisation toolkit, with Q and DQ around every convolution.

## What to do
For TensorRT 10 and older turn the pairs into a calibration cache: `orinport quantize` and `prepare` do so. From
11.4.1 on Q/DQ is the only way.

## Fix safety
Taking the pairs out and giving their scales as a calibration cache keeps the scales.

## Source
Rows G14, I04a, I04b, I09, I13 and conflict CF03: TensorRT 8.4 and 8.5 Developer Guides ch. 12;
NVIDIA/Model-Optimizer issue 1661; onnxruntime-ep-tensorrt; TensorRT documentation 11.4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, holding
from orinport.targets.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context
    from orinport.targets.target import RuleRow


class ExplicitQuantisation(LayerRule):
    code = "DLA201"
    title = "Explicit quantisation (Q/DQ)"
    rows = ("G14", "I04a", "I04b", "I09", "I13", "CF03", "OP04")
    kinds = (LayerKind.QUANTIZE, LayerKind.DEQUANTIZE, LayerKind.DYNAMIC_QUANTIZE)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        verdict, rows, message = explicit_quantisation(context)
        advice = (
            "Ask the board which Q/DQ patterns it takes."
            if context.target.stack.strongly_typed
            else "Turn Q/DQ into a calibration cache, as `orinport prepare` does."
        )
        yield finding(
            self,
            layer,
            rows,
            f"{layer.kind.value} is explicit quantisation; {message}.",
            value=layer.kind.value,
            limit=None,
            advice=advice,
            verdict=verdict,
        )


def explicit_quantisation(context: Context) -> tuple[Verdict, tuple[RuleRow, ...], str]:
    """What becomes of explicit quantisation on the target: verdict, the rows that speak, and the reason in words."""
    conflict = context.rows["CF03"]
    tensorrt = context.target.stack.tensorrt
    if tensorrt < Version.parse(conflict.values["unknown_from"]):
        rows = holding(context, ("G14", "I04a")) or (conflict,)
        return Verdict.GPU, rows, f"the DLA does not take it with TensorRT {tensorrt}"
    if context.target.stack.strongly_typed:
        rows = holding(context, ("I13", "CF03"))
        return Verdict.UNKNOWN, rows, f"which patterns the DLA takes with TensorRT {tensorrt} is not documented"
    rows = holding(context, ("CF03", "OP04"))
    return (
        Verdict.UNKNOWN,
        rows,
        "documents differ: guides and tools say that the DLA does not take it, parser options from 10.11 on say that"
        " it takes some",
    )


RULE = ExplicitQuantisation()
