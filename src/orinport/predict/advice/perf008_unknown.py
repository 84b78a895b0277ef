"""Some layers have no model.

## What it checks
Layers whose time no public measurement allows to predict: softmax on the DLA, plugins, loops, tensors of
unknown shape.

## Why it matters
Their time is not in the total as a measured quantity; the band says how much it may be.

## Example
A Softmax over 1000 channels on the DLA.

## What to do
Read the band instead of the total, and measure on a board.

## Fix safety
No rewrite is applied.

## Source
None: that is what the finding says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.predict.advise import Advice
from orinport.predict.prediction import Bound
from orinport.words import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.predict.prediction import Prediction
    from orinport.rules.finding import Finding


class UnknownTime(Advice):
    code = "PERF008"
    title = "layers without a model"
    source = "no measurement is public"

    def check(self, prediction: Prediction) -> Iterator[Finding]:
        found = [each for each in prediction.layers if each.bound is Bound.UNKNOWN]
        if not found:
            return
        reasons = sorted({each.reason for each in found if each.reason})
        more = f", and {len(reasons) - 2} more reasons" if len(reasons) > 2 else ""
        yield self.finding(
            f"The time of {count(len(found), 'layer')} is not known ({'; '.join(reasons[:2])}{more});"
            " the band counts it.",
            "Measure them on a board.",
            value=len(found),
            layers=found,
        )


ADVICE = UnknownTime()
