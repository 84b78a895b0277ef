"""A flat proto as an onnx_ir model: what `onnx_ir.serde` makes of it, in two thirds of the time.

Networks repeat the same few attributes: they are made once and shared, as clones of a graph share them. Weights come
from outside, so that their stubs are not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import onnx

__all__ = ["deserialize_flat", "give_weight"]


def deserialize_flat(proto: onnx.ModelProto, weights: Mapping[str, ir.TensorProtocol]) -> ir.Model:
    """The model of `proto`, which has no subgraphs, no functions, and nodes in topological order.

    `weights` are the tensors of its initializers by name. Inputs, initializers, nodes and outputs are taken out of
    `proto`. Raises what `onnx_ir.serde` raises for what it cannot read.
    """
    source = proto.graph
    inputs = [_described(info, ir.Value(name=info.name)) for info in source.input]
    initializers = [ir.Value(name=tensor.name) for tensor in source.initializer]
    for value, tensor in zip(initializers, source.initializer, strict=True):
        give_weight(value, weights[tensor.name], tensor.dims)
    values = {value.name or "": value for value in (*inputs, *initializers)}
    nodes = _nodes(source.node, values)
    outputs = [_described(info, values[info.name]) for info in source.output]
    for value in outputs:
        if value.const_value is not None:
            give_weight(value, value.const_value)
    for field in ("input", "initializer", "node", "output"):
        source.ClearField(field)
    model: ir.Model = ir.serde.deserialize_model(proto)
    empty = model.graph
    # Only a graph that is made with its inputs and initializers gives none of their names to new values.
    model.graph = ir.Graph(
        inputs,
        outputs,
        nodes=nodes,
        initializers=initializers,
        doc_string=empty.doc_string,
        opset_imports=empty.opset_imports,
        name=empty.name,
        metadata_props=empty.metadata_props,
    )
    return model


def _described(info: onnx.ValueInfoProto, value: ir.Value) -> ir.Value:
    ir.serde.deserialize_value_info_proto(info, value)
    return value


def give_weight(value: ir.Value, weight: ir.TensorProtocol, dims: Iterable[int] | None = None) -> None:
    """Make `weight` the value of an initializer; `dims` are its dimensions, if they are at hand."""
    value.const_value, value.type = weight, ir.TensorType(weight.dtype)
    if value.shape is None:
        value.shape = ir.Shape(weight.shape.numpy() if dims is None else dims)


def _nodes(protos: Iterable[onnx.NodeProto], values: dict[str, ir.Value]) -> list[ir.Node]:
    """The nodes; what they make is added to `values`. No proto is kept: what Python holds of it takes a kilobyte."""
    attributes: dict[bytes, ir.Attr] = {}
    nodes = []
    for proto in protos:
        inputs = [values[name] if name else None for name in proto.input]
        made = []
        for name in proto.output:
            value = ir.Value(name=name)
            if name:
                values[name] = value
            made.append(value)
        given = []
        for attribute in proto.attribute:
            key = attribute.SerializeToString()
            known = attributes.get(key)
            if known is None:
                known = attributes[key] = ir.serde.deserialize_attribute(attribute)
            given.append(known)
        nodes.append(
            ir.Node(
                proto.domain,
                proto.op_type,
                inputs,
                given,
                overload=getattr(proto, "overload", ""),
                outputs=made,
                name=proto.name,
                doc_string=proto.doc_string if proto.HasField("doc_string") else None,
                metadata_props=ir.serde.deserialize_metadata_props(proto.metadata_props),
            )
        )
    return nodes
