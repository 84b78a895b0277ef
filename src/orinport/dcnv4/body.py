"""Writing ONNX nodes in the place of others: unique names, shapes and types on every value, metadata carried over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orinport.rewrites.builder import Names

__all__ = ["Body", "known_shape", "replace_node", "working_type"]

_BOUND = 8.0
"""Grids are clipped to this, where -1 to 1 is the image: all beyond it lies outside, infinities included."""
_TYPES = {
    ir.DataType.FLOAT: ir.DataType.FLOAT,
    ir.DataType.DOUBLE: ir.DataType.DOUBLE,
    ir.DataType.FLOAT16: ir.DataType.FLOAT,
    ir.DataType.BFLOAT16: ir.DataType.FLOAT,
}
"""The type that a portable form computes in, by the type of its inputs."""


def known_shape(value: ir.Value | None, label: str) -> tuple[int, ...]:
    """The four dimensions of an input, with 1 for a batch that is not known by number.

    Raises OrinportError if another one is not known.
    """
    if value is None or value.shape is None or len(value.shape) != 4:
        raise OrinportError(
            f"{label} has an input whose shape is not known or not of rank 4.", "Give the shapes of the inputs."
        )
    batch, *rest = value.shape
    if not all(isinstance(dim, int) for dim in rest):
        raise OrinportError(f"{label} has an input with more than its batch unknown.", "Give the shapes of the inputs.")
    return (batch if isinstance(batch, int) else 1, *(int(dim) for dim in rest))  # type: ignore[arg-type]


def working_type(dtype: ir.DataType | None, label: str) -> ir.DataType:
    """The type to compute in. Raises OrinportError for what is no floating-point type of the operators."""
    if dtype is None or dtype not in _TYPES:
        raise OrinportError(f"{label} has inputs of type {dtype.name if dtype else 'unknown'}.")
    return _TYPES[dtype]


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

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """`value` in another type; itself if it has that type."""
        if value.dtype == dtype:
            return value
        return self.op("Cast", [value], list(value.shape or ()), dtype, to=int(dtype))

    def scalar(self, number: float, dtype: ir.DataType, name: str) -> ir.Value:
        """A constant without dimensions."""
        return self.constant(np.asarray(number, dtype.numpy()), name)

    def clip(self, grid: ir.Value) -> ir.Value:
        """A grid within bounds that change no result."""
        assert grid.dtype is not None
        bounds = [self.scalar(bound, grid.dtype, "bound") for bound in (-_BOUND, _BOUND)]
        return self.op("Clip", [grid, *bounds], list(grid.shape or ()), grid.dtype)

    def sample(self, image: ir.Value, grid: ir.Value, *, linear: bool) -> ir.Value:
        """Bilinear samples of (N, C, H, W) at (N, A, B, 2), zeros outside: (N, C, A, B). `linear` names the mode."""
        assert image.dtype is not None
        assert image.shape is not None
        assert grid.shape is not None
        return self.op(
            "GridSample",
            [image, grid],
            [*image.shape[:2], *grid.shape[1:3]],
            image.dtype,
            mode="linear" if linear else "bilinear",
            padding_mode="zeros",
            align_corners=0,
        )

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
