"""Builds what replaces a match: unique names, shapes and types on every value, metadata carried over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from orinport.rewrites.context import MOVERS, label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from orinport.rewrites.context import RewriteContext
    from orinport.rewrites.rewrite import Match, Rewrite
    from orinport.rewrites.shuffle import Shuffle

__all__ = ["REPLACES", "REWRITE", "Builder", "Names", "RefusedError"]

REWRITE = "orinport.rewrite"
"""Metadata: the rewrites that led to the node, joined by semicolons."""
REPLACES = "orinport.replaces"
"""Metadata: labels of the original nodes that the node stands for, one a line."""

_SHARED_ELEMENTS = 256
_INFERENCE_ELEMENTS = 1024


class RefusedError(Exception):
    """Raised while building: the replacement cannot be made after all, for this reason."""


class Names:
    """Hands out names that no value and no node of the model has, subgraphs included."""

    def __init__(self, model: ir.Model) -> None:
        self._taken: set[str] = set()
        self.repeated: set[str] = set()
        """Names that the model itself has more than once."""
        self._next: dict[str, int] = {}
        for graph in (model.graph, *model.graph.subgraphs()):
            self._take(value.name for value in graph.inputs)
            self._take(graph.initializers)
        for node in model.graph.all_nodes():
            self._take((node.name,))
            self._take(value.name for value in node.outputs)

    def _take(self, names: Iterable[str | None]) -> None:
        for name in names:
            if name:
                (self.repeated if name in self._taken else self._taken).add(name)

    def unique(self, base: str) -> str:
        """`base`, or `base_1`, `base_2`, ... where it is taken; the result is taken from now on."""
        name = base
        number = self._next.get(base, 0)
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._next[base] = number
        self._taken.add(name)
        return name


class Builder:
    """Makes the nodes of one replacement; the driver puts them into the graph once they are proved.

    Every method returns a value with shape and type. Constants are new values: those of the network are
    never changed, but may be used as they are. What is made here is named after the node that it replaces.
    """

    def __init__(
        self,
        context: RewriteContext,
        match: Match,
        rewrite: Rewrite,
        names: Names,
        shared: dict[tuple[Any, ...], ir.Value],
    ) -> None:
        self.context = context
        self.nodes: list[ir.Node] = []
        self.constants: list[ir.Value] = []
        self._match = match
        self._rewrite = rewrite
        self._names = names
        self._shared = shared
        self._elements = 0
        self._base = label(match.nodes[0]).replace(":", "_")
        self._metadata = _metadata(match.nodes, rewrite.name)

    def op(
        self,
        op_type: str,
        *inputs: ir.Value | None,
        outputs: int = 1,
        suffix: str = "",
        shape: Sequence[int] | None = None,
        dtype: ir.DataType | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> ir.Value:
        """One node; gives its first output (the others: `value.producer().outputs`).

        Shape and type are inferred from the inputs by ONNX where they are not given, which they must be for an
        operator of another domain. Attributes that are None are left out. Raises RefusedError past the cost limit
        or if ONNX says that the node is wrong.
        """
        if len(self.nodes) >= self.context.cost.nodes:
            raise RefusedError(f"the replacement would need more than {self.context.cost.nodes} nodes")
        given = {name: value for name, value in attributes.items() if value is not None}
        base = f"{self._base}/{suffix or op_type}"
        node = ir.Node(
            domain,
            op_type,
            inputs,
            [_attribute(name, value) for name, value in given.items()],
            num_outputs=outputs,
            name=self._names.unique(base),
            metadata_props=dict(self._metadata),
        )
        for index, value in enumerate(node.outputs):
            value.name = self._names.unique(f"{base}_output" if index == 0 else f"{base}_output{index}")
        self.nodes.append(node)
        if shape is not None and dtype is not None and outputs == 1:
            node.outputs[0].shape = ir.Shape(shape)
            node.outputs[0].type = ir.TensorType(dtype)
        else:
            self._infer(node)
        return node.outputs[0]

    def copy(self, node: ir.Node, inputs: Sequence[ir.Value | None], shape: Sequence[int] | None = None) -> ir.Value:
        """`node` once more with its attributes, on other inputs; gives its first output.

        `shape` is the output's; without it ONNX infers it. The type is that of the node's first output.
        """
        attributes: dict[str, Any] = dict(node.attributes)
        return self.op(
            node.op_type,
            *inputs,
            outputs=len(node.outputs),
            shape=shape,
            dtype=None if shape is None else self.context.dtype(node.outputs[0]),
            **attributes,
        )

    def constant(self, array: NDArray[Any], suffix: str = "constant") -> ir.Value:
        """A new constant; small ones of equal content are shared among all replacements."""
        array = np.asarray(array)
        key = (
            (array.dtype.str, str(array.dtype), array.shape, array.tobytes()) if array.size <= _SHARED_ELEMENTS else ()
        )
        if key and key in self._shared:
            value = self._shared[key]
            self.constants.append(value)
            return value
        self._elements += array.size
        replaced = sum(_elements(value) for node in self._match.nodes for value in node.inputs)
        if self._elements > max(self.context.cost.elements, replaced):
            raise RefusedError(
                f"the replacement would need constants of {self._elements} elements, more than"
                f" {max(self.context.cost.elements, replaced)}"
            )
        name = self._names.unique(f"{self._base}/{suffix}")
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        tensor = ir.tensor(array, name=name)
        value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
        self.constants.append(value)
        if key:
            self._shared[key] = value
        return value

    def ints(self, values: Sequence[int], suffix: str = "shape") -> ir.Value:
        """A 1-D INT64 constant."""
        return self.constant(np.asarray(values, np.int64), suffix)

    def like(self, value: ir.Value, number: float, shape: Sequence[int] = ()) -> ir.Value:
        """A constant of the element type of `value`, filled with `number`."""
        return self.constant(np.full(shape, number, self.numpy_dtype(value)), "value")

    def numpy_dtype(self, value: ir.Value) -> np.dtype[Any]:
        """The numpy type of a value's elements."""
        dtype = self.context.dtype(value)
        if dtype is None:
            raise RefusedError(f"the type of {value.name!r} is not known")
        return np.dtype(dtype.numpy())

    def shape(self, value: ir.Value) -> tuple[int, ...]:
        """The concrete shape of a value; RefusedError if it is not known."""
        shape = self.context.shape(value)
        if shape is None:
            raise RefusedError(f"the shape of {value.name!r} is not known")
        return shape

    def reshape(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        """`value` in another shape; itself if it has that shape."""
        if tuple(shape) == self.context.shape(value):
            return value
        return self.op("Reshape", value, self.ints(shape), shape=shape, dtype=self.context.dtype(value))

    def transpose(self, value: ir.Value, perm: Sequence[int]) -> ir.Value:
        """`value` with its dimensions in another order; itself if the order stays."""
        if list(perm) == list(range(len(perm))):
            return value
        dims = self.shape(value)
        return self.op(
            "Transpose", value, perm=list(perm), shape=[dims[axis] for axis in perm], dtype=self.context.dtype(value)
        )

    def shuffle(self, value: ir.Value, shuffle: Shuffle) -> ir.Value:
        """`value` rearranged, in as few nodes as that takes."""
        for kind, numbers in shuffle.steps():
            value = self.reshape(value, numbers) if kind == "reshape" else self.transpose(value, numbers)
        return value

    def slice(self, value: ir.Value, axis: int, start: int, end: int, step: int = 1) -> ir.Value:
        """`value[..., start:end:step, ...]` on one axis."""
        if self.context.opset < 10:
            if step != 1:
                raise RefusedError("Slice with a step needs opset 10 or newer")
            return self.op("Slice", value, axes=[axis], starts=[start], ends=[end])
        inputs = [self.ints([number]) for number in (start, end, axis)]
        return self.op("Slice", value, *inputs, *([self.ints([step])] if step != 1 else []))

    def clip(self, value: ir.Value, low: float | None, high: float | None) -> ir.Value:
        """`value` limited to `[low, high]`; a bound that is None does not exist."""
        if self.context.opset < 11:
            return self.op("Clip", value, min=low, max=high)
        bounds = [None if bound is None else self.like(value, bound) for bound in (low, high)]
        return self.op("Clip", value, *bounds)

    def discard(self) -> None:
        """Take what was built out of the graph's bookkeeping again: nothing of it is used."""
        for node in reversed(self.nodes):
            node.resize_inputs(0)

    def _infer(self, node: ir.Node) -> None:
        try:
            types = _infer_types(node, self.context)
        except RefusedError:
            raise
        except Exception as error:
            raise RefusedError(f"ONNX refuses the {node.op_type} that would be built: {error}") from error
        for value, proto in zip(node.outputs, types, strict=True):
            value.type = ir.TensorType(ir.DataType(proto.tensor_type.elem_type))
            dims = proto.tensor_type.shape.dim
            if not proto.tensor_type.HasField("shape") or not all(dim.HasField("dim_value") for dim in dims):
                raise RefusedError(f"the shape of the {node.op_type} that would be built is not known")
            value.shape = ir.Shape([dim.dim_value for dim in dims])


def _elements(value: ir.Value | None) -> int:
    if value is None or value.const_value is None:
        return 0
    return int(value.const_value.size)


def _attribute(name: str, value: Any) -> ir.Attr:
    """`value` as an attribute; the common types first, because onnx_ir's own conversion is slow."""
    if isinstance(value, ir.Attr):
        return value
    if isinstance(value, (int, np.integer)):
        return ir.AttrInt64(name, int(value))
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, (int, np.integer)) for item in value):
        return ir.AttrInt64s(name, [int(item) for item in value])
    return ir.convenience.convert_attribute(name, value)


def _metadata(nodes: Sequence[ir.Node], name: str) -> dict[str, str]:
    """Metadata of the nodes that are replaced, and the record of the rewrite.

    Shape movers that were matched beside the real work leave no trace: they would pile up as they move along.
    """
    nodes = [node for node in nodes if node.op_type not in MOVERS] or nodes
    merged: dict[str, str] = {}
    rewrites: list[str] = []
    origins: list[str] = []
    for node in nodes:
        for key, text in node.metadata_props.items():
            if key == REWRITE:
                rewrites += text.split(";")
            elif key == REPLACES:
                origins += text.split("\n")
            else:
                merged.setdefault(key, text)
        if REPLACES not in node.metadata_props:
            origins.append(label(node))
    merged[REWRITE] = ";".join(dict.fromkeys([*rewrites, name]))
    merged[REPLACES] = "\n".join(dict.fromkeys(origins))
    return merged


def _infer_types(node: ir.Node, context: RewriteContext) -> list[onnx.TypeProto]:
    schema = onnx.defs.get_schema(node.op_type, context.opset, "")
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    proto = onnx.NodeProto(op_type=node.op_type, name=node.name or "")
    for index, value in enumerate(node.inputs):
        name = "" if value is None else f"i{index}"
        proto.input.append(name)
        if value is None:
            continue
        dtype, shape = context.dtype(value), context.shape(value)
        if dtype is None or shape is None:
            raise RefusedError(f"shape or type of {value.name!r} is not known")
        types[name] = onnx.helper.make_tensor_type_proto(int(dtype), shape)
        tensor = value.const_value
        if tensor is not None and tensor.size <= _INFERENCE_ELEMENTS:
            data[name] = onnx.numpy_helper.from_array(tensor.numpy(), name)
    proto.output.extend(f"o{index}" for index in range(len(node.outputs)))
    proto.attribute.extend(ir.serde.serialize_attribute(attribute) for attribute in node.attributes.values())
    inferred = onnx.shape_inference.infer_node_outputs(
        schema, proto, types, data, opset_imports=[onnx.helper.make_opsetid("", context.opset)], ir_version=10
    )
    return [inferred[name] for name in proto.output]
