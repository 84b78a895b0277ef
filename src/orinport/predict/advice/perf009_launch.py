"""Most of the time is the launch.

## What it checks
Networks on the DLA in which launches take more than half of the time.

## Why it matters
A DLA task costs about 60 to 70 us to submit and start, whatever it computes. A network of a few us is not
made for it.

## Example
One matrix product of 128x1024 by 1024x128.

## What to do
Put more work into one submission: a larger batch, or several products side by side in one network.

## Fix safety
No rewrite is applied.

## Source
Queued cuDLA tasks of almost no work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.predict.advise import Advice
from orinport.words import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.predict.prediction import Prediction
    from orinport.rules.finding import Finding


class Launch(Advice):
    code = "PERF009"
    title = "most of the time is the launch"
    source = "queued cuDLA tasks of almost no work"

    def check(self, prediction: Prediction) -> Iterator[Finding]:
        us = sum(region.launch_us for region in prediction.regions if region.device == "dla")
        if us < prediction.work_us / 2:
            return
        yield self.finding(
            f"Launching takes {us:.0f} us, {percent(us, prediction.work_us)} of the time.",
            "Put more work into one submission: a larger batch, or several products in one network.",
            value=round(us, 1),
        )


ADVICE = Launch()
