"""`Gelu(x) -> x (1 + Tanh(a x + b x^3)) / 2`, `Erf(z) -> Tanh(a z + b z^3)`: the error function by a Tanh.

## What it does
Gelu becomes its tanh form, and Erf (of which PyTorch's exporter makes GELU) the Tanh of an odd polynomial of degree 3.
Where shape movers took away the rank of 4, they wait until it is done: neither would help alone.

## Why
The DLA has Tanh, but neither Erf nor Gelu.

## Example
`Div(x, sqrt 2)`, Erf, Add, Mul, Mul in a transformer: the Erf alone becomes Tanh of products and sums.

## Refused
Integers; shapes that are not known.

## Safety
tolerance: for finite numbers Gelu and Erf are at most 5e-4 away (measured: 4.8e-4 for Gelu, 3.6e-4 for Erf); Gelu that
is given as its tanh form equals it up to rounding.

## Source
Rows A05 and U03 of the acceptance catalogue; Hendrycks and Gimpel, Gaussian Error Linear Units, for the form. The
errors are measured over [-60, 60] in FP64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._approximations import tanh_argument
from orinport.rewrites.catalogue._movers import chain_into
from orinport.rewrites.catalogue._pointwise import refused_input
from orinport.rewrites.catalogue._scalars import add, multiply
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "GeluToTanh"]


class GeluToTanh(Rewrite):
    """Gelu and Erf become Tanh."""

    name = "gelu-to-tanh"
    safety = Safety.TOLERANCE
    finite = True
    error = 5e-4
    op_types = ("Erf", "Gelu")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if (refusal := refused_input(node, context)) is not None:
            return refusal
        value = node.inputs[0]
        chain = None if value is None or context.rank(value) == 4 else chain_into(value, context, rank=4)
        source, back, movers = (value, None, ()) if chain is None else chain
        return Match((node, *movers), (node.outputs[0],), (source, back))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        value, back = match.data
        made = _erf(builder, value) if match.nodes[0].op_type == "Erf" else _gelu(builder, value)
        return (made if back is None else builder.shuffle(made, back),)


def _erf(builder: Builder, value: ir.Value) -> ir.Value:
    slope, cubic = tanh_argument()
    return _tanh(builder, value, slope, cubic)


def _gelu(builder: Builder, value: ir.Value) -> ir.Value:
    slope, cubic = tanh_argument()
    root = float(np.sqrt(0.5))
    gate = add(builder, _tanh(builder, value, slope * root, cubic * root**3), 1.0)
    return builder.op("Mul", multiply(builder, value, 0.5), gate)


def _tanh(builder: Builder, value: ir.Value, slope: float, cubic: float) -> ir.Value:
    """`tanh(x (slope + cubic x^2))`."""
    square = multiply(builder, builder.op("Mul", value, value), cubic)
    return builder.op("Tanh", builder.op("Mul", value, add(builder, square, slope)))


REWRITE = GeluToTanh()
