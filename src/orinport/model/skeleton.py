"""The network without its weights: a small proto that can be copied, changed and handed to onnx at no cost.

The given proto is only read. In the skeleton Constant nodes have become initializers, model-local functions are
inlined, nodes stand in topological order, and every tensor of more than a few bytes is a stub: dimensions and type
with the key of the real tensor, which the `Skeleton` holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir

from orinport.errors import OrinportError
from orinport.model.infer import is_registered
from orinport.model.inline import Inliner
from orinport.model.structure import bits_of, check_bounds, check_opsets, label, quote, schema_of, sorted_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from orinport.model.external import ExternalData

__all__ = ["Skeleton", "build_skeleton", "stub"]

_KEPT_BYTES = 2048
"""Payload that a tensor may have and still be in the skeleton: shapes, axes and scalars are, weights are not."""
_LOCATION = "location"


@dataclass(slots=True)
class Skeleton:
    """A proto without payloads, and the payloads."""

    proto: onnx.ModelProto
    tensors: dict[str, ir.TensorProtocol] = field(default_factory=dict)
    """Real tensors of subgraphs and attributes, by the key that their stubs name."""
    initializers: dict[str, ir.TensorProtocol] = field(default_factory=dict)
    """Real tensors of the main graph by the name of the initializer."""
    is_flat: bool = True
    """No subgraphs, and no annotations of quantization."""
    declared: dict[str, onnx.TypeProto] = field(default_factory=dict)
    """What the file says about the types of values: used where nothing can be inferred."""

    def take(self) -> onnx.ModelProto:
        """The proto, which is given away so that its memory can be freed."""
        proto, self.proto = self.proto, onnx.ModelProto()
        return proto


def stub(name: str, dims: Iterable[int], data_type: int, key: str) -> onnx.TensorProto:
    """A tensor without payload that names `key`."""
    proto = onnx.TensorProto(name=name, dims=dims, data_type=data_type, data_location=onnx.TensorProto.EXTERNAL)
    entry = proto.external_data.add()
    entry.key, entry.value = _LOCATION, key
    return proto


def stub_key(proto: onnx.TensorProto) -> str:
    """The key that a stub names; empty if it is none."""
    if proto.data_location != onnx.TensorProto.EXTERNAL:
        return ""
    return next((entry.value for entry in proto.external_data if entry.key == _LOCATION), "")


def build_skeleton(
    proto: onnx.ModelProto,
    external: ExternalData,
    held: Mapping[str, ir.TensorProtocol] | None = None,
    *,
    is_sorted: bool = False,
) -> Skeleton:
    """The skeleton of `proto`, which has passed `check_structure`; `is_sorted` is what that gave.

    `held` are tensors that `proto` names by stubs already. Raises OrinportError for external data that are not
    where they may be, for functions that cannot be inlined, and for cycles.
    """
    return _Builder(proto, external, held or {}, is_sorted=is_sorted).build()


class _Builder:
    def __init__(
        self,
        proto: onnx.ModelProto,
        external: ExternalData,
        held: Mapping[str, ir.TensorProtocol],
        *,
        is_sorted: bool,
    ) -> None:
        self.source = proto
        self.is_sorted = is_sorted
        self.external = external
        self.held = held
        self.inliner = Inliner(proto, check_opsets(proto.opset_import, proto.graph.node))
        self.result = Skeleton(onnx.ModelProto())

    def build(self) -> Skeleton:
        source, proto = self.source, self.result.proto
        proto.ir_version = max(source.ir_version, 4)
        for text in ("producer_name", "producer_version", "domain", "doc_string"):
            setattr(proto, text, readable(getattr(source, text)))
        proto.model_version = source.model_version
        _copy_metadata(source, proto)
        self._graph(source.graph, proto.graph, main=True)
        opsets = self.inliner.opsets
        for node in proto.graph.node:
            opsets.setdefault(node.domain, 1)
        for domain, version in opsets.items():
            proto.opset_import.add(domain=domain, version=version)
        return self.result

    def _graph(self, source: onnx.GraphProto, graph: onnx.GraphProto, *, main: bool) -> None:
        graph.name, graph.doc_string = readable(source.name), readable(source.doc_string)
        _copy_metadata(source, graph)
        graph.quantization_annotation.extend(source.quantization_annotation)
        if not main or source.quantization_annotation:
            self.result.is_flat = False
        constant = {tensor.name for tensor in source.initializer}
        given = (info for info in source.input if info.name not in constant)
        graph.input.extend(given if main else map(_without_negative, given))
        for tensor in source.initializer:
            self._initializer(graph, tensor, tensor.name, main=main)
        defined = constant | {info.name for info in source.input}
        nodes = source.node if main and self.is_sorted else sorted_nodes(source.node, defined)
        custom = self._nodes(graph, nodes, main=main)
        if main:
            self.result.declared = {info.name: info.type for info in (*source.value_info, *source.output)}
        graph.output.extend(self._output(info, custom) for info in source.output)
        graph.value_info.extend(_without_negative(info) for info in source.value_info if info.name in custom)

    @staticmethod
    def _output(source: onnx.ValueInfoProto, custom: set[str]) -> onnx.ValueInfoProto:
        """An output whose type is left to inference, unless only the file can know it."""
        if source.name in custom or source.type.WhichOneof("value") != "tensor_type":
            return _without_negative(source)
        info = onnx.ValueInfoProto(name=source.name, doc_string=readable(source.doc_string))
        _copy_metadata(source, info)
        info.type.tensor_type.elem_type = source.type.tensor_type.elem_type
        return info

    def _nodes(self, graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], *, main: bool) -> set[str]:
        """Add `nodes` to `graph`; returns the outputs of those whose operator onnx does not know."""
        version = self.inliner.opsets[""]
        custom: set[str] = set()
        for call in nodes:
            inlined = self.inliner.calls(call)
            for node in self.inliner.expand(call) if inlined else (call,):
                if inlined:  # the call has given values to its attributes
                    for attribute in node.attribute:
                        check_bounds(node, attribute.name, attribute.i)
                if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                    self._constant(graph, node, main=main)
                    continue
                self._node(graph, node)
                if schema_of(node.op_type, node.domain, version) is None and not is_registered(
                    node.domain, node.op_type
                ):
                    custom.update(node.output)
        return custom

    def _node(self, graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
        copy = graph.node.add()
        if not any(attribute.type in _WITH_PAYLOAD for attribute in node.attribute):
            copy.CopyFrom(node)
        else:
            copy.op_type, copy.name, copy.domain = node.op_type, node.name, node.domain
            copy.input.extend(node.input)
            copy.output.extend(node.output)
            copy.doc_string = readable(node.doc_string)
            _copy_metadata(node, copy)
            for attribute in node.attribute:
                self._attribute(attribute, copy.attribute.add())
        if copy.domain == "ai.onnx":
            copy.domain = ""
        if isinstance(copy.doc_string, bytes):
            copy.doc_string = readable(copy.doc_string)

    def _attribute(self, source: onnx.AttributeProto, copy: onnx.AttributeProto) -> None:
        if source.type not in _WITH_PAYLOAD:
            copy.CopyFrom(source)
            return
        copy.name, copy.type, copy.doc_string = source.name, source.type, readable(source.doc_string)
        if source.type == onnx.AttributeProto.TENSOR:
            copy.t.CopyFrom(self._nested(source.t, readable(source.t.name)))
        for tensor in source.tensors:
            copy.tensors.add().CopyFrom(self._nested(tensor, readable(tensor.name)))
        if source.type == onnx.AttributeProto.GRAPH:
            self._graph(source.g, copy.g, main=False)
        for graph in source.graphs:
            self._graph(graph, copy.graphs.add(), main=False)

    def _constant(self, graph: onnx.GraphProto, node: onnx.NodeProto, *, main: bool) -> None:
        name = node.output[0] if node.output else ""
        if not name:
            return
        self._initializer(graph, _constant_tensor(node), name, main=main)

    def _initializer(self, graph: onnx.GraphProto, tensor: onnx.TensorProto, name: str, *, main: bool) -> None:
        if main:
            real = self._real(tensor)
            self.result.initializers[name] = real
            graph.initializer.append(_light(tensor, real, name, "#"))
        else:
            graph.initializer.append(self._nested(tensor, name))

    def _nested(self, tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
        """`tensor` of an attribute or a subgraph, to be found again by its key if it is made a stub."""
        real = self._real(tensor)
        key = f"#{len(self.result.tensors)}"
        light = _light(tensor, real, name, key)
        if stub_key(light):
            self.result.tensors[key] = real
        return light

    def _real(self, tensor: onnx.TensorProto) -> ir.TensorProtocol:
        key = stub_key(tensor)
        if key in self.held:
            return self.held[key]
        if key or tensor.data_location == onnx.TensorProto.EXTERNAL:
            self.external.check(tensor, _nbytes(tensor))
        return ir.serde.deserialize_tensor(tensor, self.external.folder or "")


def _without_negative(source: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """`source`, whose negative dimensions (some exporters' -1 for a dynamic one) count as unknown."""
    if all(dim.dim_value >= 0 for dim in source.type.tensor_type.shape.dim):
        return source
    info = onnx.ValueInfoProto()
    info.CopyFrom(source)
    for dim in info.type.tensor_type.shape.dim:
        if dim.dim_value < 0:
            dim.ClearField("dim_value")
    return info


def _light(tensor: onnx.TensorProto, real: ir.TensorProtocol, name: str, key: str) -> onnx.TensorProto:
    """`tensor` named `name`: as a whole if it is small, and else as a stub that names `key`."""
    outside = tensor.data_location == onnx.TensorProto.EXTERNAL
    if _nbytes(tensor) > _KEPT_BYTES or (outside and tensor.data_type == onnx.TensorProto.STRING):
        return stub(name, tensor.dims, tensor.data_type, key)
    light = onnx.TensorProto()
    if outside:
        light.raw_data, light.data_type = _bytes(real, name), tensor.data_type
        light.dims.extend(tensor.dims)
    else:
        light.CopyFrom(tensor)
    light.name = name
    return light


_WITH_PAYLOAD = (
    onnx.AttributeProto.TENSOR,
    onnx.AttributeProto.TENSORS,
    onnx.AttributeProto.GRAPH,
    onnx.AttributeProto.GRAPHS,
)


def _nbytes(tensor: onnx.TensorProto) -> int:
    if tensor.data_type == onnx.TensorProto.STRING:
        return sum(map(len, tensor.string_data))
    elements = prod(int(d) for d in tensor.dims)
    return (elements * bits_of(tensor.data_type) + 7) // 8


def readable(text: str | bytes) -> str:
    """Text for people, whatever its encoding: what is not UTF-8 is escaped."""
    return text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text


def _copy_metadata(source: Any, copy: Any) -> None:
    for entry in getattr(source, "metadata_props", ()):
        copy.metadata_props.add(key=readable(entry.key), value=readable(entry.value))


def _bytes(tensor: ir.TensorProtocol, name: str) -> bytes:
    try:
        return tensor.tobytes()
    except (OSError, ValueError) as error:
        raise OrinportError(f"The data of the constant {quote(name)} cannot be read: {error}") from error


def _constant_tensor(node: onnx.NodeProto) -> onnx.TensorProto:
    """The tensor that a Constant node gives."""
    for attribute in node.attribute:
        if attribute.name == "value" and attribute.type == onnx.AttributeProto.TENSOR:
            return attribute.t
        if attribute.name == "value_float":
            return onnx.helper.make_tensor("", onnx.TensorProto.FLOAT, (), [attribute.f])
        if attribute.name == "value_floats":
            return onnx.helper.make_tensor("", onnx.TensorProto.FLOAT, (len(attribute.floats),), attribute.floats)
        if attribute.name == "value_int":
            return onnx.helper.make_tensor("", onnx.TensorProto.INT64, (), [attribute.i])
        if attribute.name == "value_ints":
            return onnx.helper.make_tensor("", onnx.TensorProto.INT64, (len(attribute.ints),), attribute.ints)
        if attribute.name == "value_string":
            return onnx.helper.make_tensor("", onnx.TensorProto.STRING, (), [attribute.s])
        if attribute.name == "value_strings":
            return onnx.helper.make_tensor("", onnx.TensorProto.STRING, (len(attribute.strings),), attribute.strings)
    raise OrinportError(f"The {label(node)} has no value that is supported.")
