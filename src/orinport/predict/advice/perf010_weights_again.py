"""Weights are read again for every part of the input.

## What it checks
Convolutions whose weights and input do not fit the convolution buffer together, so that the weights are read more than
once, where that is most of what they read and they take at least 5 % of the network's time together.

## Why it matters
The buffer of 512 KiB holds rows of the input beside weights. Where all weights do not fit, the input is cut into
strips, and every strip reads all weights from DRAM.

## Example
A 3x3 convolution of 256 to 256 channels, 576 KiB of weights, over a map of 96x160: the heads of RetinaNet.

## What to do
Let fewer channels do the work at high resolution: a 1x1 convolution before it to fewer channels, or 3x3 convolutions of
128 channels, whose weights fit.

## Fix safety
No rewrite is applied: it would be another network.

## Source
nvdla/sw ConvCoreNode.cpp (modes of the convolution buffer); its size on Orin is inferred (docs/how-to/predict.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.predict.advise import Advice, bound_by_weights
from orinport.words import count, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.predict.prediction import Prediction
    from orinport.rules.finding import Finding


class WeightsAgain(Advice):
    code = "PERF010"
    title = "weights are read again for every part of the input"
    source = "nvdla/sw ConvCoreNode.cpp; buffer size inferred"

    def check(self, prediction: Prediction) -> Iterator[Finding]:
        again = [(each, times) for each, times in bound_by_weights(prediction) if times >= 2]
        found = [each for each, _ in again]
        us = sum(each.us for each in found)
        if us < self.threshold * prediction.work_us:
            return
        read = sum(each.bytes.weights for each in found)
        most = max((times for _, times in again), default=0)
        yield self.finding(
            f"{count(len(found), 'convolution')} read their weights up to {most} times, {read / 1e6:.0f} MB in all:"
            f" {us:.0f} us, {percent(us, prediction.work_us)} of the time.",
            "Let fewer channels do the work at this resolution, so that all weights fit the convolution buffer.",
            value=most,
            limit=1,
            layers=sorted(found, key=lambda each: -each.us)[:8],
        )


ADVICE = WeightsAgain()
