"""FP32 linear inputs and outputs cost a fixed time.

## What it checks
DLA regions at whose edge the network's own inputs or outputs are linear instead of in a format of the DLA.

## Why it matters
Engines with FP32 linear inputs and outputs need reformat kernels on the GPU around every DLA call, and
synchronisation with them. Measured single layers take about 150 us in INT8 whatever the layer, most of it
this.

## Example
trtexec without --inputIOFormats and --outputIOFormats.

## What to do
Ask for the DLA's formats: int8:dla_hwc4 for an image, int8:chw32 (fp16:chw16) otherwise. build.sh of orinport
prepare does so.

## Fix safety
No rewrite is applied; the caller has to fill and read those formats.

## Source
branes-ai/graphs single-layer measurements; Deep-Learning-Accelerator-SW FAQ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.predict.advise import Advice
from orinport.words import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.predict.prediction import Prediction
    from orinport.rules.finding import Finding


class LinearIo(Advice):
    code = "PERF004"
    title = "FP32 linear inputs and outputs"
    source = "branes-ai/graphs single-layer measurements; Deep-Learning-Accelerator-SW FAQ"

    def check(self, prediction: Prediction) -> Iterator[Finding]:
        us = sum(region.reformat_us for region in prediction.regions) + sum(
            region.linear_us for region in prediction.regions
        )
        if us < self.threshold * prediction.work_us:
            return
        yield self.finding(
            f"Linear inputs and outputs cost about {us:.0f} us, {percent(us, prediction.work_us)} of the time.",
            "Ask for the formats of the DLA: int8:dla_hwc4 or int8:chw32 (fp16:chw16), as build.sh of a bundle does.",
            value=round(us, 1),
        )


ADVICE = LinearIo()
