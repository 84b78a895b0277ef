"""RNN, GRU and LSTM taken apart into the steps of their sequence: what the three have in common.

The sequence enters as (n, I, 1, T), or with w > 1 sequences side by side as (n, I, T, w), and one 1x1 convolution a
gate projects all of its steps at once. The projections are split into steps; a state is a tensor (n, H, 1, w), and
each step multiplies it by its own 1x1 convolutions. n times w is ONNX's batch: its sequences are the images of the
network's batch, or else positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from orinport.rewrites.catalogue._constants import shrink
from orinport.rewrites.catalogue._movers import absorb, shuffle_of
from orinport.rewrites.catalogue._runtime_product import network_batch
from orinport.rewrites.catalogue._windows import Window, build_conv
from orinport.rewrites.limits import fits_buffer
from orinport.rewrites.rewrite import Match, Refusal
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["BOUNDED", "Cell", "Recurrence", "Step", "Term", "apart", "match_recurrence", "only_returned", "unroll"]

Term = ir.Value | NDArray[Any] | None
"""A tensor (n, H, 1, w): made at run time, constant, or None for zeros."""

BOUNDED = ("Sigmoid", "Tanh")
"""Activations whose result is never infinite."""

_ACTIVATIONS = (*BOUNDED, "Relu")
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_POINT = Window((1, 1), (1, 1), (0, 0), (0, 0), (1, 1))


@dataclass(frozen=True, slots=True)
class Recurrence:
    """One RNN, GRU or LSTM.

    `backwards` has one entry a direction, as have `activations` and the first dimension of `weights` (D, G, H, I),
    `recurrent` (D, G, H, H), `bias` and `recurrent_bias` (D, G, H). `into` leads from `source` to the sequence on the
    board. `states` are the initial states, (D, N, H) or with `batch_first` (N, D, H).
    """

    source: ir.Value
    into: Shuffle
    steps: int
    images: int
    beside: int
    hidden: int
    batch_first: bool
    backwards: tuple[bool, ...]
    activations: tuple[tuple[str, ...], ...]
    weights: NDArray[Any]
    recurrent: NDArray[Any]
    bias: NDArray[np.float64]
    recurrent_bias: NDArray[np.float64]
    states: tuple[Term, ...]


class Cell:
    """One direction while it is unrolled; `activations` are those of ONNX's letters f, g, h."""

    def __init__(self, data: Recurrence, direction: int, builder: Builder) -> None:
        self.activations = data.activations[direction]
        self._matrices = data.recurrent[direction]
        self._biases = data.recurrent_bias[direction]
        self._kernels: dict[tuple[int, bool], list[ir.Value]] = {}
        self._builder = builder

    def product(self, gate: int, state: Term, *, biased: bool = False) -> Term:
        """The recurrent product of a gate, with its own bias if `biased`."""
        bias = self._biases[gate]
        matrix = self._matrices[gate]
        if state is None:
            return bias.astype(matrix.dtype).reshape(1, -1, 1, 1) if biased and bias.any() else None
        if not isinstance(state, ir.Value):
            total = np.einsum("oi,niyx->noyx", matrix.astype(np.float64), state)
            total = total + bias.reshape(1, -1, 1, 1) if biased else total
            return np.asarray(total.astype(matrix.dtype))
        if (gate, biased) not in self._kernels:
            kernel = [self._builder.constant(matrix[:, :, None, None], "recurrent_weights")]
            if biased and bias.any():
                kernel.append(self._builder.constant(bias.astype(matrix.dtype), "recurrent_bias"))
            self._kernels[gate, biased] = kernel
        weights, *rest = self._kernels[gate, biased]
        return build_conv(self._builder, state, weights, rest[0] if rest else None, _POINT)

    def activate(self, letter: int, value: Term) -> ir.Value:
        """`value` through f, g or h; it is made at run time."""
        assert isinstance(value, ir.Value)
        return self._builder.op(self.activations[letter], value)

    def add(self, left: Term, right: Term) -> Term:
        """Their sum."""
        if left is None or right is None:
            return right if left is None else left
        return self._binary("Add", left, right)

    def subtract(self, left: Term, right: ir.Value) -> Term:
        """Their difference."""
        if left is None:
            return self._binary("Mul", right, np.full((1, 1, 1, 1), -1.0, self._builder.numpy_dtype(right)))
        return self._binary("Sub", left, right)

    def multiply(self, left: Term, right: Term) -> Term:
        """Their product."""
        return None if left is None or right is None else self._binary("Mul", left, right)

    def complement(self, value: ir.Value) -> ir.Value:
        """1 - `value`, as a scale and a shift."""
        dtype = self._builder.numpy_dtype(value)
        minus = self._binary("Mul", value, np.full((1, 1, 1, 1), -1.0, dtype))
        return self._binary("Add", minus, np.full((1, 1, 1, 1), 1.0, dtype))

    def _binary(self, op_type: str, *terms: ir.Value | NDArray[Any]) -> ir.Value:
        values = [term if isinstance(term, ir.Value) else self._builder.constant(shrink(term)) for term in terms]
        return self._builder.op(op_type, *values)


Step = Callable[[Cell, Sequence[ir.Value], Sequence[Term]], Sequence[Term]]
"""One step: the cell, the projection of each gate, the states before; gives the states after, H first."""


def match_recurrence(
    node: ir.Node, context: RewriteContext, *, gates: int, letters: tuple[str, ...], nodes: int, states: int
) -> Match | Refusal:
    """What all three kinds ask of a node. `letters` are the default activations, `nodes` what one step takes."""
    shape, dtype = context.shape(node.inputs[0]), context.dtype(node.inputs[0])
    source = node.inputs[0]
    if source is None or shape is None or len(shape) != 3 or 0 in shape:
        return Refusal("the shape of the sequence is not known or empty")
    if context.is_constant(source):
        return Refusal("its sequence is constant")
    if not context.is_float(source):
        return Refusal(f"convolutions do not take {dtype}")
    batch_first = bool(context.attribute(node, "layout", 0))
    batch, steps = shape[:2] if batch_first else (shape[1], shape[0])
    backwards = _DIRECTIONS.get(context.attribute(node, "direction", "forward"))
    if backwards is None:
        return Refusal(f"the direction {context.attribute(node, 'direction')!r} is not known")
    refusal = _refusal(node, steps, batch, context)
    if refusal is not None:
        return refusal
    activations = _activations(node, len(backwards), letters, context)
    if isinstance(activations, Refusal):
        return activations
    total = steps * len(backwards) * nodes
    if total > context.cost.nodes:
        return Refusal(f"unrolled it would be about {total} nodes, more than the limit of {context.cost.nodes}")
    arrays = [context.constant(context.input(node, index)) for index in (1, 2)]
    given_bias = context.input(node, 3)
    bias = context.constant(given_bias)
    if arrays[0] is None or arrays[1] is None or (given_bias is not None and bias is None):
        return Refusal("the weights are known at run time only")
    hidden = arrays[1].shape[-1]
    directions = len(backwards)
    weights = arrays[0].reshape(directions, gates, hidden, shape[2])
    biases = np.zeros((directions, 2, gates, hidden)) if bias is None else bias.astype(np.float64)
    biases = biases.reshape(directions, 2, gates, hidden)
    images, beside = (batch, 1) if batch == network_batch(context) else (1, batch)
    limit = context.limit("G05", "max")
    if max(steps, beside, shape[2], directions * hidden) > limit:
        largest = max(steps, beside, shape[2], directions * hidden)
        return Refusal(f"a dimension of {largest} exceeds the DLA's limit of {limit}")
    across = beside == 1 and fits_buffer(context, shape[2], steps)
    board = (images, shape[2], 1, steps) if across else (images, shape[2], steps, beside)
    source, into, movers = absorb(source, Shuffle.make(shape, shape, _entering(batch_first, beside), board), context)
    data = Recurrence(
        source=source,
        into=into,
        steps=steps,
        images=images,
        beside=beside,
        hidden=hidden,
        batch_first=batch_first,
        backwards=backwards,
        activations=activations,
        weights=weights,
        recurrent=arrays[1].reshape(directions, gates, hidden, hidden),
        bias=biases[:, 0],
        recurrent_bias=biases[:, 1],
        states=tuple(_state(context.input(node, 5 + index), context) for index in range(states)),
    )
    outputs = tuple(value for value in node.outputs if value.uses() or value.is_graph_output())
    if not outputs:
        return Refusal("nothing reads it")
    return Match((node, *movers), outputs, data)


def unroll(data: Recurrence, step: Step, match: Match, builder: Builder, *, merged: Sequence[int]) -> list[ir.Value]:
    """Every step of every direction; gives what `match.outputs` asks for.

    `merged` are the gates whose recurrent bias is added together with the input's.
    """
    sequence = builder.shuffle(data.source, data.into)
    initial = [_per_direction(state, data, builder) for state in data.states]
    history: list[list[Sequence[Term]]] = []
    for direction, backwards in enumerate(data.backwards):
        cell = Cell(data, direction, builder)
        inputs = _projections(sequence, data, direction, merged, builder)
        states: Sequence[Term] = [state[direction] for state in initial]
        passed: list[Sequence[Term]] = []
        for index in reversed(range(data.steps)) if backwards else range(data.steps):
            states = step(cell, [gate[index] for gate in inputs], states)
            passed.append(states)
        history.append(passed)
    outputs = list(match.nodes[0].outputs)
    return [_output(value, outputs.index(value), data, history, builder) for value in match.outputs]


def _refusal(node: ir.Node, steps: int, batch: int, context: RewriteContext) -> Refusal | None:
    if context.attribute(node, "clip") is not None:
        return Refusal("it clips its cells, which no layer here does")
    if context.attribute(node, "input_forget", 0):
        return Refusal("its input and forget gates are coupled")
    lengths = context.input(node, 4)
    if lengths is not None:
        given = context.constant(lengths)
        if given is None or not np.array_equal(given, np.full(batch, steps)):
            return Refusal("sequence_lens lets sequences end early, and steps on the DLA are the same for all")
    peepholes = context.input(node, 7)
    if peepholes is not None:
        given = context.constant(peepholes)
        if given is None or given.any():
            return Refusal("it has peepholes: its gates read the cell")
    return None


def _activations(
    node: ir.Node, directions: int, letters: tuple[str, ...], context: RewriteContext
) -> tuple[tuple[str, ...], ...] | Refusal:
    names = [str(name) for name in context.attribute(node, "activations", letters * directions)]
    known = {name.lower(): name for name in _ACTIVATIONS}
    for name in names:
        if name.lower() not in known:
            return Refusal(f"the DLA has no {name}")
    if len(names) != directions * len(letters):
        return Refusal(f"{len(names)} activations do not fit {directions} directions")
    chosen = [known[name.lower()] for name in names]
    if len(letters) > 1 and any(name not in BOUNDED for name in chosen[:: len(letters)]):
        return Refusal("its gates have no upper bound, so that rounding grows from step to step")
    return tuple(tuple(chosen[start : start + len(letters)]) for start in range(0, len(chosen), len(letters)))


def _state(value: ir.Value | None, context: RewriteContext) -> Term:
    """An initial state; None for zeros."""
    if value is None:
        return None
    constant = context.constant(value)
    if constant is None:
        return value
    return constant if constant.any() else None


def _entering(batch_first: bool, beside: int) -> tuple[int, ...]:
    """From ONNX's (T, N, I) or (N, T, I) to (N, I, T), or to (I, T, N) where the batch lies beside the steps."""
    if beside > 1:
        return (2, 1, 0) if batch_first else (2, 0, 1)
    return (0, 2, 1) if batch_first else (1, 2, 0)


def _per_direction(state: Term, data: Recurrence, builder: Builder) -> list[Term]:
    """An initial state as one tensor (n, H, 1, w) for each direction."""
    directions = len(data.backwards)
    if state is None:
        return [None] * directions
    shape = tuple(int(dim) for dim in state.shape)  # type: ignore[union-attr, arg-type]
    if data.beside > 1:
        perm = (1, 2, 0) if data.batch_first else (0, 2, 1)
    else:
        perm = (0, 1, 2) if data.batch_first else (1, 0, 2)
    into = Shuffle.make(shape, shape, perm, (data.images, directions * data.hidden, 1, data.beside))
    if not isinstance(state, ir.Value):
        return list(np.split(into.apply(state), directions, axis=1))
    value = builder.shuffle(state, into)
    if directions == 1:
        return [value]
    value = apart(value, builder)
    return [builder.slice(value, 1, index * data.hidden, (index + 1) * data.hidden) for index in range(directions)]


def _projections(
    sequence: ir.Value, data: Recurrence, direction: int, merged: Sequence[int], builder: Builder
) -> list[list[ir.Value]]:
    """The input's part of each gate, for each step."""
    dtype = builder.numpy_dtype(sequence)
    axis = 3 if builder.shape(sequence)[2] == 1 else 2
    gates = []
    for gate, matrix in enumerate(data.weights[direction]):
        bias = data.bias[direction, gate] + (data.recurrent_bias[direction, gate] if gate in merged else 0.0)
        weights = builder.constant(matrix.astype(dtype)[:, :, None, None], "weights")
        shift = builder.constant(bias.astype(dtype), "bias") if bias.any() else None
        gates.append(_split(build_conv(builder, sequence, weights, shift, _POINT), axis, data.steps, builder))
    return gates


def _split(value: ir.Value, axis: int, parts: int, builder: Builder) -> list[ir.Value]:
    """`value` in equal parts of one step each."""
    if parts == 1:
        return [value]
    number = parts if builder.context.opset >= 18 else None
    first = builder.op("Split", value, outputs=parts, axis=axis, num_outputs=number)
    producer = first.producer()
    assert producer is not None
    return list(producer.outputs)


def _output(
    old: ir.Value, index: int, data: Recurrence, history: Sequence[Sequence[Sequence[Term]]], builder: Builder
) -> ir.Value:
    """Y, Y_h or Y_c, in place of `old`: the states of all steps, or those after the last."""
    inside = not only_returned(old, builder.context)
    if index:
        last = [_value(passed[-1][index - 1]) for passed in history]
        joined = builder.op("Concat", *last, axis=1) if len(last) > 1 else last[0]
        joined = apart(joined, builder) if inside and len(last) > 1 else joined
        return builder.shuffle(joined, _leaving(builder.shape(joined), data, ()))
    in_time = [passed[::-1] if backwards else passed for passed, backwards in zip(history, data.backwards, strict=True)]
    states = [_value(direction[time][0]) for time in range(data.steps) for direction in in_time]
    joined = _stack(states, len(data.backwards), builder)
    joined = apart(joined, builder) if inside and len(states) > 1 else joined
    return builder.shuffle(joined, _leaving(builder.shape(joined), data, (data.steps,)))


def apart(value: ir.Value, builder: Builder) -> ir.Value:
    """`value` through a depthwise convolution of ones: no reshape may stand next to a Slice or Concat (N05)."""
    channels = builder.shape(value)[1]
    ones = builder.constant(np.ones((channels, 1, 1, 1), builder.numpy_dtype(value)), "ones")
    return build_conv(builder, value, ones, None, _POINT, channels)


def only_returned(value: ir.Value, context: RewriteContext) -> bool:
    """Shape movers alone stand between the value and outputs of the network, where edges move."""
    readers = context.consumers(value)
    ends = [shuffle_of(reader, context) is not None and only_returned(reader.outputs[0], context) for reader in readers]
    return all(ends) and (bool(readers) or value.is_graph_output())


def _value(term: Term) -> ir.Value:
    assert isinstance(term, ir.Value)
    return term


def _stack(values: Sequence[ir.Value], directions: int, builder: Builder) -> ir.Value:
    """All states in one tensor, as channels; with too many channels as rows, T channels of D * H."""
    images, hidden, _, beside = builder.shape(values[0])
    limit = builder.context.limit("G05", "max")
    if len(values) == 1:
        return values[0]
    if len(values) * hidden <= limit:
        return builder.op("Concat", *values, axis=1)
    each = limit // (directions * hidden) * directions
    parts = []
    for start in range(0, len(values), each):
        part = values[start : start + each]
        joined = builder.op("Concat", *part, axis=1) if len(part) > 1 else part[0]
        rows = (images, len(part) // directions, directions * hidden, beside)
        parts.append(apart(builder.reshape(apart(joined, builder), rows), builder))
    return builder.op("Concat", *parts, axis=1)


def _leaving(before: tuple[int, ...], data: Recurrence, steps: tuple[int, ...]) -> Shuffle:
    """From states on the board to ONNX's order, with the steps in front if there are any."""
    directions, hidden, batch = len(data.backwards), data.hidden, data.images * data.beside
    extra = len(steps)
    if data.beside > 1:
        expand = (*steps, directions, hidden, batch)
        n, d, h = extra + 2, extra, extra + 1
        time = tuple(range(extra))
    else:
        expand = (batch, *steps, directions, hidden)
        n, d, h = 0, extra + 1, extra + 2
        time = tuple(range(1, extra + 1))
    perm = (n, *time, d, h) if data.batch_first else (*time, d, n, h)
    return Shuffle.make(before, expand, perm, [expand[axis] for axis in perm])
