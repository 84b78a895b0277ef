"""The ONNX nodes `custom_op::DCNv4_Plugin` and `custom_op::DCNv4FuseOffset_Plugin`, as NVIDIA's plugins name them.

`DCNv4_Plugin` takes value and offset_mask, `DCNv4FuseOffset_Plugin` one tensor (N, H, W, C+P) with value first. Both
carry the thirteen attributes that are the plugins' fields (DL4AGX, AV-Solutions/dcnv4-trt).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from orinport.dcnv4.arguments import Geometry
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DOMAIN", "FUSED", "PLAIN", "STEP", "is_node", "make_node", "node_attributes", "node_geometry", "nodes_of"]

DOMAIN = "custom_op"
PLAIN = "DCNv4_Plugin"
FUSED = "DCNv4FuseOffset_Plugin"
STEP = 256
"""The batch step of the original operator: carried by the nodes, without effect on the result."""

_INTS = ("kh", "kw", "sh", "sw", "ph", "pw", "dh", "dw", "group", "group_channels", "step", "remove_center")


def is_node(node: ir.Node) -> bool:
    """Whether the node is one of the two."""
    return node.domain == DOMAIN and node.op_type in (PLAIN, FUSED)


def nodes_of(model: ir.Model) -> list[ir.Node]:
    """All DCNv4 nodes of the main graph, in order."""
    return [node for node in model.graph if is_node(node)]


def node_attributes(geometry: Geometry) -> dict[str, int | float]:
    """The thirteen attributes, in the order of the plugins' fields; the scale in float32, as ONNX keeps it."""
    pairs = (geometry.kernel, geometry.stride, geometry.padding, geometry.dilation)
    names = (("kh", "kw"), ("sh", "sw"), ("ph", "pw"), ("dh", "dw"))
    attributes: dict[str, int | float] = {}
    for pair, (first, second) in zip(pairs, names, strict=True):
        attributes[first], attributes[second] = pair
    attributes["group"] = geometry.group
    attributes["group_channels"] = geometry.group_channels
    attributes["offscale"] = float(np.float32(geometry.offset_scale))
    attributes["step"] = STEP
    attributes["remove_center"] = int(geometry.remove_center)
    return attributes


def node_geometry(node: ir.Node) -> Geometry:
    """What the node computes. Raises OrinportError for an attribute that is missing, of another type or senseless."""
    label = f"The {node.op_type} {node.name or node.outputs[0].name!r}"
    numbers: dict[str, Any] = {}
    for name in _INTS:
        numbers[name] = _attribute(node, name, ir.AttributeType.INT, label)
    scale = _attribute(node, "offscale", ir.AttributeType.FLOAT, label)
    if numbers["remove_center"] not in (0, 1):
        raise OrinportError(f"{label} has remove_center {numbers['remove_center']}, which is neither 0 nor 1.")
    kernel, stride, padding, dilation = ((numbers[f"{letter}h"], numbers[f"{letter}w"]) for letter in "kspd")
    try:
        return Geometry(
            numbers["group"],
            numbers["group_channels"],
            kernel,
            stride,
            padding,
            dilation,
            float(scale),
            bool(numbers["remove_center"]),
        )
    except OrinportError as error:
        raise OrinportError(f"{label} cannot be: {error.message}") from error


def make_node(geometry: Geometry, inputs: Iterable[ir.Value], name: str, *, like: ir.Node | None = None) -> ir.Node:
    """A node with one input (fused) or two; shape and type of the output are set where the inputs' are known.

    `like` gives its metadata.
    """
    values = list(inputs)
    op_type = FUSED if len(values) == 1 else PLAIN
    node = ir.Node(
        DOMAIN,
        op_type,
        values,
        ir.convenience.convert_attributes(node_attributes(geometry)),
        num_outputs=1,
        name=name,
        metadata_props=None if like is None else dict(like.metadata_props),
    )
    output = node.outputs[0]
    output.name = f"{name}_output"
    first = values[0]
    output.type = first.type
    if first.shape is not None and len(first.shape) == 4:
        batch, height, width, _ = first.shape
        if isinstance(height, int) and isinstance(width, int):
            output.shape = ir.Shape([batch, *geometry.output_size(height, width), geometry.channels])
    return node


def _attribute(node: ir.Node, name: str, kind: ir.AttributeType, label: str) -> Any:
    attribute = node.attributes.get(name)
    if attribute is None:
        raise OrinportError(f"{label} lacks the attribute {name!r}.")
    if attribute.type != kind:
        raise OrinportError(f"{label} has {name!r} of type {attribute.type.name}, not {kind.name}.")
    return attribute.value
