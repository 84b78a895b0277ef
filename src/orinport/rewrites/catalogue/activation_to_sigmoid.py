"""`Softplus(x) -> Relu(x) + v P(v)`, v = Sigmoid(-|x|): smooth activations from those that the DLA has.

## What it does
Softplus, Elu, Selu, Celu and Mish become sums and products of Relu, Sigmoid and a polynomial in the sigmoid:

- Softplus: `Relu(x) + v P(v)` with v = Sigmoid(-|x|), because log(1 + exp(-|x|)) = -log(1 - v)
- Elu: `Relu(x) + alpha (1 - 2v) P(v)` with v = Sigmoid(-Relu(-x)), because exp(-m) = v / (1 - v)
- Mish: `x (1 - u) P(u)` with u = Sigmoid(-x)^2, because tanh(softplus(x)) = (1 - u) / (1 + u)

The polynomials are of degree 5, through the Chebyshev points of the interval in which v or u lies.

## Why
The DLA computes none of them, but sigmoids, sums and products.

## Example
Mish of YOLOv4: Sigmoid, and fifteen products and sums.

## Refused
Integers; shapes that are not known; Elu, Selu and Celu whose curve reaches below -1.9, because its error grows with it.

## Safety
tolerance: for finite numbers at most 1e-4 away, relative to the largest result above 1 (measured: 5.2e-6 for Softplus,
5.2e-5 for Elu, 9.1e-5 for Selu, 5.2e-5 for Mish). Rounding in FP16 is larger.

## Source
Rows A05 and A01a of the acceptance catalogue. The error is measured over [-60, 60] in FP64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._approximations import decay, log_of_sum, reciprocal_of_sum
from orinport.rewrites.catalogue._pointwise import refused_input
from orinport.rewrites.catalogue._scalars import add, multiply, polynomial
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ActivationToSigmoid"]

_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
"""ONNX's defaults."""
_DEEPEST = 1.9
"""Alpha times gamma up to which the stated error holds."""


class ActivationToSigmoid(Rewrite):
    """Softplus, Elu, Selu, Celu and Mish become sigmoids and polynomials."""

    name = "activation-to-sigmoid"
    safety = Safety.TOLERANCE
    finite = True
    error = 1e-4
    op_types = ("Celu", "Elu", "Mish", "Selu", "Softplus")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if (refusal := refused_input(node, context)) is not None:
            return refusal
        depth = abs(_depth(node, context))
        if depth > _DEEPEST:
            return Refusal(f"its curve reaches to -{depth:g}, and the error grows with that past {_DEEPEST:g}")
        if node.op_type == "Celu" and not context.attribute(node, "alpha", 1.0) > 0.0:
            return Refusal("Celu with an alpha that is not positive is no bounded function")
        return Match((node,), (node.outputs[0],))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        value = node.inputs[0]
        assert value is not None
        if node.op_type == "Softplus":
            return (_softplus(builder, value),)
        if node.op_type == "Mish":
            return (_mish(builder, value),)
        alpha = float(builder.context.attribute(node, "alpha", _SELU_ALPHA if node.op_type == "Selu" else 1.0))
        if node.op_type == "Selu":
            gamma = float(builder.context.attribute(node, "gamma", _SELU_GAMMA))
            return (_elu(builder, value, alpha, gamma, 1.0),)
        return (_elu(builder, value, alpha, 1.0, 1.0 / alpha if node.op_type == "Celu" else 1.0),)


def _depth(node: ir.Node, context: RewriteContext) -> float:
    """How far below zero the exponential curve reaches; 0 for operators without one."""
    if node.op_type in ("Mish", "Softplus"):
        return 0.0
    if node.op_type == "Selu":
        alpha, gamma = context.attribute(node, "alpha", _SELU_ALPHA), context.attribute(node, "gamma", _SELU_GAMMA)
        return float(alpha) * float(gamma)
    return float(context.attribute(node, "alpha", 1.0))


def _softplus(builder: Builder, value: ir.Value) -> ir.Value:
    low = builder.op("Sigmoid", multiply(builder, builder.op("Abs", value), -1.0))
    rest = builder.op("Mul", low, polynomial(builder, low, log_of_sum()))
    return builder.op("Add", builder.op("Relu", value), rest)


def _elu(builder: Builder, value: ir.Value, alpha: float, gamma: float, inner: float) -> ir.Value:
    """`gamma max(x, 0) + gamma alpha (exp(inner min(x, 0)) - 1)`."""
    below = builder.op("Relu", multiply(builder, value, -1.0))
    low = builder.op("Sigmoid", multiply(builder, below, -inner))
    left = add(builder, multiply(builder, low, -2.0), 1.0)
    curve = builder.op("Mul", left, polynomial(builder, low, decay()))
    above = multiply(builder, builder.op("Relu", value), gamma)
    return builder.op("Add", above, multiply(builder, curve, alpha * gamma)) if alpha * gamma else above


def _mish(builder: Builder, value: ir.Value) -> ir.Value:
    """1 - u as s (2 - s) with s = Sigmoid(x): small where x is very negative, without a difference."""
    high = builder.op("Sigmoid", value)
    low = builder.op("Sigmoid", multiply(builder, value, -1.0))
    gate = builder.op("Mul", high, add(builder, low, 1.0))
    curve = polynomial(builder, builder.op("Mul", low, low), reciprocal_of_sum())
    return builder.op("Mul", value, builder.op("Mul", gate, curve))


REWRITE = ActivationToSigmoid()
