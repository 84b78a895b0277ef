"""A Clip whose bounds the DLA does not take.

## What it checks
The upper bound lies in 1 to 127. That is documented from TensorRT 8.4 on; in earlier versions another bound is
`unknown`. The lower bound is 0: that is inferred from the name "clipped ReLU", so another lower bound is
`unknown`.

## Why it matters
ReLU6 passes. A HardTanh (-1 to 1), a Clip to 0.5 and a Clip that is open above do not.

## Example
Clip with min = -1 and max = 1.

## What to do
Write the Clip as Max and Min with constants, which the DLA takes as element-wise operations. A Clip at 0
without an upper bound is a ReLU.

## Fix safety
The rewrite clip-to-min-max is exact: Max and Min with constants. clip-to-relu, for a Clip with one bound, is the same
for finite numbers and needs consent (tolerance).

## Source
Rows A03a, A03b and OP16: developer guides 8.4 and 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.fixes import CLIP_TO_MIN_MAX, CLIP_TO_RELU
from orinport.rules.rule import LayerRule
from orinport.rules.support import between, bounds, finding, holding, within
from orinport.targets.target import Confidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_ADVICE = "Write it as Max and Min with constants; without an upper bound, as a ReLU."
_UNBOUNDED = 1e30
"""A bound beyond this is the one that the parser puts in place of none."""


class ClipRange(LayerRule):
    code = "DLA152"
    title = "Clip bounds are out of range"
    rows = ("A03a", "A03b", "OP16")
    kinds = (LayerKind.ACTIVATION,)
    fix = CLIP_TO_MIN_MAX

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        if layer["type"] != "CLIP":
            return
        low, high = layer["alpha"], layer["beta"]
        fix = CLIP_TO_RELU if max(abs(low), abs(high)) > _UNBOUNDED else CLIP_TO_MIN_MAX
        upper = context.rows.get("A03a")
        if upper is not None and not within((high,), upper):
            certain = upper.confidence is not Confidence.INFERRED
            yield finding(
                self,
                layer,
                upper if certain else holding(context, ("A03a", "OP16")),
                f"The upper bound of the Clip is {high:g}; the DLA takes {between(upper)}"
                + ("." if certain else " from TensorRT 8.4 on, and for this version no document says."),
                value=high,
                limit=bounds(upper),
                advice=_ADVICE,
                verdict=Verdict.GPU if certain else Verdict.UNKNOWN,
                fix=fix,
            )
        lower = context.rows["A03b"]
        if not within((low,), lower):
            yield finding(
                self,
                layer,
                holding(context, ("A03b", "OP16")),
                f"The lower bound of the Clip is {low:g}; documents speak of {between(lower)} only.",
                value=low,
                limit=bounds(lower),
                advice=_ADVICE,
                verdict=Verdict.UNKNOWN,
                fix=fix,
            )


RULE = ClipRange()
