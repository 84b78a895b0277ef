"""Shape inference of the DCNv4 and FlashDeformAttn nodes, for all that read networks through `orinport.model`."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from orinport.dcnv4.node import ATTENTION, DOMAIN, FUSED, PLAIN, node_geometry
from orinport.errors import OrinportError
from orinport.model.infer import register

__all__ = ["infer", "infer_attention"]


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


for _op_type, _function in ((PLAIN, infer), (FUSED, infer), (ATTENTION, infer_attention)):
    register(DOMAIN, _op_type, _function)
