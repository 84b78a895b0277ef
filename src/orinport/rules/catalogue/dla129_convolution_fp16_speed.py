"""FP16 convolutions on Orin are slow.

## What it checks
Whether a network prepared in FP16 for Orin has convolutions. It is a note on the network, not a refusal.

## Why it matters
Orin's DLA is built for INT8. NVIDIA says that an FP16 convolution may take up to twice as long as on Xavier. A
network that is all on the DLA in FP16 is often slower than on the GPU.

## Example
ResNet-50 prepared with --precision fp16 for an Orin target.

## What to do
Prepare the network in INT8.

## Fix safety
No rewrite is applied.

## Source
Rows C13 and O01: developer guides 8.4.2 and 8.5, section 12.2.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.regions import network_finding
from orinport.rules.rule import NetworkRule
from orinport.rules.support import speaking
from orinport.targets.target import Precision
from orinport.words import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ConvolutionFp16Speed(NetworkRule):
    code = "DLA129"
    title = "FP16 convolution is slow on Orin"
    rows = ("C13", "O01")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        row = speaking(context, self.rows)
        if row is None or context.precision is not Precision.FP16:
            return
        number = sum(layer.kind is LayerKind.CONVOLUTION for layer in layers)
        if not number:
            return
        yield network_finding(
            self,
            (row,),
            f"{count(number, 'convolution')} would run in FP16, which on Orin may take twice as long as on Xavier.",
            value=number,
            limit=None,
            advice="Prepare the network in INT8.",
            verdict=None,
        )


RULE = ConvolutionFp16Speed()
