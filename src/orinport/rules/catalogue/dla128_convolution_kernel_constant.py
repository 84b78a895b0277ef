"""A convolution whose kernel is computed at run time.

## What it checks
The weights of a convolution or deconvolution are build-time constants.

## Why it matters
The DLA compiler packs the weights into the loadable. No document names a kernel that comes from another layer;
that it is refused is inferred, so the verdict is `unknown`.

## Example
A Conv whose second input is the output of another layer (dynamic filters, cross-correlation in trackers).

## What to do
Fold the computation of the weights if they do not depend on the input, or leave this layer to the GPU.

## Fix safety
No rewrite is applied.

## Source
Rows C11 and OP11: inferred from the general rules and from the operator table of NVIDIA's DLA software (Gemm).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, holding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ConvolutionKernelConstant(LayerRule):
    code = "DLA128"
    title = "Convolution kernel is not a build-time constant"
    rows = ("C11", "OP11")
    kinds = (LayerKind.CONVOLUTION, LayerKind.DECONVOLUTION)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        if layer["constant_kernel"]:
            return
        yield finding(
            self,
            layer,
            holding(context, self.rows),
            "The kernel comes from another layer at run time; documents know constant kernels only.",
            value="run time",
            limit="build-time constant",
            advice="Make the weights constant (fold what computes them), or leave this layer to the GPU.",
            verdict=Verdict.UNKNOWN,
        )


RULE = ConvolutionKernelConstant()
