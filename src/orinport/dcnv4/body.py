"""Writing ONNX nodes in the place of others: unique names, shapes and types on every value, metadata carried over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orinport.rewrites.builder import Names

__all__ = ["Body", "replace_node"]


class Body:
    """Makes the nodes of one portable form, named after the node that they replace."""

    def __init__(self, origin: ir.Node, names: Names) -> None:
        self.nodes: list[ir.Node] = []
        self._graph = origin.graph
        self._names = names
        self._base = origin.name or origin.outputs[0].name or origin.op_type
        self._metadata = dict(origin.metadata_props)

    def op(
        self, op_type: str, inputs: Sequence[ir.Value], shape: Sequence[Any], dtype: ir.DataType, **attributes: Any
    ) -> ir.Value:
        """One node with one output."""
        return self.ops(op_type, inputs, [shape], dtype, **attributes)[0]

    def ops(
        self,
        op_type: str,
        inputs: Sequence[ir.Value],
        shapes: Sequence[Sequence[Any]],
        dtype: ir.DataType,
        **attributes: Any,
    ) -> Sequence[ir.Value]:
        """One node with an output for each of `shapes`."""
        name = self._names.unique(f"{self._base}/{op_type}")
        node = ir.Node(
            "",
            op_type,
            inputs,
            ir.convenience.convert_attributes(attributes),
            num_outputs=len(shapes),
            name=name,
            metadata_props=dict(self._metadata),
        )
        for value, shape in zip(node.outputs, shapes, strict=True):
            value.name = self._names.unique(f"{name}_output")
            value.shape, value.type = ir.Shape(shape), ir.TensorType(dtype)
        self.nodes.append(node)
        return node.outputs

    def constant(self, array: NDArray[Any], name: str) -> ir.Value:
        """A new initializer."""
        full = self._names.unique(f"{self._base}/{name}")
        tensor = ir.tensor(array, name=full)
        value = ir.Value(name=full, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
        assert isinstance(self._graph, ir.Graph)
        self._graph.register_initializer(value)
        return value

    def reshape(self, value: ir.Value, numbers: Sequence[int], shape: Sequence[Any]) -> ir.Value:
        """`value` with the dimensions `numbers`, one of which is -1; `shape` is what that means."""
        assert value.dtype is not None
        return self.op("Reshape", [value, self.ints(numbers)], shape, value.dtype)

    def ints(self, numbers: Sequence[int]) -> ir.Value:
        """A constant of whole numbers: a shape, bounds of a slice, axes."""
        return self.constant(np.asarray(numbers, np.int64), "shape")

    def slice(self, value: ir.Value, start: int, end: int) -> ir.Value:
        """Numbers start .. end of the last dimension."""
        assert value.shape is not None
        assert value.dtype is not None
        bounds = [self.ints([number]) for number in (start, end, len(value.shape) - 1)]
        return self.op("Slice", [value, *bounds], [*value.shape[:-1], end - start], value.dtype)


def replace_node(node: ir.Node, new_nodes: Sequence[ir.Node], output: ir.Value, names: Names) -> None:
    """Put `new_nodes` in the place of `node`; the result keeps the name of the node's output."""
    graph = node.graph
    assert graph is not None
    old = node.outputs[0]
    name = old.name
    graph.insert_before(node, new_nodes)
    old.replace_all_uses_with(output, replace_graph_outputs=True)
    old.name = names.unique(f"{name}_replaced")
    output.name = name
    if old.shape is not None:
        output.shape = old.shape
    graph.remove(node, safe=True)
