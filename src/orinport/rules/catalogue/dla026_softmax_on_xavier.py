"""A SoftMax on Xavier.

## What it checks
Every SoftMax layer, for targets with Xavier.

## Why it matters
The DLA of Xavier has no SoftMax.

## Example
The last layer of a classifier for xavier-agx/jp5.1.

## What to do
Return the logits and apply SoftMax after the network; the class of highest score is the same.

## Fix safety
No rewrite is applied.

## Source
Row M01a: NvInfer.h 8.4.1 to 9.3, developer guides 8.4 and 8.5.
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


class SoftmaxOnXavier(LayerRule):
    code = "DLA026"
    title = "SoftMax on Xavier"
    rows = ("M01a",)
    kinds = (LayerKind.SOFTMAX,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("M01a")
        if row is None:
            return
        yield finding(
            self,
            layer,
            row,
            "The DLA of Xavier takes no SoftMax.",
            value="xavier",
            limit="orin",
            advice="Return the logits and apply SoftMax after the network.",
        )


RULE = SoftmaxOnXavier()
