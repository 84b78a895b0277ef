"""Weights are streamed for few positions.

## What it checks
Convolutions and fully connected layers whose weights, read once, are most of what they read, so that reading them
sets the time, together at least 5 % of the network's time.

## Why it matters
The DLA reads a layer's weights from DRAM for every inference. With one output position a weight is used once:
512x512 weights take several us to read and 32 cycles to multiply.

## Example
A matrix-vector product 1x1024 times 1024x1024.

## What to do
Batch the products: several rows, images or time steps as positions of one convolution use every weight that
often.

## Fix safety
No rewrite is applied: a larger batch changes the network's interface.

## Source
Single-layer measurements of branes-ai/graphs; nvdla/doc, unit description (weight-stationary stripes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.predict.advise import Advice, bound_by_weights
from orinport.words import count, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.predict.prediction import Prediction
    from orinport.rules.finding import Finding


class StreamedWeights(Advice):
    code = "PERF001"
    title = "weights are streamed for few positions"
    source = "branes-ai/graphs single-layer measurements; nvdla/doc unit description"

    def check(self, prediction: Prediction) -> Iterator[Finding]:
        found = [each for each, times in bound_by_weights(prediction) if times < 2]
        us = sum(each.us for each in found)
        if us < self.threshold * prediction.work_us:
            return
        read = sum(each.bytes.weights for each in found)
        yield self.finding(
            f"{count(len(found), 'layer')} read {read / 1e6:.1f} MB of weights for few positions: {us:.0f} us,"
            f" {percent(us, prediction.work_us)} of the time.",
            "Batch the products, so that every weight that is read is used more often.",
            value=round(us, 1),
            layers=found,
        )


ADVICE = StreamedWeights()
