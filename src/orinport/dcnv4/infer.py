"""Shape inference of the DCNv4 nodes, for everything that reads networks through `orinport.model`."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from orinport.dcnv4.node import DOMAIN, FUSED, PLAIN, node_geometry
from orinport.errors import OrinportError
from orinport.model.infer import register

__all__ = ["infer"]


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


register(DOMAIN, PLAIN, infer)
register(DOMAIN, FUSED, infer)
