"""`LayerNormalization(x) -> Div(Conv(x), Sqrt(Conv(Conv(x)^2)))`: all of a normalisation but its square root.

## What it does
The same as `layer-norm-to-pow`, but the root of the variance stays a Sqrt, of one number for each place (or for each
channel, over height and width), by which the DLA divides.

## Why
In FP16 no document gives the DLA a power or a square root, and without consent to approximations none is computed by
divisions (`layer-norm-to-div`). Sums, products and division need not leave the DLA with the root: one small layer on
the GPU in place of two or more, and one cut in place of two.

## Example
`LayerNormalization((1, 40, 120))`: Conv, Mul, Conv, Sqrt of 40 numbers, Div. The five of PP-OCRv4 recognition cut it
into 6 loadables in place of 11.

## Refused
Targets that have powers, where `layer-norm-to-pow` leaves nothing on the GPU; targets whose DLA lacks DIV. Scale or
bias known at run time; means that are used; normalisation over the batch.

## Safety
exact: equal up to rounding. Where a variance is no larger than epsilon, the rounding of the mean grows by the inverse
root of epsilon, in the original as well: up to 2e-4 of results of size 1.

## Source
Rows C01, E01, E03b, E05, Q01c and U03 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._broadcast import spread
from orinport.rewrites.catalogue._norms import NormRewrite, build_deviation, build_scaled
from orinport.rewrites.catalogue.layer_norm_to_pow import why_no_power
from orinport.rewrites.catalogue.reciprocal_to_div import has_division
from orinport.rewrites.rewrite import Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.catalogue._norms import Norm
    from orinport.rewrites.context import RewriteContext
    from orinport.rewrites.rewrite import Match

__all__ = ["REWRITE", "LayerNormToSqrt"]


class LayerNormToSqrt(NormRewrite):
    """A normalisation becomes convolutions and a division, but for its square root."""

    name = "layer-norm-to-sqrt"
    safety = Safety.EXACT

    def is_called_for(self, context: RewriteContext) -> bool:
        return context.target is None or bool(why_no_power(context))

    def why_not(self, norm: Norm, context: RewriteContext) -> str:  # noqa: ARG002, of all of them
        return "" if has_division(context) else "the DLA lacks DIV before TensorRT 10.3, or 8.6.12 on DRIVE"

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        norm = match.data
        deviation, variance = build_deviation(norm, builder)
        root = spread(builder.op("Sqrt", variance), builder.shape(deviation), builder)
        return (build_scaled(norm, builder.op("Div", deviation, root), builder),)


REWRITE = LayerNormToSqrt()
