"""A parametric ReLU whose slope is computed at run time.

## What it checks
The slope is a build-time constant.

## Why it matters
A slope that another layer computes is refused.

## Example
A PRelu whose second input is a network input.

## What to do
Make the slope an initializer. A computed slope s gives max(x, 0) + s * min(x, 0) in element-wise layers.

## Fix safety
No rewrite is applied.

## Source
Row R01a: NvInfer.h from 8.4.1 on, developer guides 8.4 and 8.5, current documentation.
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


class ParametricReluSlope(LayerRule):
    code = "DLA155"
    title = "Slope of a parametric ReLU is not a build-time constant"
    rows = ("R01a",)
    kinds = (LayerKind.PARAMETRIC_RELU,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("R01a")
        if row is None or layer["constant_slope"]:
            return
        yield finding(
            self,
            layer,
            row,
            "The slope is computed at run time; the DLA takes a build-time constant only.",
            value="run time",
            limit="build-time constant",
            advice="Make the slope an initializer.",
        )


RULE = ParametricReluSlope()
