"""A parametric ReLU whose slope has another rank than its input.

## What it checks
The slope has the rank of the input. The rule stands in the guide of TensorRT 8.5; whether later versions keep
it is not documented, so there the verdict is `unknown`.

## Why it matters
PyTorch exports the slope as (C, 1, 1). TensorRT takes it, the DLA of 8.5 wants (1, C, 1, 1).

## Example
A PRelu on (1, 64, 56, 56) with a slope of shape (64, 1, 1).

## What to do
Reshape the initializer to (1, C, 1, 1).

## Fix safety
No rewrite is applied.

## Source
Row R01b: developer guide 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, unshaped
from orinport.targets.target import Confidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ParametricReluRank(LayerRule):
    code = "DLA156"
    title = "Slope of a parametric ReLU has another rank than the input"
    rows = ("R01b", "OP17")
    kinds = (LayerKind.PARAMETRIC_RELU,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("R01b")
        if row is None or len(layer.inputs) < 2:
            return
        data, slope = layer.inputs[:2]
        if unshaped((data, slope)):  # DLA103 speaks
            return
        if data.rank == slope.rank:
            return
        ended = row.confidence is Confidence.INFERRED
        yield finding(
            self,
            layer,
            row,
            f"The slope has rank {slope.rank} and the input rank {data.rank}; TensorRT 8.5 asks for equal ranks"
            + (", and no later document says whether that holds on." if ended else "."),
            value=slope.rank,
            limit=data.rank,
            advice="Reshape the initializer of the slope to (1, C, 1, 1).",
            verdict=Verdict.UNKNOWN if ended else Verdict.GPU,
        )


RULE = ParametricReluRank()
