"""Shape inference of the DCNv4 and FlashDeformAttn nodes, for all that read networks through `orinport.model`."""

from __future__ import annotations

import contextlib
from typing import Any

import onnx
import onnx.shape_inference
import onnx_ir as ir

from orinport.dcnv4.node import ATTENTION, DOMAIN, FUSED, PLAIN, node_geometry
from orinport.errors import OrinportError
from orinport.model.infer import register

__all__ = ["complete_shapes", "infer", "infer_attention"]


def infer(node: ir.Node, constant: Any = None) -> list[tuple[ir.DataType, list[Any]] | None]:  # noqa: ARG001
    """Type and shape (N, Ho, Wo, G*D) of the output; None where the input's are not known or nothing fits.

    A batch that is not known by number stays what it is; height and width must be numbers.
    """
    first = node.inputs[0] if node.inputs else None
    if first is None or first.shape is None or first.dtype is None or len(first.shape) != 4:
        return [None]
    batch, height, width, _ = first.shape
    if not isinstance(height, int) or not isinstance(width, int):
        return [None]
    try:
        geometry = node_geometry(node)
        rows, columns = geometry.output_size(height, width)
    except OrinportError:
        return [None]
    return [(first.dtype, [batch, rows, columns, geometry.channels])]


def infer_attention(node: ir.Node, constant: Any = None) -> list[tuple[ir.DataType, list[Any]] | None]:  # noqa: ARG001
    """Type and shape (B, Q, G*D) of FlashDeformAttn's output; None where the inputs' are not known."""
    value, vectors = node.inputs[0], node.inputs[3] if len(node.inputs) == 4 else None
    if value is None or vectors is None or value.shape is None or vectors.shape is None or value.dtype is None:
        return [None]
    if len(value.shape) != 4 or len(vectors.shape) != 4:
        return [None]
    batch, _, group, channels = value.shape
    if not isinstance(group, int) or not isinstance(channels, int):
        return [None]
    return [(value.dtype, [batch, vectors.shape[1], group * channels])]


_FUNCTIONS = {PLAIN: infer, FUSED: infer, ATTENTION: infer_attention}
for _op_type, _function in _FUNCTIONS.items():
    register(DOMAIN, _op_type, _function)


def complete_shapes(model: ir.Model) -> None:
    """Fill types and shapes that are missing in the main graph, node by node, in place.

    Dynamic dimensions keep their names where onnx's inference hands them on. What cannot be found out stays unknown.
    """
    imports = [onnx.OperatorSetIdProto(domain=d, version=v) for d, v in model.graph.opset_imports.items()]
    for node in model.graph:
        if all(value.shape is not None and value.dtype is not None for value in node.outputs if value.name):
            continue
        if node.domain == DOMAIN and node.op_type in _FUNCTIONS:
            (found,) = _FUNCTIONS[node.op_type](node)
            if found is not None:
                node.outputs[0].type, node.outputs[0].shape = ir.TensorType(found[0]), ir.Shape(found[1])
        elif node.domain in ("", "ai.onnx"):
            with contextlib.suppress(Exception):  # whatever onnx cannot infer stays unknown
                _ask_onnx(node, imports)


def _ask_onnx(node: ir.Node, imports: list[onnx.OperatorSetIdProto]) -> None:
    opset = next(entry.version for entry in imports if entry.domain in ("", "ai.onnx"))
    types, data = {}, {}
    for value in node.inputs:
        if value is None or not value.name:
            continue
        tensor = value.const_value
        if value.shape is not None and value.dtype is not None:
            types[value.name] = ir.serde.serialize_value(value).type
        elif tensor is not None:
            dims = [int(dim) for dim in tensor.shape]  # type: ignore[arg-type]
            types[value.name] = onnx.helper.make_tensor_type_proto(int(tensor.dtype), dims)
        if tensor is not None and tensor.size <= _SMALL:
            data[value.name] = onnx.numpy_helper.from_array(tensor.numpy(), value.name)
    found = onnx.shape_inference.infer_node_outputs(
        onnx.defs.get_schema(node.op_type, opset, ""),
        ir.serde.serialize_node(node),
        types,
        data,
        opset_imports=imports,
        ir_version=10,
    )
    for value in node.outputs:
        if value.name in found:
            value.type = ir.serde.deserialize_type_proto_for_type(found[value.name])
            value.shape = ir.serde.deserialize_type_proto_for_shape(found[value.name])


_SMALL = 1024
"""Elements up to which the values of a constant are shown to onnx: shapes, axes."""
