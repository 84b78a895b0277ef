"""A kind of layer that the documents of this TensorRT version do not name.

## What it checks
Whether any row of the catalogue speaks of the kind for this version and platform: Resize is documented from
TensorRT 8.2 on, parametric ReLU, Slice and SoftMax from 8.4, Shuffle from 8.5; FullyConnected ends with 9.3.

## Why it matters
What a later document says about a kind does not hold for earlier versions. The verdict is `unknown`.

## Example
A Reshape for xavier-agx with TensorRT 8.2.

## What to do
Use a newer release, or try the layer on the board: IBuilderConfig::canRunOnDLA answers for a single layer.

## Fix safety
No rewrite is applied.

## Source
The first version of each kind is that of its rows: NvInfer.h, developer guides 8.4 and 8.5, current
documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, holding, speaking

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_EVIDENCE: Mapping[LayerKind, tuple[str, ...]] = {
    LayerKind.CONVOLUTION: ("C01", "C04"),
    LayerKind.FULLY_CONNECTED: ("C14a",),
    LayerKind.DECONVOLUTION: ("D01", "D02b"),
    LayerKind.POOLING: ("P01",),
    LayerKind.ACTIVATION: ("A01a", "A01b"),
    LayerKind.SCALE: ("S01", "X06"),
    LayerKind.LRN: ("L01a",),
    LayerKind.CONCATENATION: ("N01",),
    LayerKind.RESIZE: ("Z01",),
    LayerKind.SLICE: ("V01a",),
    LayerKind.SOFTMAX: ("M01a", "M03", "M05"),
    LayerKind.SHUFFLE: ("F01",),
    LayerKind.PARAMETRIC_RELU: ("R01a",),
}
"""Rows that show, by holding for the target, that its documents know the kind."""


class UndocumentedVersion(LayerRule):
    code = "DLA003"
    title = "No document covers this kind of layer in this version"
    rows = (
        "C01",
        "C04",
        "C14a",
        "D01",
        "D02b",
        "P01",
        "A01a",
        "A01b",
        "S01",
        "X06",
        "L01a",
        "N01",
        "Z01",
        "V01a",
        "M01a",
        "M03",
        "M05",
        "F01",
        "R01a",
        "OP41",
    )
    kinds = (
        LayerKind.CONVOLUTION,
        LayerKind.FULLY_CONNECTED,
        LayerKind.DECONVOLUTION,
        LayerKind.POOLING,
        LayerKind.ACTIVATION,
        LayerKind.SCALE,
        LayerKind.LRN,
        LayerKind.CONCATENATION,
        LayerKind.RESIZE,
        LayerKind.SLICE,
        LayerKind.SOFTMAX,
        LayerKind.SHUFFLE,
        LayerKind.PARAMETRIC_RELU,
    )

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        if speaking(context, _EVIDENCE[layer.kind]) is not None:
            return
        version = context.target.stack.tensorrt
        yield finding(
            self,
            layer,
            holding(context, ("OP41",)) if layer.kind is LayerKind.SHUFFLE else (),
            f"No document says whether the DLA takes a {layer.kind.value} layer in TensorRT {version} on"
            f" {context.target.platform.value.capitalize()}.",
            value=str(version),
            limit=None,
            advice="Try it on the board: IBuilderConfig::canRunOnDLA answers for a single layer.",
            verdict=Verdict.UNKNOWN,
        )


RULE = UndocumentedVersion()
