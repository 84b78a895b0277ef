"""`to_half`: a network with FP16 tensors, for strongly typed builds.

From TensorRT 11 tensor types decide about precision and the DLA takes no FP32 layer (TensorRT
documentation, "Strongly typed networks" for DLA, 11.4.1). Every FP32 tensor becomes FP16, the network's
inputs and outputs included: a Cast at the edge would run on the GPU. Inputs that operators want in FP32
whatever the data type (scales and regions of interest of Resize) stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from orinport.errors import OrinportError
from orinport.model.save import copy_model
from orinport.precision.constants import HALF_LARGEST
from orinport.rewrites.valid import type_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.model import Model

__all__ = ["HalfReport", "to_half"]

_KEEP_FP32: dict[str, tuple[int, ...]] = {
    "Resize": (1, 2),
    "Upsample": (1,),
    "QuantizeLinear": (1,),
    "DequantizeLinear": (1,),
}
"""Input positions whose type does not follow the data: ONNX operator specifications."""

_UNSUPPORTED = ("Loop", "Scan", "If")


class HalfReport(tuple[str, ...]):
    """Notes on constants that FP16 cannot hold: names with the largest lost magnitude."""

    __slots__ = ()


def to_half(model: Model) -> tuple[Model, HalfReport]:
    """A copy of `model` in FP16, and notes on constants that FP16 rounds to zero.

    Raises OrinportError if a constant is too large for FP16 (65504), or the network has subgraphs.
    """
    result = copy_model(model)
    graph = result.ir.graph
    for node in graph:
        if node.op_type in _UNSUPPORTED:
            raise OrinportError(f"{node.op_type} cannot be converted to FP16.", "Unroll or remove the subgraph first.")
    notes = []
    kept = _kept_values(graph)
    for name, value in list(graph.initializers.items()):
        if value.dtype != ir.DataType.FLOAT or name in kept:
            continue
        array = value.const_value.numpy() if value.const_value is not None else None
        if array is None:
            raise OrinportError(f"The constant {name!r} has no values.")
        half, note = _round(name, array)
        notes += note
        value.const_value = ir.tensor(half, name=name)
        value.type = ir.TensorType(ir.DataType.FLOAT16)  # copies of a graph share their types
    for value in _values(graph):
        if value.dtype == ir.DataType.FLOAT and value.name not in kept:
            value.type = ir.TensorType(ir.DataType.FLOAT16)  # copies of a graph share their types
    for node in graph:
        _convert_attributes(node, notes)
    problem = type_problem(result.ir)
    if problem and not type_problem(model.ir):
        raise OrinportError(
            f"The network cannot be written in FP16: {problem}.",
            "Choose a target whose software takes FP32 networks, or take this operator out.",
        )
    return result, HalfReport(notes)


def _kept_values(graph: ir.Graph) -> set[str]:
    kept = set()
    for node in graph:
        for position in _KEEP_FP32.get(node.op_type, ()):
            if position < len(node.inputs) and (value := node.inputs[position]) is not None:
                if not value.is_initializer():
                    raise OrinportError(f"{node.op_type} with runtime scales cannot be converted to FP16.")
                kept.add(value.name or "")
    return kept


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in graph:
        yield from node.outputs


def _round(name: str, array: np.ndarray) -> tuple[np.ndarray, list[str]]:
    finite = array[np.isfinite(array)]
    largest = float(np.abs(finite).max()) if finite.size else 0.0
    if largest > HALF_LARGEST:
        raise OrinportError(
            f"The constant {name!r} holds {largest:g}, more than FP16 can hold ({HALF_LARGEST:g}).",
            "Rescale it, or choose a target whose software runs FP32 parts on the GPU.",
        )
    half = array.astype(np.float16)
    lost = np.abs(array[(half == 0) & (array != 0)])
    if not lost.size:
        return half, []
    return half, [f"{lost.size} values of the constant {name!r} up to {float(lost.max()):.3g} become 0 in FP16"]


def _convert_attributes(node: ir.Node, notes: list[str]) -> None:
    """Casts to FP32 become casts to FP16, constants inside nodes are rounded."""
    for name, attribute in list(node.attributes.items()):
        if attribute.is_ref():
            continue
        if name in ("to", "dtype") and attribute.value == int(ir.DataType.FLOAT):
            node.attributes[name] = ir.AttrInt64(name, int(ir.DataType.FLOAT16))
        elif attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype == ir.DataType.FLOAT:
            half, note = _round(f"{node.name}.{name}", attribute.value.numpy())
            notes += note
            node.attributes[name] = ir.AttrTensor(name, ir.tensor(half))
