"""`LpNormalization(x) -> Div(x, Root(Conv(x * x)))`: division by a norm where the DLA has divisions.

## What it does
A 1x1 convolution takes the mean of the squares (p = 2) or of the absolute values (p = 1) over the axis, which becomes
the channels; a mean stays within FP16 where a sum would not. The root is computed by divisions: the least of three
tangents, and five steps of Heron's `s = (s + v / s) / 2`, which never reaches zero. The mean of absolute values is held
at 2^-14 or more. A factor makes the norm of the mean. Vectors of zeros stay zeros, as in ONNX.

## Why
The parser makes a sum, a square root, a comparison with zero and a division of it, of which the DLA has the division
alone, from TensorRT 10.3 on.

## Example
`LpNormalization((1, 128, 1, 1), axis=1)`, the end of a network for embeddings: Mul, Conv, 24 layers on one value, a
convolution that copies it, and Div.

## Refused
Targets whose DLA lacks DIV: the reason says so. The batch as axis; an axis of one element; integers; shapes that are
not known.

## Safety
tolerance: for finite numbers and root mean squares from 0.001 to 256 (p = 1: means from 2^-14 on) at most 1e-5 away
(the root alone: 2e-7, measured). Smaller norms give results that are too small. In FP16 squares end at 65504. Rounding
in FP16 is larger.

## Source
Rows C01, E01, E03b, E05, Q01c and U03 of the acceptance catalogue; ONNX operator specification. The error is measured
in FP64.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._axis import channels_first
from orinport.rewrites.catalogue._broadcast import spread
from orinport.rewrites.catalogue._movers import absorb
from orinport.rewrites.catalogue._norms import point, root_by_division, shape_to_divide
from orinport.rewrites.catalogue._scalars import multiply, number_like
from orinport.rewrites.catalogue.mean_variance_to_div import NO_ROOT, SMALLEST
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "LpNormalizationToDiv"]

_LEAST = 2.0**-14
"""The smallest normal number of FP16."""


class LpNormalizationToDiv(Rewrite):
    """Division by a norm becomes a convolution and divisions."""

    name = "lp-normalization-to-div"
    safety = Safety.TOLERANCE
    finite = True
    error = 1e-5
    op_types = ("LpNormalization",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value = node.inputs[0]
        shape = shape_to_divide(value, context, NO_ROOT)
        if isinstance(shape, Refusal):
            return shape
        assert value is not None
        axis = int(context.attribute(node, "axis", -1)) % len(shape)
        if shape[axis] == 1:
            return Refusal("the axis has a single element, of which the norm would leave the sign")
        if axis == 0 and len(shape) == 4:
            return Refusal("it normalises over the batch")
        into = channels_first(shape, axis)
        source, start, movers = absorb(value, into, context)
        power = int(context.attribute(node, "p", 2))
        return Match((node, *movers), (node.outputs[0],), (source, start, into.inverse(), power))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        source, start, back, power = match.data
        value = builder.shuffle(source, start)
        terms = builder.op("Abs", value) if power == 1 else builder.op("Mul", value, value)
        count = builder.shape(value)[1]
        average = point(terms, np.full((1, count), 1.0 / count), None, 1, builder)
        if power == 1:
            norm = builder.op("Max", average, number_like(builder, average, _LEAST))
        else:
            norm = multiply(builder, root_by_division(average, SMALLEST, builder), sqrt(count))
        result = builder.op("Div", value, spread(norm, builder.shape(value), builder))
        return (builder.shuffle(multiply(builder, result, 1.0 / count) if power == 1 else result, back),)


REWRITE = LpNormalizationToDiv()
