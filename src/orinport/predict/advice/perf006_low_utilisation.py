"""Depthwise and grouped convolutions use few of the multipliers.

## What it checks
Convolutions with groups whose MAC utilisation is below 5 %, together at least 5 % of the time.

## Why it matters
Each group multiplies its own few channels; the rest of the array idles, and the tensors still have to move.

## Example
A 3x3 depthwise convolution of MobileNet.

## What to do
Prefer dense convolutions where accuracy allows it; on the DLA they are often as fast as the depthwise pair
that replaced them.

## Fix safety
No rewrite is applied: it would be another network.

## Source
branes-ai/graphs single-layer measurements; DLA-SW README (SSD-MobileNetV1 reaches 12 % of the peak).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.predict.advise import Advice
from orinport.words import count, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.predict.prediction import Prediction
    from orinport.rules.finding import Finding


class LowUtilisation(Advice):
    code = "PERF006"
    title = "depthwise and grouped convolutions"
    source = "branes-ai/graphs single-layer measurements; Deep-Learning-Accelerator-SW README"

    def check(self, prediction: Prediction) -> Iterator[Finding]:
        found = [
            each
            for each in prediction.layers
            if each.device == "dla"
            and each.macs
            and int(each.layer.attributes.get("groups", 1)) > 1
            and each.mac_utilisation < 0.05
        ]
        us = sum(each.us for each in found)
        if us < self.threshold * prediction.work_us:
            return
        macs = sum(each.macs for each in found)
        yield self.finding(
            f"{count(len(found), 'grouped convolution')} with {percent(macs, prediction.macs)} of the multiplications"
            f" in {percent(us, prediction.work_us)} of the time.",
            "Prefer dense convolutions where accuracy allows it.",
            value=len(found),
            layers=found,
        )


ADVICE = LowUtilisation()
