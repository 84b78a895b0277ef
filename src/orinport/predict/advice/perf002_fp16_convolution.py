"""FP16 convolutions run on Rubik, not on the convolution pipelines.

## What it checks
Convolutions predicted in FP16 on the DLA.

## Why it matters
Orin's two convolution pipelines compute in INT8. FP16 convolution runs on Rubik, whose rate is about 1/32 of
theirs.

## Example
ResNet-50 in FP16.

## What to do
Prepare the network in INT8, and keep single sensitive layers in FP16.

## Fix safety
No rewrite is applied: INT8 needs scales and changes results.

## Source
Deep-Learning-Accelerator-SW, README of the cuDLA layer statistics samples; rates from branes-ai/graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.predict.advise import Advice
from orinport.predict.prediction import Engine
from orinport.words import count, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.predict.prediction import Prediction
    from orinport.rules.finding import Finding


class Fp16Convolution(Advice):
    code = "PERF002"
    title = "FP16 convolution runs on Rubik"
    source = "Deep-Learning-Accelerator-SW, samples/cuDLA README; branes-ai/graphs"

    def check(self, prediction: Prediction) -> Iterator[Finding]:
        found = [each for each in prediction.layers if each.engine is Engine.RUBIK and each.macs]
        us = sum(each.us for each in found)
        if us < self.threshold * prediction.work_us:
            return
        yield self.finding(
            f"{count(len(found), 'FP16 convolution')} on Rubik, not on the INT8 pipelines: {us:.0f} us,"
            f" {percent(us, prediction.work_us)} of the time.",
            "Predict and prepare the network in INT8; keep FP16 for the layers that need it.",
            value=round(us, 1),
            layers=found,
        )


ADVICE = Fp16Convolution()
