"""Edges: where only the network's edge keeps a layer off the DLA, the board's model takes or gives the 4-D tensor.

A shape mover at an input or an output does no work, but its rank keeps it off the DLA. `move_edges` drops it and
records how the board's tensor comes from the original one:

    board = original.reshape(expand).transpose(perm).reshape(shape)

for inputs, and the same inverted for outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from orinport.rewrites.catalogue._movers import shuffle_of
from orinport.rewrites.context import RewriteContext
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from orinport.model.model import Model

__all__ = ["EdgeMapping", "move_edges"]


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
        """Read back what `document` wrote."""
        parts = [tuple(int(dim) for dim in document[key]) for key in ("original_shape", "expand", "perm", "shape")]
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


def move_edges(model: Model, *, ranks: tuple[int, ...] = (4,)) -> tuple[Model, tuple[EdgeMapping, ...]]:
    """A copy of `model` whose inputs and outputs are 4-D where shape movers at the edge made them so; and how.

    An input is moved if all that reads it are shape movers that do the same and give one of `ranks`
    dimensions; an output if it comes from a shape mover that reads such a tensor.
    """
    from orinport.model.save import copy_model

    copy = copy_model(model)
    context = RewriteContext(copy.ir)
    mappings = [_move_input(value, context, ranks) for value in list(copy.ir.graph.inputs)]
    mappings += [_move_output(index, context, ranks) for index in range(len(copy.ir.graph.outputs))]
    return copy, tuple(mapping for mapping in mappings if mapping is not None)


def _move_input(value: ir.Value, context: RewriteContext, ranks: tuple[int, ...]) -> EdgeMapping | None:
    graph = context.graph
    total: Shuffle | None = None
    original = context.shape(value)
    while not value.is_graph_output():
        readers = [use for use in value.uses() if use.node.graph is not graph or use.idx == 0]
        shuffles = [shuffle_of(use.node, context) for use in readers]
        first = shuffles[0] if shuffles else None
        if first is None or len(readers) != len(value.uses()) or any(each != first for each in shuffles):
            break
        if any(use.node.graph is not graph or use.node.outputs[0].is_graph_output() for use in readers):
            break
        joined = first if total is None else total.then(first)
        if joined is None:
            break
        if not _helps(first, ranks):
            break
        total = joined
        for use in readers:
            mover = use.node
            mover.outputs[0].replace_all_uses_with(value)
            _drop(mover, graph)
        value.shape = ir.Shape(first.shape)
    if total is None or original is None or total.is_identity:
        return None
    return EdgeMapping.of("input", value.name or "", total)


def _helps(shuffle: Shuffle, ranks: tuple[int, ...]) -> bool:
    """Moving over `shuffle` leads to a shape of the right rank, or goes on towards one."""
    return len(shuffle.shape) in ranks or len(shuffle.before) not in ranks


def _move_output(index: int, context: RewriteContext, ranks: tuple[int, ...]) -> EdgeMapping | None:
    graph = context.graph
    total: Shuffle | None = None
    while True:
        value = graph.outputs[index]
        mover = value.producer()
        shuffle = shuffle_of(mover, context)
        if mover is None or shuffle is None or value.uses() or sum(each is value for each in graph.outputs) > 1:
            break
        source = mover.inputs[0]
        joined = shuffle if total is None else shuffle.then(total)
        if source is None or joined is None or source.is_graph_output() or source.producer() is None:
            break
        if not _helps(shuffle.inverse(), ranks):
            break
        total = joined
        name, kind = value.name, value.type
        graph.outputs[index] = source
        _drop(mover, graph)
        value.name = None
        source.name, source.type = name, kind
    if total is None or total.is_identity:
        return None
    return EdgeMapping.of("output", graph.outputs[index].name or "", total.inverse())


def _drop(node: ir.Node, graph: ir.Graph) -> None:
    constants = [value for value in node.inputs[1:] if value is not None]
    graph.remove(node, safe=True)
    for value in constants:
        if not value.uses() and value.is_initializer() and not value.is_graph_input() and not value.is_graph_output():
            graph.initializers.pop(value.name or "")
