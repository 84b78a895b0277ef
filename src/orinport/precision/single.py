"""`to_single`: a network with FP16 tensors as one in FP32, the way back from `to_half`.

    x (FP16) -> Conv(w in FP16) -> y (FP16)      =>      x -> Conv(w) -> y, all in FP32

FP32 holds every number of FP16, so constants, scales and zero points keep their values; nothing is rounded any more.
What was FP32 in a network of both types is told: from TensorRT 11 on a layer computes in the type that it is written
in, and the DLA takes no layer in FP32. BF16 and FP64 stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from orinport.model.model import display_name, numpy_of
from orinport.model.save import copy_model

if TYPE_CHECKING:
    from orinport.model.model import Model

__all__ = ["Single", "to_single"]

_TYPES = ("to", "dtype", "output_dtype", "precision", "softmax_precision")
"""Attributes that name a data type: ONNX operator specifications."""


@dataclass(frozen=True, slots=True)
class Single:
    """A network in FP32, and what it was before."""

    model: Model
    kept: frozenset[str] = frozenset()
    """Inputs, and nodes by display name, that gave FP32 in a network with FP16 tensors."""


def to_single(model: Model) -> Single:
    """A copy of `model` whose FP16 tensors are FP32; `model` itself if there are none, or if it has subgraphs."""
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    values += [value for node in model.graph for value in node.outputs]
    if not any(value.dtype == ir.DataType.FLOAT16 for value in values) or _has_subgraphs(model.graph):
        return Single(model)
    kept = {value.name or "" for value in model.graph.inputs if value.dtype == ir.DataType.FLOAT}
    for node in model.graph:
        if any(value.dtype == ir.DataType.FLOAT and not model.is_constant(value) for value in node.outputs):
            kept.add(display_name(node))
    result = copy_model(model)
    for name, value in result.graph.initializers.items():
        if value.dtype == ir.DataType.FLOAT16:
            array = model.constant(model.graph.initializers[name], limit=None)
            if array is not None:
                value.const_value = ir.tensor(array.astype(np.float32), name=name)
            value.type = ir.TensorType(ir.DataType.FLOAT)  # copies of a graph share their types
    for value in [*result.graph.inputs, *(output for node in result.graph for output in node.outputs)]:
        if value.dtype == ir.DataType.FLOAT16:
            value.type = ir.TensorType(ir.DataType.FLOAT)
            if value.const_value is not None:
                array = numpy_of(value.const_value, value.name or "")
                value.const_value = ir.tensor(array.astype(np.float32), name=value.name)
    for node in result.graph:
        _convert_attributes(node)
    return Single(result, frozenset(kept))


def _has_subgraphs(graph: ir.Graph) -> bool:
    kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    return any(attribute.type in kinds for node in graph for attribute in node.attributes.values())


def _convert_attributes(node: ir.Node) -> None:
    """Casts to FP16 become casts to FP32, constants inside nodes are FP32."""
    for name, attribute in list(node.attributes.items()):
        if name in _TYPES and attribute.value == int(ir.DataType.FLOAT16):
            node.attributes[name] = ir.AttrInt64(name, int(ir.DataType.FLOAT))
        elif attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype == ir.DataType.FLOAT16:
            node.attributes[name] = ir.AttrTensor(name, ir.tensor(attribute.value.numpy().astype(np.float32)))
