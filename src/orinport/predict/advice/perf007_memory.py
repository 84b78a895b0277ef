"""Layers wait for memory.

## What it checks
Layers on the DLA that are bound by DRAM traffic of their tensors, together at least half of the time.

## Why it matters
A tensor of up to 1 MiB stays in the DLA's own memory; larger ones go to DRAM and back, at a rate that GPU and
CPU share.

## Example
A network on a large image whose first stages have 64 channels.

## What to do
Reduce the resolution early, fuse layers (a convolution takes scale, activation and sum along), and build with
the whole SRAM (trtexec --memPoolSize=dlaSRAM:1).

## Fix safety
No rewrite is applied.

## Source
Deep-Learning-Accelerator-SW FAQ (1 MiB per DLA) and README (dlaSRAM:1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.predict.advise import Advice
from orinport.predict.prediction import Bound
from orinport.words import count, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.predict.prediction import Prediction
    from orinport.rules.finding import Finding


class Memory(Advice):
    code = "PERF007"
    title = "layers wait for memory"
    source = "Deep-Learning-Accelerator-SW FAQ and README"

    def check(self, prediction: Prediction) -> Iterator[Finding]:
        found = [each for each in prediction.layers if each.device == "dla" and each.bound is Bound.MEMORY]
        us = sum(each.us for each in found)
        if us < prediction.work_us / 2:
            return
        moved = sum(each.bytes.moved for each in found)
        yield self.finding(
            f"{count(len(found), 'layer')} waiting for memory: {moved / 1e6:.0f} MB in {us:.0f} us,"
            f" {percent(us, prediction.work_us)} of the time.",
            "Keep tensors within the DLA's own 1 MiB: reduce the resolution early, build with --memPoolSize=dlaSRAM:1.",
            value=moved,
            layers=sorted(found, key=lambda each: -each.us)[:8],
        )


ADVICE = Memory()
