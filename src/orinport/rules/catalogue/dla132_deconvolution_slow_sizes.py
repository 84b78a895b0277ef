"""A deconvolution of a size that TensorRT has switched off because compiling takes too long.

## What it checks
A square kernel in 23 to 32 together with a square stride in 23 to 32 is refused. The documents say "square
kernels and strides"; whether a kernel or a stride of that size alone is refused, or one that is not square, is
not documented: then the verdict is `unknown`.

## Why it matters
The size passes the limits of kernel and stride and is refused all the same.

## Example
A ConvTranspose with kernel 32x32 and stride 32x32.

## What to do
Scale up in two steps, for instance by 8 and by 4.

## Fix safety
No rewrite is applied.

## Source
Rows D03 and OP12: developer guides 8.4 and 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule
from orinport.rules.support import bounds, by, finding, holding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class DeconvolutionSlowSizes(LayerRule):
    code = "DLA132"
    title = "Deconvolution kernel and stride are of a size that TensorRT has switched off"
    rows = ("D03", "OP12")
    kinds = (LayerKind.DECONVOLUTION,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("D03")
        if row is None:
            return
        low, high = bounds(row)
        kernel, stride = layer["kernel"], layer["stride"]
        if max(kernel) < low and max(stride) < low:
            return
        kernel_in = [low <= size <= high for size in kernel]
        stride_in = [low <= size <= high for size in stride]
        if not any(kernel_in) and not any(stride_in):
            return
        square = len(set(kernel)) == 1 and len(set(stride)) == 1
        certain = square and all(kernel_in) and all(stride_in)
        sizes = f"kernel {by(kernel)} and stride {by(stride)}"
        yield finding(
            self,
            layer,
            row if certain else holding(context, self.rows),
            f"The layer has {sizes}; TensorRT has switched off square ones of {low} to {high}."
            if certain
            else f"The layer has {sizes}; TensorRT has switched off square ones of {low} to {high}, and it is not"
            " documented whether this case is one of them.",
            value=(*kernel, *stride),
            limit=(low, high),
            advice="Scale up in two steps with smaller kernels and strides.",
            verdict=Verdict.GPU if certain else Verdict.UNKNOWN,
        )


RULE = DeconvolutionSlowSizes()
