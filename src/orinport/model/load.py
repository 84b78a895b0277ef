"""`load(source)`: from a path, bytes, a proto or an onnx_ir model to a `Model` that can be trusted."""

from __future__ import annotations

import logging
import os
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from orinport.collector import collection_paused
from orinport.errors import OrinportError, first_line
from orinport.model.deserialize import deserialize_flat, give_weight
from orinport.model.external import ExternalData
from orinport.model.fold import Folder
from orinport.model.infer import assign_types, complete, infer_proto, take_types
from orinport.model.model import Model
from orinport.model.shapes import apply_shapes, parse_shapes
from orinport.model.skeleton import Skeleton, build_skeleton, readable, stub
from orinport.model.structure import check_structure, quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["declared_inputs", "load"]

_PROTOBUF_LIMIT = 2**31 - 1
logging.getLogger("onnx_ir").addHandler(logging.NullHandler())


def load(source: Any, *, shapes: str | Sequence[str] | Mapping[str, Sequence[int]] | None = None) -> Model:
    """Read a network and make it ready for all that follows.

    `source` is a path, the bytes of a file, an `onnx.ModelProto` or an `onnx_ir.Model`; it is never changed.
    `shapes` replaces dynamic dimensions of inputs, as `"x:1x3x224x224"` or a mapping. In the result model-local
    functions are inlined, Constant nodes are initializers, shape arithmetic is folded, and shapes and types are
    known wherever they can be. Weights are neither copied nor read.

    Raises OrinportError, in one sentence, for whatever makes the network unusable.
    """
    wanted = parse_shapes(shapes)
    with collection_paused():
        given = _read(source)
        return _load(given, wanted)


def declared_inputs(source: Any) -> dict[str, list[int | str]]:
    """The dimensions of the inputs of `source`, which is anything that `load` takes; dynamic ones by name.

    A dimension without a name, or of 0 or below, is called `?`. Constants that count as inputs are left out.
    Raises OrinportError if `source` cannot be read.
    """
    graph = _read(source).proto.graph
    constant = {tensor.name for tensor in graph.initializer}
    return {
        info.name: [
            dim.dim_value if dim.WhichOneof("value") == "dim_value" and dim.dim_value > 0 else dim.dim_param or "?"
            for dim in info.type.tensor_type.shape.dim
        ]
        for info in graph.input
        if info.name not in constant
    }


@dataclass(frozen=True, slots=True)
class _Given:
    """What was given, as a proto."""

    proto: onnx.ModelProto
    name: str
    path: Path | None = None
    held: dict[str, ir.TensorProtocol] = field(default_factory=dict)
    """Tensors that the proto names by stubs."""


def _load(given: _Given, wanted: Mapping[str, tuple[int, ...]]) -> Model:
    external = ExternalData(None if given.path is None else given.path.parent)
    is_sorted = check_structure(given.proto)
    skeleton = build_skeleton(given.proto, external, given.held, is_sorted=is_sorted)
    symbols = apply_shapes(skeleton.proto.graph.input, wanted)
    proto = infer_proto(skeleton.take())
    types = take_types(proto.graph)
    model = _to_ir(proto, skeleton)
    folder = Folder(model)
    complete(model, assign_types(model.graph, types), skeleton.declared, symbols, folder)
    if folder.changed:
        _drop_unused_initializers(model.graph)
    return Model(model, given.name, given.path)


def _to_ir(proto: onnx.ModelProto, skeleton: Skeleton) -> ir.Model:
    """The inferred skeleton as an onnx_ir model, with the real tensors back in their places."""
    inputs = list(proto.graph.input)
    try:
        model = _deserialize(proto, skeleton)
    except (ValueError, TypeError, KeyError, NotImplementedError, RuntimeError, AssertionError) as error:
        raise OrinportError(f"The network cannot be read: {first_line(error)}") from error
    for value, info in zip(model.graph.inputs, inputs, strict=True):
        if value.is_graph_output():
            ir.serde.deserialize_value_info_proto(info, value)
    if skeleton.tensors:
        for node in model.graph.all_nodes():
            _restore(node, skeleton.tensors)
    return model


def _deserialize(proto: onnx.ModelProto, skeleton: Skeleton) -> ir.Model:
    if skeleton.is_flat:
        return deserialize_flat(proto, skeleton.initializers)
    model: ir.Model = ir.serde.deserialize_model(proto)
    for name, value in model.graph.initializers.items():
        give_weight(value, skeleton.initializers[name])
    return model


def _restore(node: ir.Node, tensors: Mapping[str, ir.TensorProtocol]) -> None:
    """Put real tensors in the place of stubs in the attributes and subgraphs of `node`."""
    for attribute in list(node.attributes.values()):
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.TENSOR:
            node.attributes[attribute.name] = ir.AttrTensor(attribute.name, _real(attribute.as_tensor(), tensors))
        elif attribute.type == ir.AttributeType.TENSORS:
            real = [_real(tensor, tensors) for tensor in attribute.as_tensors()]
            node.attributes[attribute.name] = ir.AttrTensors(attribute.name, real)
        elif attribute.type == ir.AttributeType.GRAPH:
            _restore_initializers(attribute.as_graph(), tensors)
        elif attribute.type == ir.AttributeType.GRAPHS:
            for graph in attribute.as_graphs():
                _restore_initializers(graph, tensors)


def _restore_initializers(graph: ir.Graph, tensors: Mapping[str, ir.TensorProtocol]) -> None:
    for value in graph.initializers.values():
        if value.const_value is not None:
            value.const_value = _real(value.const_value, tensors)


def _real(tensor: ir.TensorProtocol, tensors: Mapping[str, ir.TensorProtocol]) -> ir.TensorProtocol:
    return tensors[str(tensor.location)] if isinstance(tensor, ir.ExternalTensor) else tensor


def _read(source: Any) -> _Given:
    if isinstance(source, (str, os.PathLike)):
        return _read_file(Path(source))
    if isinstance(source, (bytes, bytearray, memoryview)):
        proto = _parse(bytes(source), "The given bytes")
        return _Given(proto, _graph_name(proto.graph))
    if isinstance(source, onnx.ModelProto):
        return _Given(source, _graph_name(source.graph))
    if isinstance(source, ir.Model):
        return _from_ir(source)
    if isinstance(source, Model):
        return replace(_from_ir(source.ir), name=source.name, path=source.path)
    raise OrinportError(
        f"A network is a path, bytes, an onnx.ModelProto or an onnx_ir.Model, not {type(source).__name__}."
    )


def _graph_name(graph: onnx.GraphProto) -> str:
    return readable(graph.name) or "model"


def _read_file(path: Path) -> _Given:
    shown = quote(str(path), 200)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise OrinportError(f"{shown} is no plain file.")
        if status.st_size > _PROTOBUF_LIMIT:
            raise OrinportError(
                f"{shown} has {status.st_size} bytes; an ONNX file ends at 2 GiB.", "Keep the weights as external data."
            )
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OrinportError(f"{shown} cannot be read: {reason}.") from error
    return _Given(_parse(data, shown), path.name, path.absolute())


def _parse(data: bytes, what: str) -> onnx.ModelProto:
    if not data:
        raise OrinportError(f"{what} is empty.")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, RuntimeError, ValueError) as error:
        raise OrinportError(f"{what} is no ONNX network, or is damaged.") from error
    return proto


def _from_ir(source: ir.Model) -> _Given:
    """A proto of an onnx_ir model whose tensors are stubs: no weight is copied."""
    held: dict[str, ir.TensorProtocol] = {}
    folders: dict[Path, ExternalData] = {}
    proto = onnx.ModelProto(ir_version=source.ir_version or onnx.IR_VERSION)
    for field_name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        if (given := getattr(source, field_name)) is not None:
            setattr(proto, field_name, given)
    proto.graph.name, proto.graph.doc_string = source.graph.name or "", source.graph.doc_string or ""
    for owner, copy in ((source, proto), (source.graph, proto.graph)):
        for key, text in owner.metadata_props.items():
            copy.metadata_props.add(key=key, value=text)
    for domain, version in source.graph.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    try:
        for node in source.graph:
            proto.graph.node.append(ir.serde.serialize_node(node))
        for value in source.graph.inputs:
            ir.serde.serialize_value_into(proto.graph.input.add(), value)
        for value in source.graph.outputs:
            ir.serde.serialize_value_into(proto.graph.output.add(), value)
        for function in source.functions.values():
            proto.functions.append(ir.serde.serialize_function(function))
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise OrinportError(f"The onnx_ir model cannot be read: {error}") from error
    for name, value in source.graph.initializers.items():
        tensor = value.const_value
        if tensor is None:
            raise OrinportError(f"The initializer {quote(name)} has no data.")
        if isinstance(tensor, ir.ExternalTensor):
            folder = Path(tensor.base_dir or ".")
            external = folders.setdefault(folder, ExternalData(folder))
            external.check_place(name, str(tensor.location), tensor.offset, tensor.length, tensor.nbytes)
        key = f"#{len(held)}"
        held[key] = tensor
        proto.graph.initializer.append(stub(name, tensor.shape.numpy(), int(tensor.dtype), key))
    return _Given(proto, source.graph.name or "model", held=held)


def _drop_unused_initializers(graph: ir.Graph) -> None:
    unused = [name for name, v in graph.initializers.items() if not v.uses() and not v.is_graph_output()]
    for name in unused:
        graph.initializers.pop(name)
