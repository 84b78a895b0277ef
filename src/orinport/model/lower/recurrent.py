"""RNN, GRU and LSTM, as loops over the sequence.

Source: onnx-tensorrt 10.10, RNNHelpers.cpp and onnxOpImporters.cpp. The order of layers follows the order in
which GCC evaluates arguments, from right to left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.arguments import integer, need, real, reals, text
from orinport.model.lower.network import Network, Ref, Refused, Unclear, slice_attributes
from orinport.model.lower.reduction import axis_length

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Operand, Outputs

__all__ = ["gru", "lstm", "rnn"]

_ACTIVATIONS = {
    "relu": "RELU",
    "tanh": "TANH",
    "sigmoid": "SIGMOID",
    "leakyrelu": "LEAKY_RELU",
    "thresholdedrelu": "THRESHOLDED_RELU",
    "scaledtanh": "SCALED_TANH",
    "hardsigmoid": "HARD_SIGMOID",
    "elu": "ELU",
    "softsign": "SOFTSIGN",
    "softplus": "SOFTPLUS",
}
_ALPHAS = {"ELU": 1.0, "HARD_SIGMOID": 0.2, "LEAKY_RELU": 0.01, "SCALED_TANH": 1.0, "THRESHOLDED_RELU": 1.0}
_BETAS = {"HARD_SIGMOID": 0.5, "SCALED_TANH": 1.0}


def loop_counter(net: Network) -> Ref:
    """A number that grows by one with every turn of the loop, from 0."""
    start, one = net.constant(0, net.int64, (1,)), net.constant(1, net.int64, (1,))
    counter = net.add(LayerKind.RECURRENCE, (start,), (1,), net.int64, base=None, constant=False)
    net.append_input(counter, net.elementwise(counter, one, "SUM", base=None))
    return counter


def loop_output(net: Network, ref: Ref, kind: str, length: Ref | None = None, axis: int = 0) -> Ref:
    """LOOP_OUTPUT; its shape is left to ONNX's inference where the number of turns is not known."""
    shape = ref.shape
    if kind != "LAST_VALUE":
        turns = None if length is None or length.values is None else int(length.values.reshape(-1)[0])
        shape = None if shape is None or turns is None else (*shape[:axis], turns, *shape[axis:])
    attributes = {"output": kind, "axis": axis}
    refs = (ref,) if length is None else (ref, length)
    return net.add(LayerKind.LOOP_OUTPUT, refs, shape, ref.dtype, attributes, base=None, constant=False)


class _Cell:
    """What RNN, GRU and LSTM have in common; methods add layers when they are called."""

    def __init__(self, net: Network, node: ir.Node, inputs: Inputs, defaults: Sequence[str]) -> None:
        self.net = net
        self.node = node
        self.inputs = inputs
        self.direction = text(node, "direction", "forward")
        self.both = self.direction == "bidirectional"
        self.count = 2 if self.both else 1
        self.size = integer(node, "hidden_size", 0)
        self.clip = real(node, "clip", -1.0)
        if self.size < 1:
            raise Refused("hidden_size is missing.")
        if self.direction not in {"forward", "reverse", "bidirectional"}:
            raise Refused(f"direction = {self.direction!r}.")
        self.input, self.weights, self.recurrence = (net.tensor(need(inputs, i)) for i in range(3))
        if self.input.shape is None or len(self.input.shape) != 3:
            raise Unclear("The shape of the input is unknown.")
        self.steps, self.batch, self.width = self.input.shape
        self.state = (self.count, self.batch, self.size)
        self.activations = self._activations(defaults)

    def _activations(self, defaults: Sequence[str]) -> list[tuple[str, float, float]]:
        attribute = self.node.attributes.get("activations")
        names = list(defaults)
        if attribute is not None:
            names = [_ACTIVATIONS.get(str(name).lower(), "") for name in attribute.value]
        if "" in names or len(names) < len(defaults):
            raise Refused("An activation that TensorRT does not have.")
        alphas, betas = reals(self.node, "activation_alpha") or (), reals(self.node, "activation_beta") or ()
        alphas += tuple(_ALPHAS.get(name, 0.0) for name in names[len(alphas) :])
        betas += tuple(_BETAS.get(name, 0.0) for name in names[len(betas) :])
        return list(zip(names, alphas, betas, strict=False))

    def given(self, index: int) -> Operand | None:
        """An optional input."""
        return self.inputs[index] if index < len(self.inputs) else None

    def wanted(self, index: int) -> bool:
        """Whether the node names its output; older parsers make all."""
        if not self.net.parser.has("rnn_wanted_outputs"):
            return True
        return index < len(self.node.outputs) and bool(self.node.outputs[index].name)

    def number(self, value: int) -> Ref:
        """A constant of one element."""
        return self.net.constant(value, DType.INT32, (1,))

    def state_shape(self) -> Ref:
        """(directions, batch, hidden size) as a tensor."""
        directions, size = self.number(self.count), self.number(self.size)
        batch = axis_length(self.net, self.input, 1, (1,))
        return self.net.concat([directions, batch, size], 0, base=None)

    def initial(self, index: int, shape: Ref) -> Ref:
        """An initial state; zeros of `shape` where none is given."""
        given = self.given(index)
        if given is not None:
            return self.net.tensor(given)
        return self.zeros(shape)

    def zeros(self, shape: Ref) -> Ref:
        """A state of zeros."""
        net = self.net
        zero = net.constant(0.0, DType.FP32, (1,))
        spread = net.shuffle(zero, (1, 1, 1), base=net.helper("ShapeShuffle"))
        attributes = slice_attributes((0, 0, 0), self.state, (0, 0, 0))
        base = net.helper("ShapeSlice")
        return net.add(LayerKind.SLICE, (spread, shape), self.state, DType.FP32, attributes, base=base, constant=True)

    def bias(self, gates: int) -> Ref | None:
        """The sum of the two biases, or None."""
        given = self.given(3)
        if given is None:
            return None
        parts = self.net.shuffle(self.net.tensor(given), (self.count, 2, gates * self.size), base=None)
        return self.net.reduce(parts, "SUM", [1], True, base=None)

    def start_loop(self) -> None:
        """TRIP_LIMIT."""
        length = axis_length(self.net, self.input, 0)
        self.net.add_layer(LayerKind.TRIP_LIMIT, (length,), (), {"limit": "COUNT"}, base=None)

    def iterate(self) -> Ref:
        """The input of one turn, of both directions where there are two."""
        net = self.net
        ragged = self.given(4) is not None
        if not self.both:
            reverse = self.direction == "reverse"
            item = net.unsqueeze(self._iterator(reverse), [0])
            if not ragged:
                return item
            lengths = self.lengths()
            return self.clear(item, lengths, axis_length(net, self.input, 0), reverse)
        iterators = [self._iterator(False), self._iterator(True)]
        items = [net.unsqueeze(item, [0]) for item in iterators]
        if ragged:
            lengths = self.lengths()
            counter = loop_counter(net)
            longest = axis_length(net, self.input, 0)
            items = [self.clear(items[i], lengths, longest, bool(i), counter) for i in (0, 1)]
        return net.concat(items, 0, base=None)

    def _iterator(self, reverse: bool) -> Ref:
        shape = (self.batch, self.width)
        attributes = {"axis": 0, "reverse": reverse}
        source = self.input
        return self.net.add(
            LayerKind.ITERATOR, (source,), shape, source.dtype, attributes, base=None, constant=source.constant
        )

    def lengths(self) -> Ref:
        """The lengths of the sequences."""
        return self.net.tensor(need(self.inputs, 4))

    def clear(self, item: Ref, lengths: Ref, longest: Ref, reverse: bool, counter: Ref | None = None) -> Ref:
        """Zeros where a sequence has ended."""
        zero = self.net.constant(0.0, DType.FP32, (1, 1, 1))
        mask = self._mask(lengths, longest, reverse, counter)
        return self.net.select(mask, item, zero, base=None)

    def _mask(self, lengths: Ref, longest: Ref, reverse: bool, counter: Ref | None) -> Ref:
        net = self.net
        counter = counter or loop_counter(net)
        if net.parser.has("int64"):
            counter = net.cast(counter, DType.INT32)
        if reverse:
            left = net.elementwise(net.unsqueeze(longest, [0]), counter, "SUB", base=None)
            mask = net.unary(net.elementwise(lengths, left, "LESS", base=None), "NOT", base=None)
        else:
            mask = net.elementwise(counter, lengths, "LESS", base=None)
        return net.unsqueeze(mask, [0, 2])

    def keep_ended(self, before: Ref, after: Ref, single: Ref) -> Ref:
        """The state after a turn, as it was where a sequence has ended."""
        if self.given(4) is None:
            return after
        net = self.net
        lengths = self.lengths()
        longest = axis_length(net, self.input, 0)
        if not self.both:
            return self._kept(before, after, lengths, longest, self.direction == "reverse", None)
        starts = [net.constant([i, 0, 0], DType.INT32) for i in (0, 1)]
        new = [self._half(after, start, single, i) for i, start in enumerate(starts)]
        old = [self._half(before, start, single, i) for i, start in enumerate(starts)]
        counter = loop_counter(net)
        kept = [self._kept(old[i], new[i], lengths, longest, bool(i), counter) for i in (0, 1)]
        return net.concat(kept, 0, base=None)

    def _kept(self, before: Ref, after: Ref, lengths: Ref, longest: Ref, reverse: bool, counter: Ref | None) -> Ref:
        return self.net.select(self._mask(lengths, longest, reverse, counter), after, before, base=None)

    def _half(self, ref: Ref, start: Ref, single: Ref, index: int) -> Ref:
        size = (1, self.batch, self.size)
        attributes = slice_attributes((index, 0, 0), size, (1, 1, 1))
        refs = (ref, start, single)
        return self.net.add(LayerKind.SLICE, refs, size, ref.dtype, attributes, base=None, constant=False)

    def state_layer(self, initial: Ref, *, named: bool) -> Ref:
        """RECURRENCE."""
        base = "" if named else None
        return self.net.add(LayerKind.RECURRENCE, (initial,), self.state, initial.dtype, base=base, constant=False)

    def gate(self, gates: Ref, index: int, shape: Ref) -> Ref:
        """One gate of several that lie side by side."""
        attributes = slice_attributes((0, 0, index * self.size), self.state, (1, 1, 1))
        out = self.net.add(LayerKind.SLICE, (gates,), self.state, gates.dtype, attributes, base=None, constant=False)
        self.net.append_input(out, self.net.constant([0, 0, index * self.size], DType.INT32))
        self.net.append_input(out, shape)
        return out

    def activate(self, ref: Ref, index: int) -> Ref:
        """A clip, where there is one, and activation number `index`."""
        if self.clip >= 0.0:
            ref = self.net.activation(ref, "CLIP", -self.clip, self.clip, base=None)
        return self.net.activation(ref, *self.activations[index], base=None)

    def single_shape(self, shape: Ref | None = None) -> Ref:
        """(1, batch, hidden size), from (directions, batch, hidden size) or from scratch."""
        divisor = self.net.constant([self.count, 1, 1], DType.INT32)
        return self.net.elementwise(shape or self.state_shape(), divisor, "DIV", base=None)

    def product(self, a: Ref, b: Ref) -> Ref:
        """a * transposed b."""
        return self.net.matmul(a, "NONE", b, "TRANSPOSE", base=None)

    def op(self, a: Ref, b: Ref, op: str) -> Ref:
        """ELEMENTWISE."""
        return self.net.elementwise(a, b, op, base=None)

    def outputs(self, state: Ref, before: Sequence[Ref], single: Ref) -> Outputs:
        """The states of all turns, then the last ones."""
        out: Outputs = []
        for index in range(1 + len(before)):
            if not self.wanted(index):
                out.append(Ref("", None, DType.UNKNOWN))
            elif index:
                out.append(loop_output(self.net, before[index - 1], "LAST_VALUE"))
            else:
                out.append(self._all(state, single))
        return out

    def _all(self, state: Ref, single: Ref) -> Ref:
        net = self.net
        length = axis_length(net, self.input, 0)
        ragged = self.given(4) is not None
        if not self.both:
            reverse = self.direction == "reverse"
            if ragged:
                state = self.clear(state, self.lengths(), length, reverse)
            return loop_output(net, state, "REVERSE" if reverse else "CONCATENATE", length)
        starts = [net.constant([i, 0, 0], DType.INT32) for i in (0, 1)]
        halves = [self._half(state, start, single, i) for i, start in enumerate(starts)]
        if ragged:
            lengths = self.lengths()
            halves = [self.clear(half, lengths, length, bool(i)) for i, half in enumerate(halves)]
        passes = [loop_output(net, half, ("CONCATENATE", "REVERSE")[i], length) for i, half in enumerate(halves)]
        return net.concat(passes, 1, base=None)


def rnn(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """RNN to a loop."""
    both = text(node, "direction", "forward") == "bidirectional"
    cell = _Cell(net, node, inputs, ("TANH",) * (2 if both else 1))
    bias = cell.bias(1)
    given = cell.given(5)
    initial = net.tensor(given) if given is not None else cell.zeros(cell.state_shape())
    cell.start_loop()
    item = cell.iterate()
    before = cell.state_layer(initial, named=True)
    total = cell.product(item, cell.weights)
    total = cell.op(total, cell.product(before, cell.recurrence), "SUM")
    if bias is not None:
        total = cell.op(total, bias, "SUM")
    after = cell.activate(total, 0)
    single = cell.single_shape()
    after = cell.keep_ended(before, after, single)
    net.append_input(before, after)
    return cell.outputs(after, [before], single)


def lstm(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """LSTM to a loop."""
    both = text(node, "direction", "forward") == "bidirectional"
    cell = _Cell(net, node, inputs, ("SIGMOID", "TANH", "TANH") * (2 if both else 1))
    bias = cell.bias(4)
    shape = cell.state_shape()
    initial_hidden, initial_cell = cell.initial(5, shape), cell.initial(6, shape)
    cell.start_loop()
    item = cell.iterate()
    hidden = cell.state_layer(initial_hidden, named=True)
    memory = cell.state_layer(initial_cell, named=False)
    total = cell.product(item, cell.weights)
    total = cell.op(total, cell.product(hidden, cell.recurrence), "SUM")
    if bias is not None:
        total = cell.op(total, bias, "SUM")
    given = cell.given(7)
    peephole = None if given is None else net.tensor(given)

    def peep(gate: Ref, state: Ref, index: int) -> Ref:
        if peephole is None:
            return gate
        part = net.slice(peephole, (0, index * cell.size), (cell.count, cell.size), (1, 1), base=None)
        return cell.op(gate, cell.op(net.unsqueeze(part, [1]), state, "PROD"), "SUM")

    put = cell.activate(peep(cell.gate(total, 0, shape), memory, 0), 0)
    forget = cell.activate(peep(cell.gate(total, 2, shape), memory, 2), 0)
    fresh = cell.activate(cell.gate(total, 3, shape), 1)
    added = cell.op(put, fresh, "PROD")
    new_memory = cell.op(cell.op(forget, memory, "PROD"), added, "SUM")
    single = cell.single_shape(shape)
    new_memory = cell.keep_ended(memory, new_memory, single)
    net.append_input(memory, new_memory)
    out = cell.activate(peep(cell.gate(total, 1, shape), new_memory, 1), 0)
    new_hidden = cell.op(out, cell.activate(new_memory, 2), "PROD")
    new_hidden = cell.keep_ended(hidden, new_hidden, single)
    net.append_input(hidden, new_hidden)
    return cell.outputs(new_hidden, [hidden, memory], single)


def _gru_weights(cell: _Cell) -> tuple[Ref, Ref, Ref, Ref]:
    """The weights of both gates, of the new state, and the same of the recurrence."""
    net, size, count = cell.net, cell.size, cell.count
    directions, single, double = cell.number(count), cell.number(size), cell.number(2 * size)
    width = axis_length(net, cell.input, 2, (1,))

    def part(first: int, rows: Ref, extent: int) -> Ref:
        start = net.constant([0, first, 0], DType.INT32)
        shape = net.concat([directions, rows, width], 0, base=None)
        sizes = (count, extent, cell.width)
        attributes = slice_attributes((0, first, 0), sizes, (1, 1, 1))
        return net.add(LayerKind.SLICE, (cell.weights, start, shape), sizes, cell.weights.dtype, attributes, base=None)

    gates, state = part(0, double, 2 * size), part(2 * size, single, size)
    again = net.slice(cell.recurrence, (0, 0, 0), (count, 2 * size, size), (1, 1, 1), base=None)
    again_state = net.slice(cell.recurrence, (0, 2 * size, 0), (count, size, size), (1, 1, 1), base=None)
    return gates, state, again, again_state


def _gru_biases(cell: _Cell) -> list[Ref] | None:
    """The biases of both gates, of the new state, and the same of the recurrence."""
    given = cell.given(3)
    if given is None:
        return None
    net, size, count = cell.net, cell.size, cell.count
    whole = net.shuffle(net.tensor(given), (count, 1, 6 * size), base=None)
    places = ((0, 2 * size), (2 * size, size), (3 * size, 2 * size), (5 * size, size))
    return [net.slice(whole, (0, 0, first), (count, 1, extent), (1, 1, 1), base=None) for first, extent in places]


def gru(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """GRU to a loop."""
    both = text(node, "direction", "forward") == "bidirectional"
    cell = _Cell(net, node, inputs, ("SIGMOID", "TANH") * (2 if both else 1))
    gates, state, again, again_state = _gru_weights(cell)
    biases = _gru_biases(cell)
    shape = cell.state_shape()
    cell.start_loop()
    item = cell.iterate()
    hidden = cell.state_layer(cell.initial(5, shape), named=True)
    stacked = cell.product(item, gates)
    stacked = cell.op(stacked, cell.product(hidden, again), "SUM")
    if biases:
        stacked = cell.op(cell.op(stacked, biases[0], "SUM"), biases[2], "SUM")
    stacked = cell.activate(stacked, 0)
    update, reset = cell.gate(stacked, 0, shape), cell.gate(stacked, 1, shape)
    fresh = cell.product(item, state)
    if integer(node, "linear_before_reset", 0) == 0:
        old = cell.product(cell.op(reset, hidden, "PROD"), again_state)
        fresh = cell.op(fresh, old, "SUM")
        if biases:
            fresh = cell.op(fresh, cell.op(biases[3], biases[1], "SUM"), "SUM")
    else:
        old = cell.product(hidden, again_state)
        if biases:
            old = cell.op(old, biases[3], "SUM")
        old = cell.op(reset, old, "PROD")
        if biases:
            old = cell.op(old, biases[1], "SUM")
        fresh = cell.op(fresh, old, "SUM")
    fresh = cell.activate(fresh, 1)
    one = net.constant(np.float32(1.0), update.dtype, (1, 1, 1))
    kept = cell.op(update, hidden, "PROD")
    after = cell.op(cell.op(cell.op(one, update, "SUB"), fresh, "PROD"), kept, "SUM")
    single = cell.single_shape(shape)
    after = cell.keep_ended(hidden, after, single)
    net.append_input(hidden, after)
    return cell.outputs(after, [hidden], single)
