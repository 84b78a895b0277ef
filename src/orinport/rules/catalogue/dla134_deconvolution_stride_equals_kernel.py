"""A deconvolution whose stride differs from its kernel, on Xavier with TensorRT 8.2.

## What it checks
Stride equals kernel in each dimension. The rule stands in the header of TensorRT 8.2.1 only: 8.0.1 and 8.4.1 do
not have it.

## Why it matters
Overlapping deconvolutions, for instance kernel 4 with stride 2, are refused there. Elsewhere they are taken,
and slower than those with equal kernel and stride.

## Example
A ConvTranspose with kernel 4x4 and stride 2x2 for xavier-agx with TensorRT 8.2.1.

## What to do
Use kernel = stride, or Resize followed by a convolution.

## Fix safety
No rewrite is applied.

## Source
Rows D05a and D05b: NvInfer.h 8.2.1; FAQ of NVIDIA/Deep-Learning-Accelerator-SW.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import by, finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class DeconvolutionStrideEqualsKernel(LayerRule):
    code = "DLA134"
    title = "Deconvolution stride differs from the kernel"
    rows = ("D05a", "D05b")
    kinds = (LayerKind.DECONVOLUTION,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("D05a")
        kernel, stride = layer["kernel"], layer["stride"]
        if row is None or tuple(kernel) == tuple(stride):
            return
        yield finding(
            self,
            layer,
            row,
            f"The stride {by(stride)} differs from the kernel {by(kernel)}; this version takes equal ones only.",
            value=stride,
            limit=kernel,
            advice="Use a kernel equal to the stride, or a Resize followed by a convolution.",
        )


RULE = DeconvolutionStrideEqualsKernel()
