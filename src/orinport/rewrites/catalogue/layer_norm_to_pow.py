"""`LayerNormalization(x) -> Mul(Conv(x), Pow(Conv(Conv(x)^2), -0.5))`: normalisations where the DLA has powers.

## What it does
LayerNormalization (also written out as ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div), GroupNormalization,
InstanceNormalization and RMSNormalization become layers of the DLA. The mean, which RMSNormalization does not have, is
subtracted by a 1x1 convolution with the identity less 1/C; the variance is another one, with epsilon as its bias; Pow
with -0.5 is its inverse root. Over height and width, pools and a nearest Resize take their part.

## Why
The parser makes means and a square root of them, which the DLA refuses. From TensorRT 10.3 on it has powers, in INT8.

## Example
`LayerNormalization((1, 197, 384))`: Conv, Mul, Conv, Pow, Conv, Mul, and Mul and Add for scale and bias.

## Refused
Targets without powers, and FP16, for which no document names them: the reason says that POW lacks. Scale or bias known
at run time; means that are used; normalisation over the batch.

## Safety
exact: equal up to rounding. Where a variance is no larger than epsilon, the rounding of the mean grows by the inverse
root of epsilon, in the original as well: up to 2e-4 of results of size 1.

## Source
Rows C01, E03b, E04, E10, Q01c and U03 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._broadcast import spread
from orinport.rewrites.catalogue._norms import NormRewrite, build_deviation, build_scaled
from orinport.rewrites.catalogue._scalars import number_like
from orinport.rewrites.rewrite import Safety
from orinport.targets.catalogue import rows_for
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.catalogue._norms import Norm
    from orinport.rewrites.context import RewriteContext
    from orinport.rewrites.rewrite import Match

__all__ = ["REWRITE", "LayerNormToPow", "why_no_power"]


class LayerNormToPow(NormRewrite):
    """A normalisation becomes convolutions and a power."""

    name = "layer-norm-to-pow"
    safety = Safety.EXACT

    def why_not(self, norm: Norm, context: RewriteContext) -> str:  # noqa: ARG002, of all of them
        return why_no_power(context)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        norm = match.data
        deviation, variance = build_deviation(norm, builder)
        inverse = builder.op("Pow", variance, number_like(builder, variance, -0.5))
        scaled = builder.op("Mul", deviation, spread(inverse, builder.shape(deviation), builder))
        return (build_scaled(norm, scaled, builder),)


def why_no_power(context: RewriteContext) -> str:
    """Why the target's DLA has no Pow in the precision asked for; empty if it has, or there is no target."""
    if context.target is None:
        return ""
    if "E03b" not in rows_for(context.target, context.precision):
        return "the DLA lacks POW before TensorRT 10.3"
    return "" if context.precision is Precision.INT8 else "no document says that the DLA has POW in FP16"


REWRITE = LayerNormToPow()
