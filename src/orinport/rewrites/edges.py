"""Edges: where only the network's edge keeps a layer off the DLA, the board's model takes or gives the 4-D tensor.

A shape mover at an input or an output does no work, but its rank keeps it off the DLA. `move_edges` drops it and
records how the board's tensor comes from the original one:

    board = original.reshape(expand).transpose(perm).reshape(shape)

for inputs, and the same inverted for outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from orinport.model.load import declared_inputs
from orinport.model.model import shape_of
from orinport.rewrites.catalogue._movers import shuffle_of
from orinport.rewrites.context import RewriteContext, label
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from orinport.model.model import Model

    Sample = Mapping[str, NDArray[Any]]

__all__ = ["EdgeMapping", "board_feed", "move_edges", "moved_inputs", "prepared_shapes"]


@dataclass(frozen=True, slots=True)
class EdgeMapping:
    """How an input or output of the board's model comes from the original one.

    `kind` is `input` or `output`, `shape` the shape on the board. The name is the same on both sides.
    """

    kind: str
    name: str
    original_shape: tuple[int, ...]
    expand: tuple[int, ...]
    perm: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, kind: str, name: str, shuffle: Shuffle) -> EdgeMapping:
        """The mapping that does what `shuffle` does, from the original to the board."""
        return cls(kind, name, shuffle.before, shuffle.expand or (1,), shuffle.perm or (0,), shuffle.shape)

    @classmethod
    def from_document(cls, document: Mapping[str, Any], kind: str) -> EdgeMapping:
        """Read back what `document` wrote. Raises KeyError, TypeError or ValueError if it is no such mapping."""
        parts = [tuple(int(dim) for dim in document[key]) for key in ("original_shape", "expand", "perm", "shape")]
        if len({prod(parts[0]), prod(parts[1]), prod(parts[3])}) > 1 or sorted(parts[2]) != [*range(len(parts[1]))]:
            raise ValueError("an edge that moves to another number of elements")
        return cls(str(document.get("kind", kind)), str(document["name"]), parts[0], parts[1], parts[2], parts[3])

    def document(self) -> dict[str, Any]:
        """For `report.json`, under `io`."""
        return {
            "kind": self.kind,
            "name": self.name,
            "original_shape": list(self.original_shape),
            "expand": list(self.expand),
            "perm": list(self.perm),
            "shape": list(self.shape),
        }

    def to_board(self, array: NDArray[Any]) -> NDArray[Any]:
        """An original tensor as the board's model has it, contiguous."""
        import numpy as np

        return np.ascontiguousarray(array.reshape(self.expand).transpose(self.perm).reshape(self.shape))

    def from_board(self, array: NDArray[Any]) -> NDArray[Any]:
        """A tensor of the board's model as the original has it, contiguous."""
        import numpy as np

        back = np.argsort(self.perm)
        moved = [self.expand[axis] for axis in self.perm]
        return np.ascontiguousarray(array.reshape(moved).transpose(back).reshape(self.original_shape))


def moved_inputs(edges: Iterable[EdgeMapping]) -> dict[str, EdgeMapping]:
    """The mappings of inputs, by name."""
    return {edge.name: edge for edge in edges if edge.kind == "input"}


def board_feed(edges: Iterable[EdgeMapping]) -> Callable[[Sample], Sample] | None:
    """Turns a sample of the original network, arrays by input, into one of the network whose edges were moved.

    None if no input was moved.
    """
    moved = moved_inputs(edges)
    if not moved:
        return None
    return lambda sample: {name: moved[name].to_board(a) if name in moved else a for name, a in sample.items()}


def move_edges(
    model: Model, *, judge: Callable[[ir.Model], Collection[str]] | None = None, ranks: tuple[int, ...] = (4,)
) -> tuple[Model, tuple[EdgeMapping, ...]]:
    """A copy of `model` whose inputs and outputs are 4-D where shape movers at the edge made them so; and how.

    An input is moved if all that reads it are shape movers that do the same and give one of `ranks`
    dimensions; an output if it comes from a shape mover that reads such a tensor. With a `judge`, which says
    what the DLA does not take, an edge is moved only if the mover nearest to it is of that kind, and only
    between the edge and a node on the DLA; the movers behind it go with it.
    """
    from orinport.model.save import copy_model

    copy = copy_model(model)
    mover = _EdgeMover(copy.ir, None if judge is None else frozenset(judge(copy.ir)), ranks)
    mappings = [mover.input(value) for value in list(copy.ir.graph.inputs)]
    mappings += [mover.output(index) for index in range(len(copy.ir.graph.outputs))]
    return copy, tuple(mapping for mapping in mappings if mapping is not None)


class _EdgeMover:
    def __init__(self, model: ir.Model, off: frozenset[str] | None, ranks: tuple[int, ...]) -> None:
        self.graph = model.graph
        self.context = RewriteContext(model)
        self._off = off
        self._ranks = ranks

    def input(self, value: ir.Value) -> EdgeMapping | None:
        """Drop the movers that read an input."""
        original = self.context.shape(value)
        total: Shuffle | None = None
        while original is not None and self._leads_to_dla(value):
            readers = [use.node for use in value.uses()]
            first = shuffle_of(readers[0], self.context) if readers else None
            if first is None or value.is_graph_output():
                break
            if not all(self._alike(reader, value, first, moved=total is not None) for reader in readers):
                break
            joined = first if total is None else total.then(first)
            if joined is None or not (self._helps(first) or self._leads_back(readers, joined)):
                break
            total = joined
            for reader in readers:
                reader.outputs[0].replace_all_uses_with(value)
                self._drop(reader)
            value.shape = ir.Shape(first.shape)
        if total is None or total.is_identity:
            return None
        return EdgeMapping.of("input", value.name or "", total)

    def output(self, index: int) -> EdgeMapping | None:
        """Drop the movers that an output comes from."""
        total: Shuffle | None = None
        while self._comes_from_dla(self.graph.outputs[index]):
            value = self.graph.outputs[index]
            mover = value.producer()
            shuffle = shuffle_of(mover, self.context)
            if (
                mover is None
                or shuffle is None
                or value.uses()
                or sum(each is value for each in self.graph.outputs) > 1
            ):
                break
            source = mover.inputs[0]
            joined = shuffle if total is None else shuffle.then(total)
            if source is None or joined is None or source.is_graph_output() or source.producer() is None:
                break
            if not (total is not None or self._is_off(mover)):
                break
            if not (self._helps(shuffle.inverse()) or self._comes_back(source, joined)):
                break
            total = joined
            name, kind = value.name, value.type
            self.graph.outputs[index] = source
            self._drop(mover)
            value.name = None
            source.name, source.type = name, kind
        if total is None or total.is_identity:
            return None
        return EdgeMapping.of("output", self.graph.outputs[index].name or "", total.inverse())

    def _is_off(self, node: ir.Node) -> bool:
        return self._off is None or label(node) in self._off

    def _helps(self, shuffle: Shuffle) -> bool:
        """Moving over `shuffle`, from the edge inwards, leads to a shape of the right rank, or on towards one."""
        return len(shuffle.shape) in self._ranks or len(shuffle.before) not in self._ranks

    def _leads_back(self, readers: Sequence[ir.Node], total: Shuffle) -> bool:
        """The movers behind a single reader lead to the right rank again, and are one shuffle with `total`."""
        joined: Shuffle | None = total
        value = readers[0].outputs[0]
        while len(readers) == 1 and joined is not None:
            reader = self.context.only_consumer(value)
            step = shuffle_of(reader, self.context)
            if reader is None or step is None or reader.inputs[0] is not value or reader.outputs[0].is_graph_output():
                return False
            joined, value = joined.then(step), reader.outputs[0]
            if joined is not None and len(step.shape) in self._ranks:
                return True
        return False

    def _comes_back(self, value: ir.Value, total: Shuffle) -> bool:
        """The movers that alone give `value` come from the right rank, and are one shuffle with `total`."""
        joined: Shuffle | None = total
        while joined is not None and len(self.context.consumers(value)) == 1 and not value.is_graph_output():
            mover = value.producer()
            step = shuffle_of(mover, self.context)
            source = None if mover is None else mover.inputs[0]
            if step is None or source is None or source.is_graph_output() or source.producer() is None:
                return False
            joined, value = step.then(joined), source
            if joined is not None and len(step.before) in self._ranks:
                return True
        return False

    def _alike(self, reader: ir.Node, value: ir.Value, shuffle: Shuffle, *, moved: bool) -> bool:
        return (
            reader.graph is self.graph
            and (moved or self._is_off(reader))
            and reader.inputs[0] is value
            and all(each is not value for each in reader.inputs[1:])
            and not reader.outputs[0].is_graph_output()
            and shuffle_of(reader, self.context) == shuffle
        )

    def _leads_to_dla(self, value: ir.Value) -> bool:
        """Behind the movers that read `value` there is work, and with a judge some of it on the DLA."""
        stack, seen = [value], set()
        while stack:
            for reader in self.context.consumers(stack.pop()):
                if shuffle_of(reader, self.context) is None:
                    if self._off is None or label(reader) not in self._off:
                        return True
                elif reader not in seen:
                    seen.add(reader)
                    stack.append(reader.outputs[0])
        return False

    def _comes_from_dla(self, value: ir.Value) -> bool:
        """Before the movers that give `value` there is work, with a judge on the DLA."""
        producer = value.producer()
        while producer is not None and shuffle_of(producer, self.context) is not None:
            source = producer.inputs[0]
            producer = None if source is None else source.producer()
        return producer is not None and (self._off is None or label(producer) not in self._off)

    def _drop(self, node: ir.Node) -> None:
        constants = [value for value in node.inputs[1:] if value is not None]
        self.graph.remove(node, safe=True)
        for value in constants:
            unused = not value.uses() and not value.is_graph_input() and not value.is_graph_output()
            if unused and value.is_initializer():
                self.graph.initializers.pop(value.name or "")


def prepared_shapes(source: Any, model: Model | None, edges: Iterable[EdgeMapping]) -> dict[str, tuple[int, ...]]:
    """Shapes for the dynamic inputs of `source`, the network that `model` was prepared from: those it was prepared for.

    Inputs whose shape `model` and the record of moved edges do not know are left out.
    """
    fixed: dict[str, tuple[int, ...]] = {}
    for value in () if model is None else model.graph.inputs:
        shape = shape_of(value)
        if shape and all(isinstance(dim, int) for dim in shape):
            fixed[value.name or ""] = tuple(int(dim) for dim in shape if isinstance(dim, int))
    fixed |= {edge.name: edge.original_shape for edge in edges if edge.kind == "input"}
    dynamic = [name for name, dims in declared_inputs(source).items() if not all(isinstance(dim, int) for dim in dims)]
    return {name: fixed[name] for name in dynamic if fixed.get(name)}
