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

__all__ = [
    "ATTENTION",
    "DOMAIN",
    "FUSED",
    "PLAIN",
    "STEP",
    "attention_attributes",
    "attention_points",
    "custom_nodes",
    "is_node",
    "label_of",
    "make_node",
    "node_attributes",
    "node_geometry",
    "nodes_of",
]

DOMAIN = "custom_op"
PLAIN = "DCNv4_Plugin"
FUSED = "DCNv4FuseOffset_Plugin"
ATTENTION = "FlashDeformAttn"
STEP = 256
"""The batch step of the original operator: carried by the nodes, without effect on the result."""
_ATTENTION_STEP = 64
"""That of the original FlashDeformAttn."""

_DEFAULTS: dict[str, float] = {
    **dict.fromkeys(("kh", "kw"), 3),
    **dict.fromkeys(("sh", "sw", "ph", "pw", "dh", "dw"), 1),
    "offscale": 1.0,
    "step": STEP,
    "remove_center": 0,
}
_INTS = ("kh", "kw", "sh", "sw", "ph", "pw", "dh", "dw", "group", "group_channels", "step", "remove_center")


def is_node(node: ir.Node) -> bool:
    """Whether the node is one of the two."""
    return node.domain == DOMAIN and node.op_type in (PLAIN, FUSED)


def nodes_of(model: ir.Model) -> list[ir.Node]:
    """All DCNv4 nodes of the main graph, in order."""
    return [node for node in model.graph if is_node(node)]


def custom_nodes(model: ir.Model) -> list[ir.Node]:
    """All DCNv4 and FlashDeformAttn nodes of the main graph, in order."""
    return [node for node in model.graph if is_node(node) or (node.domain, node.op_type) == (DOMAIN, ATTENTION)]


def label_of(node: ir.Node) -> str:
    """What messages call the node."""
    return f"The {node.op_type} {node.name or node.outputs[0].name!r}"


def attention_points(node: ir.Node) -> int:
    """K, the points per level of a FlashDeformAttn node. Raises OrinportError if it makes no sense."""
    label = label_of(node)
    points = _attribute(node, "K", ir.AttributeType.INT, label, 8)
    if points < 1:
        raise OrinportError(f"{label} has {points} points.")
    return int(points)


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


def attention_attributes(points: int) -> dict[str, int | float]:
    """The two attributes of a FlashDeformAttn node, in the order of the plugin's fields."""
    return {"im2col_step": _ATTENTION_STEP, "K": points}


def node_geometry(node: ir.Node) -> Geometry:
    """What the node computes.

    Attributes that are left out have the values of the models' operators: 3x3, everything else 1, no centre removed;
    `group` and `group_channels` must be there. Raises OrinportError for those, and for wrong types and values.
    """
    label = label_of(node)
    numbers: dict[str, Any] = {}
    for name in _INTS:
        numbers[name] = _attribute(node, name, ir.AttributeType.INT, label, _DEFAULTS.get(name))
    scale = _attribute(node, "offscale", ir.AttributeType.FLOAT, label, _DEFAULTS["offscale"])
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


def _attribute(node: ir.Node, name: str, kind: ir.AttributeType, label: str, default: float | None) -> Any:
    attribute = node.attributes.get(name)
    if attribute is None and default is not None:
        return default
    if attribute is None:
        raise OrinportError(f"{label} lacks the attribute {name!r}.")
    if attribute.type != kind:
        raise OrinportError(f"{label} has {name!r} of type {attribute.type.name}, not {kind.name}.")
    return attribute.value
