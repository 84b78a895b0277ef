"""A deconvolution stride outside the range of the DLA.

## What it checks
The stride lies in 1 to 32 in each dimension, or is one of 1x64, 1x96, 1x128 and their transposes. On Xavier
with TensorRT 5 to 7.0: 1 to 8.

## Why it matters
A larger stride is refused.

## Example
A ConvTranspose with stride 64x64.

## What to do
Scale up in two steps.

## Fix safety
No rewrite is applied.

## Source
Rows D04a and D04b: NvInfer.h.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import outside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class DeconvolutionStride(LayerRule):
    code = "DLA133"
    title = "Deconvolution stride is out of range"
    rows = ("D04a", "D04b")
    kinds = (LayerKind.DECONVOLUTION,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        return outside(self, layer, context, "stride", advice="Scale up in two steps with smaller strides.")


RULE = DeconvolutionStride()
