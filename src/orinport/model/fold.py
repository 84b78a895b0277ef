"""Constant folding: shape arithmetic, and expressions of constants alone.

What is small becomes an initializer in place of the node, under the same name. What is larger than `SMALL`
elements is only *known*: the node stays, and its output carries a tensor that is computed when somebody reads it,
so that neither the file nor the memory grows. Q/DQ nodes, random operators and everything with a state are never
folded; an `If` with a constant condition becomes the branch that it takes.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from orinport.errors import OrinportError
from orinport.model.evaluate import evaluate, foldable, shrinks
from orinport.model.model import SMALL, numpy_of, shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Folder"]

_MAX_KNOWN = 1 << 31
"""Elements up to which a constant that nobody may ever read is still called known."""


class Folder:
    """Folds the nodes of one main graph, one after the other, in topological order."""

    def __init__(self, model: ir.Model) -> None:
        self.graph = model.graph
        self.opset = model.graph.opset_imports[""]
        self.changed = False
        self._outputs = set(model.graph.outputs)
        self._arrays: dict[ir.Value, np.ndarray] = {}
        self._names: Counter[str] | None = None
        """How often each value name occurs in the graph and its subgraphs, once somebody has asked."""

    def small(self, value: ir.Value | None, limit: int = SMALL) -> np.ndarray | None:
        """The array of a constant of at most `limit` elements, or None."""
        if value is None or value.const_value is None or value.const_value.size > limit:
            return None
        if value not in self._arrays:
            self._arrays[value] = numpy_of(value.const_value, value.name or "")
        return self._arrays[value]

    def fold(self, node: ir.Node) -> None:
        """Replace `node` by constants, or mark its outputs as known, if its inputs allow it."""
        if node.domain or not node.outputs:
            return
        if node.op_type in ("Shape", "Size"):
            self._fold_shape(node)
            return
        read = node.inputs[:1] if node.op_type == "CastLike" else node.inputs
        for value in read:
            if value is not None and value.const_value is None:
                return
        if not read or not foldable(node):
            return
        if node.op_type == "Identity" and node.outputs[0] not in self._outputs:
            self._bypass(node)
            return
        self._fold_expression(node)

    def branch(self, node: ir.Node) -> Sequence[ir.Node] | None:
        """Put the branch that an `If` with a constant condition takes in its place; returns the branch's nodes."""
        if node.op_type != "If" or node.domain or len(node.inputs) != 1:
            return None
        condition = self.small(node.inputs[0], limit=1)
        if condition is None or condition.size != 1:
            return None
        taken = node.attributes["then_branch" if condition.reshape(()) else "else_branch"].as_graph()
        if taken.inputs or len(taken.outputs) != len(node.outputs):
            return None
        return self._splice(node, taken)

    def _fold_shape(self, node: ir.Node) -> None:
        source = node.inputs[0] if node.inputs else None
        shape = None if source is None else shape_of(source)
        if shape is None:
            return
        if node.op_type == "Size":
            self._become(node, [np.array(prod(shape), dtype=np.int64)])
            return
        start, end = node.attributes.get("start"), node.attributes.get("end")
        part = shape[slice(0 if start is None else start.as_int(), None if end is None else end.as_int())]
        self._become(node, [np.array(part, dtype=np.int64)])

    def _fold_expression(self, node: ir.Node) -> None:
        shapes = [shape_of(value) if value.name else () for value in node.outputs]
        if None in shapes and not shrinks(node):
            return
        work = sum(value.const_value.size for value in node.inputs if value is not None and value.const_value)
        made = sum(prod(shape) for shape in shapes if shape is not None)
        if work + made > 2 * SMALL:
            self._know(node, shapes)
            return
        try:
            arrays = evaluate(node, [self.small(v, 2 * SMALL) for v in node.inputs], self.opset)
        except Exception:  # values that do not fit, or operators beyond the reference: the node stays
            return
        if len(arrays) >= len(node.outputs) and all(
            not value.name or self._fits(value, array) for value, array in zip(node.outputs, arrays, strict=False)
        ):
            self._become(node, arrays)

    def _fits(self, value: ir.Value, array: np.ndarray) -> bool:
        """The result is what inference expects; otherwise one of both is wrong and nothing is folded."""
        shape = shape_of(value)
        if shape is not None and shape != array.shape:
            return False
        return value.dtype is None or value.dtype.numpy() == array.dtype

    def _become(self, node: ir.Node, arrays: Sequence[np.ndarray]) -> None:
        """Outputs of `node` turn into initializers, and the node goes; network outputs keep their node."""
        self.changed = True
        kept = False
        for value, array in zip(node.outputs, arrays, strict=False):
            if not value.name:
                continue
            tensor = ir.Tensor(np.ascontiguousarray(array) if array.ndim else array, name=value.name)
            if value in self._outputs:
                value.const_value, value.type, value.shape = tensor, ir.TensorType(tensor.dtype), ir.Shape(array.shape)
                kept = True
                continue
            constant = ir.Value(
                name=value.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
            )
            self._arrays[constant] = array
            ir.convenience.replace_all_uses_with(value, constant)
            self.graph.initializers.add(constant)
        if kept:
            for value in node.outputs:
                if value.name in self.graph.initializers:
                    value.name = f"{value.name}/folded"
            return
        self.graph.remove(node, safe=True)

    def _bypass(self, node: ir.Node) -> None:
        source = node.inputs[0]
        assert source is not None
        self.changed = True
        ir.convenience.replace_all_uses_with(node.outputs[0], source)
        self.graph.remove(node, safe=True)

    def _know(self, node: ir.Node, shapes: Sequence[tuple[int, ...] | None]) -> None:
        if len(shapes) != 1 or shapes[0] is None or prod(shapes[0]) > _MAX_KNOWN:
            return
        value = node.outputs[0]
        if value.dtype is None:
            return
        value.const_value = ir.LazyTensor(
            _Pending(node, self.opset), dtype=value.dtype, shape=ir.Shape(shapes[0]), name=value.name
        )

    def _splice(self, node: ir.Node, branch: ir.Graph) -> list[ir.Node]:
        """Move the nodes and initializers of `branch` in front of `node`, and let them take its place."""
        names = self._counted()
        for dead in (a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH):
            if dead is not branch:
                names.subtract(_names_in(dead))
                _let_go(dead)
        for value in list(branch.initializers.values()):
            branch.initializers.pop(value.name or "")
            self._make_unique(value)
            self.graph.initializers.add(value)
        nodes, results = list(branch), list(branch.outputs)
        branch.outputs.clear()
        branch.remove(nodes)
        for value in (value for inner in nodes for value in inner.outputs if value.name):
            self._make_unique(value)
        self.graph.insert_before(node, nodes)
        for value, result in zip(node.outputs, results, strict=True):
            if value not in self._outputs:
                ir.convenience.replace_all_uses_with(value, result)
                continue
            copy = ir.Node("", "Identity", [result], num_outputs=1, name=f"{node.name}/{value.name}")
            self.graph.insert_before(node, copy)
            nodes.append(copy)
            self._take_over(value, copy.outputs[0])
        self.graph.remove(node, safe=True)
        return nodes

    def _take_over(self, old: ir.Value, new: ir.Value) -> None:
        """`new` becomes the network output that `old` is, under the same name."""
        name, new.type, new.shape = old.name, old.type, old.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        old.name = self._fresh(f"{name}/replaced")
        new.name = name
        self._outputs = set(self.graph.outputs)

    def _counted(self) -> Counter[str]:
        if self._names is None:
            self._names = _names_in(self.graph)
        return self._names

    def _make_unique(self, value: ir.Value) -> None:
        """Rename a value that comes out of a subgraph, if its name is used elsewhere too."""
        names = self._counted()
        name = value.name or ""
        if names[name] > 1:
            names[name] -= 1
            value.name = self._fresh(name)

    def _fresh(self, name: str) -> str:
        names = self._counted()
        candidate, count = name, 1
        while names[candidate] > 0:
            count += 1
            candidate = f"{name}_{count}"
        names[candidate] += 1
        return candidate


def _names_in(graph: ir.Graph) -> Counter[str]:
    """Names of the values that `graph` and its subgraphs define, and how often."""
    names = Counter(v.name or "" for v in graph.inputs)
    names.update(name for name in graph.initializers if not graph.initializers[name].is_graph_input())
    for node in graph:
        names.update(v.name for v in node.outputs if v.name)
        for attribute in node.attributes.values():
            if attribute.is_ref():
                continue
            if attribute.type == ir.AttributeType.GRAPH:
                names.update(_names_in(attribute.as_graph()))
            elif attribute.type == ir.AttributeType.GRAPHS:
                for inner in attribute.as_graphs():
                    names.update(_names_in(inner))
    return names


def _let_go(graph: ir.Graph) -> None:
    """Nodes of a subgraph that is thrown away no longer count as consumers of outer values."""
    for node in graph.all_nodes():
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)


class _Pending:
    """A constant expression that is computed when it is read, each part of it once."""

    def __init__(self, node: ir.Node, opset: int) -> None:
        self.node = node
        self.opset = opset

    def __call__(self) -> ir.TensorProtocol:
        result = self.node.outputs[0]
        order = _in_order(result)
        uses = Counter(v for value in order for v in _inputs(value))
        arrays: dict[ir.Value, np.ndarray] = {}
        for value in order:
            pending = _pending(value)
            arrays[value] = _stored(value) if pending is None else pending.compute(arrays)
            for read in _inputs(value):
                uses[read] -= 1
                if not uses[read]:
                    arrays.pop(read, None)
        return ir.Tensor(arrays[result], name=result.name)

    def compute(self, arrays: Mapping[ir.Value, np.ndarray]) -> np.ndarray:
        """The value, from those of the inputs."""
        try:
            return evaluate(
                self.node, [arrays.get(v) if v is not None else None for v in self.node.inputs], self.opset
            )[0]
        except Exception as error:
            name = self.node.outputs[0].name
            raise OrinportError(f"The constant {name!r} cannot be computed: {error}") from error


def _pending(value: ir.Value) -> _Pending | None:
    tensor = value.const_value
    return tensor.raw if isinstance(tensor, ir.LazyTensor) and isinstance(tensor.raw, _Pending) else None


def _inputs(value: ir.Value) -> list[ir.Value]:
    """The constants that `value` is computed from; none if it is stored."""
    pending = _pending(value)
    return [] if pending is None else [v for v in pending.node.inputs if v is not None and v.const_value is not None]


def _in_order(result: ir.Value) -> list[ir.Value]:
    """Everything that `result` is computed from, in the order in which it can be computed, `result` last."""
    order: dict[ir.Value, None] = {}
    todo = [result]
    while todo:
        missing = [v for v in _inputs(todo[-1]) if v not in order]
        if missing and todo[-1] not in order:
            todo.extend(missing)
        else:
            order.setdefault(todo.pop())
    return list(order)


def _stored(value: ir.Value) -> np.ndarray:
    assert value.const_value is not None
    return numpy_of(value.const_value, value.name or "")
