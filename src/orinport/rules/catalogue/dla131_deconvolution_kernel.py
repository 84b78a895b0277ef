"""A deconvolution kernel outside the range of the DLA.

## What it checks
Height and width of the kernel each lie in 1 to 32, or the kernel is one of 1x64, 1x96, 1x128 and their
transposes. On Xavier with TensorRT 5 to 7.0: 1 to 16.

## Why it matters
A larger kernel is refused, and segmentation heads that scale up in one step meet this limit.

## Example
A ConvTranspose with kernel 64x64 and stride 32 (the last layer of FCN-32s).

## What to do
Scale up in two steps, each with a smaller kernel.

## Fix safety
No rewrite is applied.

## Source
Rows D02a and D02b: NvInfer.h, developer guides 8.4 and 8.5.
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


class DeconvolutionKernel(LayerRule):
    code = "DLA131"
    title = "Deconvolution kernel is out of range"
    rows = ("D02a", "D02b")
    kinds = (LayerKind.DECONVOLUTION,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        return outside(self, layer, context, "kernel", advice="Scale up in two steps with smaller kernels.")


RULE = DeconvolutionKernel()
