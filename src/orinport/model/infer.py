"""Types and shapes of all values: onnx's inference on the whole network, then node by node where that ends.

onnx's own inference is fast but gives up behind shape arithmetic that it cannot follow, behind operators that it
does not know, and sometimes altogether. The second pass walks the nodes in order, folds what is constant
(`fold`), and asks, for each node whose outputs are still unknown: the functions registered here for custom
operators, onnx's inference for this node alone, and last what the file declares. What stays unknown stays None.
"""

from __future__ import annotations

import contextlib
from collections import deque
from importlib import import_module
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx
import onnx.shape_inference
import onnx_ir as ir

from orinport.errors import OrinportError
from orinport.model.guard import guard, unguard
from orinport.model.model import DEFECT
from orinport.model.structure import MAX_ELEMENTS, quote, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orinport.model.fold import Folder


__all__ = [
    "assign_types",
    "complete",
    "infer_missing",
    "infer_proto",
    "is_registered",
    "register",
    "take_types",
]


_FUNCTIONS: dict[tuple[str, str], Any] = {}
_PROVIDERS = {"custom_op": "orinport.dcnv4.infer"}
"""Modules of ours that register the operators of a domain when they are imported, looked up at first sight."""
_AS_FIRST_INPUT = frozenset({("", "GroupNormalization"), ("", "MeanVarianceNormalization")})
"""Operators that keep type and shape, and for which onnx infers nothing."""
_SMALL = 1 << 12
_MAX_RANK = 32


def register(domain: str, op_type: str, function: Any) -> None:
    """Teach shape inference a custom operator.

    `function(node, constant)` gets the `onnx_ir.Node` and `constant(value)`, the array of a small constant or
    None; it returns for each output `(onnx_ir.DataType, shape)` or None if it cannot tell.
    """
    _FUNCTIONS[(domain, op_type)] = function


def is_registered(domain: str, op_type: str) -> bool:
    """True if somebody has registered the operator: what a file says about its results does not count."""
    return _function(domain, op_type) is not None


def infer_proto(proto: onnx.ModelProto) -> onnx.ModelProto:
    """`proto` with what onnx's inference finds out about it; `proto` itself if that fails altogether.

    Raises OrinportError if the network uses the operator set that keeps onnx's inference safe.
    """
    guarded = guard(proto)
    try:
        found = onnx.shape_inference.infer_shapes(proto, check_type=False, strict_mode=False, data_prop=True)
    except Exception:  # whatever it is: the second pass does without
        found = proto
    if guarded:
        unguard(found)
    return found


def take_types(graph: onnx.GraphProto) -> dict[str, bytes]:
    """Remove what `graph` says about the types of its values, and return it, serialized, by name.

    onnx_ir would make objects of its own for every value; most values of a network share a handful of types.
    """
    types = {info.name: info.type.SerializeToString() for info in graph.value_info}
    graph.ClearField("value_info")
    return types


def assign_types(graph: ir.Graph, types: Mapping[str, bytes]) -> set[ir.Value]:
    """Give the values of `graph` their types and shapes; returns those that are not known completely."""
    decoded: dict[bytes, _Decoded] = {}
    outputs = set(graph.outputs)
    gaps: set[ir.Value] = set()
    for node in graph:
        for value in node.outputs:
            data = types.get(value.name or "")
            if data is None:
                _refuse_absurd(value.name or "", value.shape)
                if value.name and not (value in outputs and _known(value)):
                    gaps.add(value)
                continue
            entry = decoded.get(data)
            if entry is None:
                entry = decoded[data] = _decode(data, value.name or "")
                _refuse_absurd(value.name or "", entry.shape)
            value.shape = entry.shape
            value.type = entry.type if entry.dtype is None else ir.TensorType(entry.dtype)
            if not entry.known:
                gaps.add(value)
    return gaps


class _Decoded(NamedTuple):
    """A type that many values have: `dtype` if it is a tensor's, whose type object every value needs for itself."""

    type: ir.TypeProtocol | None
    dtype: ir.DataType | None
    shape: ir.Shape | None
    known: bool


def _decode(data: bytes, name: str) -> _Decoded:
    proto = onnx.TypeProto.FromString(data)
    try:
        shape = ir.serde.deserialize_type_proto_for_shape(proto)
        type_ = ir.serde.deserialize_type_proto_for_type(proto)
    except (ValueError, RuntimeError) as error:  # BlackmanWindow's output_datatype can be any number
        raise OrinportError(f"The value {quote(name)} would have a type that ONNX does not know.") from error
    dtype = type_.dtype if isinstance(type_, ir.TensorType) and type_.denotation is None else None
    return _Decoded(type_, dtype, shape, _known(ir.Value(type=type_, shape=shape)))


def complete(
    model: ir.Model,
    gaps: set[ir.Value],
    declared: Mapping[str, onnx.TypeProto],
    symbols: Mapping[str, int],
    folder: Folder,
) -> None:
    """Fold what is constant and fill the types and shapes that are missing, in one walk over the main graph.

    `gaps` are the values whose type or shape is not known yet, `declared` is what the file says about values,
    `symbols` are the values of its named dimensions.
    """
    nodes = deque(model.graph)
    single = _SingleNode(model, folder)
    while nodes:
        node = nodes.popleft()
        if node.op_type == "If" and (taken := folder.branch(node)) is not None:
            gaps.update(value for inner in taken for value in inner.outputs if not _known(value))
            nodes.extendleft(reversed(taken))
            continue
        missing = [value for value in node.outputs if value in gaps]
        if missing:
            single.infer(node)
        folder.fold(node)
        for value in missing:
            if not _known(value):
                _declare(value, declared.get(value.name or ""), symbols)
            _refuse_absurd(value.name or "", value.shape)


def infer_missing(model: ir.Model) -> None:
    """Fill types and shapes that are missing in the main graph, node by node, in place; nothing is folded.

    Dynamic dimensions keep their names where onnx's inference hands them on. What cannot be found out stays unknown.
    """
    from orinport.model.fold import Folder

    single = _SingleNode(model, Folder(model))
    for node in model.graph:
        if any(value.name and (value.shape is None or value.dtype is None) for value in node.outputs):
            single.infer(node)


def _known(value: ir.Value) -> bool:
    if value.type is None or value.shape is None:
        return value.type is not None and not isinstance(value.type, ir.TensorType)
    return all(type(d) is int for d in value.shape.dims)


def _refuse_absurd(name: str, shape: ir.Shape | None) -> None:
    dims = [d for d in shape.dims if isinstance(d, int)] if shape is not None else []
    if dims and min(dims) < 0:
        shown = "x".join("?" if isinstance(d, ir.SymbolicDim) else str(d) for d in shape or ())
        raise OrinportError(
            f"The value {quote(name)} would have the impossible shape {shown}.",
            "Look at the operator that makes it: a kernel larger than its padded input gives such sizes.",
        )
    if prod(dims) > MAX_ELEMENTS:
        shown = "x".join(str(d) for d in dims)
        raise OrinportError(f"The value {quote(name)} would have the absurd shape {shown}.")


def _declare(value: ir.Value, proto: onnx.TypeProto | None, symbols: Mapping[str, int]) -> None:
    """Believe the file about `value`, as far as it says anything."""
    if proto is None or proto.WhichOneof("value") != "tensor_type":
        return
    tensor = proto.tensor_type
    if value.type is None and tensor.elem_type:
        value.type = ir.TensorType(ir.DataType(tensor.elem_type))
    if not tensor.HasField("shape") or (value.shape is not None and len(value.shape) != len(tensor.shape.dim)):
        return
    dims: list[int | str | None] = []
    for index, dim in enumerate(tensor.shape.dim):
        size = dim.dim_value if dim.WhichOneof("value") == "dim_value" else symbols.get(dim.dim_param)
        ours = None if value.shape is None else value.shape[index]
        dims.append(
            ours if isinstance(ours, int) else size if size is not None and size >= 0 else dim.dim_param or None
        )
    value.shape = ir.Shape(dims)


class _SingleNode:
    """Inference for one node at a time, with the constants that it needs."""

    def __init__(self, model: ir.Model, folder: Folder) -> None:
        self.folder = folder
        self.opsets = dict(model.graph.opset_imports)
        self.imports = [onnx.OperatorSetIdProto(domain=d, version=v) for d, v in self.opsets.items()]
        self.ir_version = model.ir_version or onnx.IR_VERSION

    def infer(self, node: ir.Node) -> None:
        """Set type and shape of the node's outputs where they can be found out."""
        function = _function(node.domain, node.op_type)
        if function is not None:
            found = function(node, self.folder.small)
            for value, known in zip(node.outputs, found, strict=False):
                if known is not None:
                    value.type = ir.TensorType(known[0])
                    value.shape = ir.Shape(known[1])
            return
        schema = schema_of(node.op_type, node.domain, self.opsets.get(node.domain, 1))
        if schema is None or any(
            a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values()
        ):
            return
        try:
            self._ask_onnx(node, schema)
        except Exception as error:  # onnx raises many kinds; the node stays unknown, and the rest goes on
            if all(value is None or _known(value) for value in node.inputs):
                node.meta[DEFECT] = _first_line(error)
        if (node.domain, node.op_type) in _AS_FIRST_INPUT and node.inputs and not _known(node.outputs[0]):
            source, result = node.inputs[0], node.outputs[0]
            if source is not None:
                result.type = None if source.dtype is None else ir.TensorType(source.dtype)
                result.shape = source.shape

    def _ask_onnx(self, node: ir.Node, schema: onnx.defs.OpSchema) -> None:
        proto = ir.serde.serialize_node(node)
        types: dict[str, onnx.TypeProto] = {}
        data: dict[str, onnx.TensorProto] = {}
        for value in node.inputs:
            if value is None or not value.name:
                continue
            if value.type is not None:
                types[value.name] = _type_proto(value.type, value.shape)
            array = self.folder.small(value, _SMALL)
            if array is not None and value.dtype in _DATA_TYPES:
                data[value.name] = onnx.numpy_helper.from_array(array, value.name)
        found = onnx.shape_inference.infer_node_outputs(
            schema, proto, types, data, opset_imports=self.imports, ir_version=self.ir_version
        )
        for value in node.outputs:
            if value.name and value.name in found:
                _merge(value, found[value.name])


def _first_line(error: Exception) -> str:
    """What onnx says, without its prefixes."""
    line = next((text for text in str(error).splitlines() if text.strip()), type(error).__name__)
    return line.rsplit("Error] ", 1)[-1].strip()[:300]


_DATA_TYPES = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.FLOAT, ir.DataType.BOOL)


def _function(domain: str, op_type: str) -> Any:
    provider = _PROVIDERS.pop(domain, None) if domain else None
    if provider is not None:
        with contextlib.suppress(ModuleNotFoundError):
            import_module(provider)
    return _FUNCTIONS.get((domain, op_type))


def _type_proto(type_: ir.TypeProtocol, shape: ir.Shape | None) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    ir.serde.serialize_type_into(proto, type_)
    if shape is not None:
        ir.serde.serialize_shape_into(proto, shape)
    return proto


def _merge(value: ir.Value, proto: onnx.TypeProto) -> None:
    found = ir.serde.deserialize_type_proto_for_type(proto)
    if found is not None:
        value.type = found
    shape = ir.serde.deserialize_type_proto_for_shape(proto)
    if shape is None or (value.shape is not None and len(value.shape) != len(shape)):
        return
    ours: Iterable[Any] = value.shape or shape
    value.shape = ir.Shape([new if isinstance(new, int) else old for new, old in zip(shape, ours, strict=True)])
