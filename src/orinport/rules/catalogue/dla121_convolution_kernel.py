"""A convolution kernel outside the DLA's range.

## What it checks
Height and width of the kernel each lie in 1 to 32 (on Xavier with TensorRT 5 to 7.0: 1 to 16).

## Why it matters
A larger kernel is refused whatever else the layer does, and the layer goes to the GPU.

## Example
The depthwise 31x31 kernels of RepLKNet pass; a 33x33 kernel does not.

## What to do
Split the kernel into smaller ones over shifted inputs and add the results, or use a dilated or strided kernel
if the network can be trained again.

## Fix safety
split-conv-kernel is exact; with padding it needs a Pad, which the DLA takes from TensorRT 10.4 on.

## Source
Rows C02a and C02b: NvInfer.h, developer guides 8.4 and 8.5, current documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import SPLIT_CONV_KERNEL
from orinport.rules.rule import LayerRule
from orinport.rules.support import outside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_ADVICE = "Split the kernel into smaller convolutions over shifted inputs and add their results."


class ConvolutionKernel(LayerRule):
    code = "DLA121"
    title = "Convolution kernel is out of range"
    rows = ("C02a", "C02b")
    kinds = (LayerKind.CONVOLUTION,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        fix = SPLIT_CONV_KERNEL if layer["constant_kernel"] else None
        return outside(self, layer, context, "kernel", advice=_ADVICE, fix=fix)


RULE = ConvolutionKernel()
