"""A Sigmoid or TanH in an INT8 network.

## What it checks
Sigmoid and TanH in INT8: they are taken, and computed in FP16. It is a note, not a refusal.

## Why it matters
Conversions stand around each of them. Networks with SiLU have one after every convolution.

## Example
A SiLU in YOLOv5, prepared in INT8.

## What to do
Nothing, or train with ReLU, which stays in INT8.

## Fix safety
No rewrite is applied.

## Source
Row A04: release notes of TensorRT 8.0.1, developer guides 8.4 and 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ActivationThroughFp16(LayerRule):
    code = "DLA154"
    title = "Activation is computed in FP16"
    rows = ("A04",)
    kinds = (LayerKind.ACTIVATION,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("A04")
        if row is None or layer["type"] not in row.values["allowed"]:
            return
        yield finding(
            self,
            layer,
            row,
            f"{layer['type']} is computed in FP16, also in an INT8 network.",
            value="int8",
            limit="fp16",
            advice="Nothing to do; a ReLU would stay in INT8.",
            verdict=None,
        )


RULE = ActivationThroughFp16()
