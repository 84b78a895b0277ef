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

    `weights` are the tensors of its initializers by name. Nodes, initializers and outputs are taken out of `proto`.
    Raises what `onnx_ir.serde` raises for what it cannot read.
    """
    source = proto.graph
    nodes, initializers, outputs = list(source.node), list(source.initializer), list(source.output)
    for field in ("node", "initializer", "output"):
        source.ClearField(field)
    model: ir.Model = ir.serde.deserialize_model(proto)
    graph = model.graph
    values = {value.name or "": value for value in graph.inputs}
    for tensor in initializers:
        name = tensor.name
        values[name] = value = ir.Value(name=name)
        give_weight(value, weights[name], tensor.dims)
        graph.initializers.add(value)
    graph.extend(_nodes(nodes, values))
    for info in outputs:
        value = values[info.name]
        ir.serde.deserialize_value_info_proto(info, value)
        graph.outputs.append(value)
        if info.name in weights:
            give_weight(value, weights[info.name])
    return model


def give_weight(value: ir.Value, weight: ir.TensorProtocol, dims: Iterable[int] | None = None) -> None:
    """Make `weight` the value of an initializer; `dims` are its dimensions, if they are at hand."""
    value.const_value, value.type = weight, ir.TensorType(weight.dtype)
    if value.shape is None:
        value.shape = ir.Shape(weight.shape.numpy() if dims is None else dims)


def _nodes(protos: list[onnx.NodeProto], values: dict[str, ir.Value]) -> list[ir.Node]:
    """The nodes; what they make is added to `values`."""
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
