"""Handing tensors between DLA and GPU costs a large part of the time.

## What it checks
Launches of DLA regions and reformats at their edges, where the network has more than one region and they take
at least 5 % of the time.

## Why it matters
Every DLA region is a task of its own: it has to be submitted, and its tensors may have to be brought into
another layout.

## Example
A network with three GPU layers spread over its middle: four DLA regions, each with its launch.

## What to do
Remove what splits the network (orinport check names it), or give small DLA regions to the GPU as well.

## Fix safety
No rewrite is applied by this advice; the findings on the splitting layers name theirs.

## Source
Deep-Learning-Accelerator-SW FAQ (alternating subgraphs are costly); launch cost observed with queued cuDLA
tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.predict.advise import Advice
from orinport.words import count, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.predict.prediction import Prediction
    from orinport.rules.finding import Finding


class Transitions(Advice):
    code = "PERF003"
    title = "transitions between DLA and GPU"
    source = "Deep-Learning-Accelerator-SW FAQ; queued cuDLA tasks of almost no work"

    def check(self, prediction: Prediction) -> Iterator[Finding]:
        regions = [region for region in prediction.regions if region.device == "dla"]
        us = sum(region.launch_us + region.reformat_us for region in regions)
        if prediction.transitions == 0 or us < self.threshold * prediction.work_us:
            return
        yield self.finding(
            f"{count(prediction.transitions, 'transition')} and {count(len(regions), 'DLA region')} cost {us:.0f} us"
            f" of launches and reformats, {percent(us, prediction.work_us)} of the time.",
            "Bring the layers between the regions to the DLA, or give small regions to the GPU.",
            value=prediction.transitions,
        )


ADVICE = Transitions()
