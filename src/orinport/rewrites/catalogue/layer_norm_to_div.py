"""`LayerNormalization(x) -> Div(Conv(x), Root(Conv(Conv(x)^2)))`: normalisations where the DLA has divisions.

## What it does
The same as `layer-norm-to-pow`, but the square root is computed by divisions: the least of three tangents as the first
guess, and five steps of Heron's method, `s = (s + v / s) / 2`, on a single channel.

## Why
In FP16 no document gives the DLA a power or a square root. A division it has from TensorRT 10.3 on.

## Example
Each LayerNormalization of a transformer: about 30 layers, of which 23 work on one channel.

## Refused
Targets whose DLA lacks DIV: the reason says so. Epsilon below 1e-7; scale or bias known at run time; means that are
used; normalisation over the batch.

## Safety
tolerance: for finite numbers and variances up to 65536 at most 2e-4 away, relative to the largest result above 1. The
root is exact to 3.4e-6 (measured; to 4e-7 for an epsilon from 1e-6 on); where a variance is no larger than epsilon, the
rounding of the mean grows by the inverse root of epsilon. Rounding in FP16 is larger.

## Source
Rows C01, E01, E03b, E05, Q01c and U03 of the acceptance catalogue. The error is measured in FP64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._broadcast import spread
from orinport.rewrites.catalogue._norms import (
    NormRewrite,
    build_deviation,
    build_scaled,
    root_by_division,
)
from orinport.rewrites.catalogue.reciprocal_to_div import has_division
from orinport.rewrites.rewrite import Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.catalogue._norms import Norm
    from orinport.rewrites.context import RewriteContext
    from orinport.rewrites.rewrite import Match

__all__ = ["REWRITE", "LayerNormToDiv"]

_SMALLEST = 1e-7


class LayerNormToDiv(NormRewrite):
    """A normalisation becomes convolutions and divisions."""

    name = "layer-norm-to-div"
    safety = Safety.TOLERANCE
    finite = True

    def why_not(self, norm: Norm, context: RewriteContext) -> str:
        if norm.epsilon < _SMALLEST:
            return f"an epsilon of {norm.epsilon:g} is below {_SMALLEST:g}, too small for the root's first guess"
        if not has_division(context):
            return "the DLA lacks DIV before TensorRT 10.3, or 8.6.12 on DRIVE, and SQRT in every version"
        return ""

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        norm = match.data
        deviation, variance = build_deviation(norm, builder)
        root = root_by_division(variance, norm.epsilon, builder)
        return (
            build_scaled(norm, builder.op("Div", deviation, spread(root, builder.shape(deviation), builder)), builder),
        )


REWRITE = LayerNormToDiv()
