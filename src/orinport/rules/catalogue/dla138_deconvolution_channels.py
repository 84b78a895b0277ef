"""A deconvolution with more channels than the DLA takes.

## What it checks
Output channels lie in 1 to 8192, and from TensorRT 8.4 on input channels as well.

## Why it matters
A layer with more channels is refused.

## Example
A ConvTranspose from 16384 to 256 channels.

## What to do
Split the layer along the channels; partial results over input channels are added.

## Fix safety
No rewrite is applied.

## Source
Rows D08a and D08b: NvInfer.h from 5.1.5 on, developer guides 8.4 and 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import between, bounds, finding, within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class DeconvolutionChannels(LayerRule):
    code = "DLA138"
    title = "Deconvolution has too many channels"
    rows = ("D08a", "D08b")
    kinds = (LayerKind.DECONVOLUTION,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("D08a")
        maps = layer["output_maps"]
        if row is not None and not within((maps,), row):
            yield finding(
                self,
                layer,
                row,
                f"The deconvolution has {maps} output channels; the DLA takes {between(row)}.",
                value=maps,
                limit=bounds(row),
                advice="Split it along the output channels and concatenate the results.",
            )
        row = context.rows.get("D08b")
        if row is None:
            return
        data = layer.inputs[0]
        if data.shape is None:  # DLA103 speaks
            return
        channels = data.shape[1] if len(data.shape) > 1 else 1
        if not within((channels,), row):
            yield finding(
                self,
                layer,
                row,
                f"The deconvolution has {channels} input channels; the DLA takes {between(row)}.",
                value=channels,
                limit=bounds(row),
                advice="Split it along the input channels and add the results.",
            )


RULE = DeconvolutionChannels()
