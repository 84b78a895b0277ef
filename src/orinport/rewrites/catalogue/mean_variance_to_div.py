"""`MeanVarianceNormalization(x) -> Div(Sub(x, mean), Root(variance))`: where the DLA has divisions.

## What it does
The mean and the variance of the squared deviations come from pools and 1x1 convolutions, as in `layer-norm-to-div`. The
square root is computed by divisions: the least of three tangents, and five steps of Heron's `s = (s + v / s) / 2`,
which never reaches zero. Dimensions at the end of the shape are reduced where they are; any others become channels.

## Why
The parser makes means, a square root and a division of it. Means and square roots the DLA refuses; divisions it has
from TensorRT 10.3 on.

## Example
`MeanVarianceNormalization((1, 64, 56, 56))` over height and width: two chains of average pools, and 23 layers on one
value a channel.

## Refused
Targets whose DLA lacks DIV: the reason says so. Normalisation over a batch of more than one image, or over nothing;
integers; shapes that are not known; more elements as channels than the limits allow.

## Safety
tolerance: for finite numbers and standard deviations from 0.001 to 256 at most 2e-4 away, relative to the largest
result above 1 (the root alone: 2e-7, measured). Smaller deviations give results that are too small; 0 gives 0. Rounding
in FP16 is larger.

## Source
Rows C01, E01, E03b, E05, Q01c and U03 of the acceptance catalogue; ONNX operator specification. The error is measured
in FP64.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._broadcast import spread
from orinport.rewrites.catalogue._movers import absorb
from orinport.rewrites.catalogue._norms import Norm, build_deviation, root_by_division
from orinport.rewrites.catalogue._product import positions
from orinport.rewrites.catalogue.reciprocal_to_div import has_division
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["NO_ROOT", "REWRITE", "SMALLEST", "MeanVarianceToDiv"]

SMALLEST = 1e-6
"""Value from which on the root is exact; that of 0 is then still a normal number of FP16 after five steps."""

NO_ROOT = "the DLA lacks DIV before TensorRT 10.3, or 8.6.12 on DRIVE, and SQRT in every version"


class MeanVarianceToDiv(Rewrite):
    """A normalisation without epsilon becomes convolutions, pools and divisions."""

    name = "mean-variance-to-div"
    safety = Safety.TOLERANCE
    finite = True
    error = 2e-4
    op_types = ("MeanVarianceNormalization",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value = node.inputs[0]
        shape = context.shape(value)
        if value is None or shape is None or 0 in shape or len(shape) < 2:
            return Refusal("the shape is not known, or has no place for channels")
        if not context.is_float(value):
            return Refusal(f"the DLA does not compute in {context.dtype(value)}")
        if not has_division(context):
            return Refusal(NO_ROOT)
        axes = sorted({int(axis) % len(shape) for axis in context.attribute(node, "axes", (0, 2, 3))})
        if 0 in axes and shape[0] > 1:
            return Refusal("it normalises over the batch")
        reduced = [axis for axis in axes if axis]
        if prod(shape[axis] for axis in reduced) == 1:
            return Refusal("it normalises single elements")
        into, groups, spatial = _board(shape, reduced, context)
        limit = int(context.limit("G05", "max"))
        if max(into.shape[1:]) > limit:
            return Refusal(f"a dimension of {max(into.shape[1:])} exceeds the DLA's limit of {limit}")
        source, start, movers = absorb(value, into, context)
        norm = Norm((node, *movers), source, start, groups, spatial, 0.0, None, None, node.outputs[0])
        return Match(norm.nodes, (norm.output,), (norm, into.inverse()))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        norm, back = match.data
        deviation, variance = build_deviation(norm, builder)
        root = root_by_division(variance, SMALLEST, builder)
        scaled = builder.op("Div", deviation, spread(root, builder.shape(deviation), builder))
        return (builder.shuffle(scaled, back),)


def _board(shape: tuple[int, ...], reduced: list[int], context: RewriteContext) -> tuple[Shuffle, int, bool]:
    """The tensor in four dimensions, groups of channels, and whether height and width are reduced as well."""
    rank = len(shape)
    if reduced == list(range(rank - len(reduced), rank)):
        whole = len(reduced) == rank - 1
        kept = 1 if not whole else 0
        channels = prod(shape[1 : rank - len(reduced)]) if kept else shape[1]
        plane = shape[2 if whole else rank - len(reduced) :]
        sides = (plane[0], prod(plane[1:])) if plane else (1, 1)
        groups = 1 if whole else channels
        return Shuffle.reshape(shape, (shape[0], channels, *sides)), groups, True
    others = [axis for axis in range(1, rank) if axis not in reduced]
    size, count = prod(shape[axis] for axis in reduced), prod(shape[axis] for axis in others)
    board = (shape[0], size, *positions(count, size, context))
    return Shuffle.make(shape, shape, (0, *reduced, *others), board), 1, False


REWRITE = MeanVarianceToDiv()
