"""A convolution dilation outside the DLA's range.

## What it checks
The dilation lies in 1 to 32 in each dimension.

## Why it matters
A larger dilation is refused. A dilation within the range still makes the kernel taller and so needs more of the
convolution buffer (DLA127).

## Example
An atrous pyramid with rates 12, 24 and 36: the third branch is refused.

## What to do
Use a rate of 32 or less, or two dilated convolutions one after the other.

## Fix safety
split-conv-kernel is exact; with padding it needs a Pad, which the DLA takes from TensorRT 10.4 on.

## Source
Row C05: NvInfer.h from 7.1.3 on, developer guides 8.4 and 8.5.
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

_ADVICE = "Use a smaller dilation, or two dilated convolutions one after the other."


class ConvolutionDilation(LayerRule):
    code = "DLA124"
    title = "Convolution dilation is out of range"
    rows = ("C05",)
    kinds = (LayerKind.CONVOLUTION,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        fix = SPLIT_CONV_KERNEL if layer["constant_kernel"] else None
        return outside(self, layer, context, "dilation", advice=_ADVICE, fix=fix)


RULE = ConvolutionDilation()
