"""`LogSoftmax(x) -> Add(Sub(x, Max(x)), Log(Max(Softmax(x))))`: the logarithm of one number instead of all.

## What it does
`LogSoftmax(x) = x - max(x) + log(p)`, where p is the largest value of Softmax: 1 divided by the sum of
`exp(x - max(x))`. It lies between 1/n and 1, so its logarithm y can be computed: tangents of the logarithm give a first
guess, and two steps `y + 2 (p - e) / (p + e)` with `e = exp(y) = (Sigmoid(y / 4) / Sigmoid(-y / 4))^4` the rest.
Only Softmax itself, two maxima and two sums run over all n.

## Why
The parser makes a Softmax and a logarithm of it. Softmax the DLA has in FP16, a logarithm in no version; nor would the
logarithm of a Softmax in FP16 be of use: below 6e-8 it is 0.

## Example
The end of a classifier of 1000 classes: Softmax, two maxima, 35 layers on one value, Sub and Add.

## Refused
Targets whose DLA lacks DIV, and INT8, in which it has no Softmax: the reason says so. The batch as axis; integers;
shapes that are not known; below opset 13 Softmax over several dimensions at once.

## Safety
tolerance: for finite numbers at most 1e-5 away, relative to the largest result above 1 (the logarithm alone: 2e-8 for
up to 8192 classes, measured). Softmax in FP16 is good to about 1e-3, and so is the result.

## Source
Rows A01a, E03b, E05, M01b to M04, Q01a and U03 of the acceptance catalogue. The steps are Halley's method for
exp(y) = p. The error is measured in FP64.
"""

from __future__ import annotations

from math import ceil, log, prod
from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._axis import channels_first
from orinport.rewrites.catalogue._broadcast import spread
from orinport.rewrites.catalogue._movers import absorb
from orinport.rewrites.catalogue._norms import shape_to_divide
from orinport.rewrites.catalogue._scalars import add, multiply
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.rewrites.shuffle import Shuffle
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "LogSoftmaxToSoftmax"]

_ONE_DIMENSION = 13
"""Opset from which on Softmax works on one dimension."""
_AXES_AS_INPUT = 18
_RATIO = 9.0
"""Ends of the interval that one tangent covers; touching at 0.6 of it, its error stays below 0.6 there."""
_TOUCH = 0.6
_STEPS = 2
_SMALL = 0.1
"""Below, the exponential is computed of a quarter of its argument, to the fourth power."""


class LogSoftmaxToSoftmax(Rewrite):
    """A logarithm of n numbers becomes that of one."""

    name = "log-softmax-to-softmax"
    safety = Safety.TOLERANCE
    finite = True
    error = 1e-5
    op_types = ("LogSoftmax",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value = node.inputs[0]
        shape = shape_to_divide(
            value, context, "the DLA lacks DIV before TensorRT 10.3, or 8.6.12 on DRIVE, and LOG in every version"
        )
        if isinstance(shape, Refusal):
            return shape
        assert value is not None
        if context.target is not None and context.precision is Precision.INT8:
            return Refusal("the DLA has Softmax in FP16 only: name the layer with --fp16, or prepare in FP16")
        old = context.opset < _ONE_DIMENSION
        axis = int(context.attribute(node, "axis", 1 if old else -1)) % len(shape)
        merged = (*shape[:axis], prod(shape[axis:])) if old else shape
        if axis == 0 and len(shape) == 4 and shape[0] > 1:
            return Refusal("it goes over the batch")
        if old and prod(shape[1:axis]) > 1:
            return Refusal("below opset 13 Softmax has no form that goes over the channels alone")
        into = _merged(shape, merged, axis)
        source, start, movers = absorb(value, into, context)
        return Match((node, *movers), (node.outputs[0],), (source, start, into.inverse()))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        source, start, back = match.data
        value = builder.shuffle(source, start)
        shape = builder.shape(value)
        largest = _maximum(value, builder)
        rest = builder.op("Sub", value, spread(largest, shape, builder))
        share = _maximum(builder.op("Softmax", value, axis=1), builder)
        logarithm = _logarithm(share, 1.0 / shape[1], builder)
        return (builder.shuffle(builder.op("Add", rest, spread(logarithm, shape, builder)), back),)


def _merged(shape: tuple[int, ...], merged: tuple[int, ...], axis: int) -> Shuffle:
    inner = channels_first(merged, axis)
    return Shuffle.make(shape, inner.expand, inner.perm, inner.shape)


def _maximum(value: ir.Value, builder: Builder) -> ir.Value:
    if builder.context.opset < _AXES_AS_INPUT:
        return builder.op("ReduceMax", value, axes=[1], keepdims=1)
    return builder.op("ReduceMax", value, builder.ints([1], "axes"), keepdims=1)


def _logarithm(value: ir.Value, smallest: float, builder: Builder) -> ir.Value:
    """The logarithm of values between `smallest` and 1."""
    count = max(1, ceil(-log(smallest) / log(_RATIO)))
    ratio = smallest ** (-1.0 / count)
    guess: ir.Value | None = None
    for index in range(count):
        point = smallest * ratio ** (index + _TOUCH)
        line = add(builder, multiply(builder, value, 1.0 / point), log(point) - 1.0)
        guess = line if guess is None else builder.op("Min", guess, line)
    assert guess is not None
    halvings = 2 if smallest < _SMALL else 0
    for _ in range(_STEPS):
        power = _exponential(guess, halvings, builder)
        step = builder.op("Div", builder.op("Sub", value, power), builder.op("Add", value, power))
        guess = builder.op("Add", guess, multiply(builder, step, 2.0))
    return guess


def _exponential(value: ir.Value, halvings: int, builder: Builder) -> ir.Value:
    """`exp(value)` as a quotient of sigmoids, squared `halvings` times: those far from 0 are not exact."""
    part = multiply(builder, value, 0.5**halvings)
    below = builder.op("Sigmoid", multiply(builder, value, -(0.5**halvings)))
    power = builder.op("Div", builder.op("Sigmoid", part), below)
    for _ in range(halvings):
        power = builder.op("Mul", power, power)
    return power


REWRITE = LogSoftmaxToSoftmax()
