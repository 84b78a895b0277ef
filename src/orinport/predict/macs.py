"""Multiply-accumulates of a layer."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.predict.operations import CONVOLUTIONS

if TYPE_CHECKING:
    from orinport.model.layer import Layer

__all__ = ["layer_macs"]


def layer_macs(layer: Layer) -> int:
    """Multiply-accumulates of one layer over all images; 0 for layers without products or with unknown shapes."""
    if not layer.inputs or not layer.outputs:
        return 0
    source, result = layer.inputs[0], layer.outputs[0]
    if not source.shape or not result.shape:
        return 0
    if layer.kind is LayerKind.MATRIX_MULTIPLY:
        inner = source.shape[-2 if layer.attributes.get("op0") == "TRANSPOSE" and len(source.shape) > 1 else -1]
        return prod(result.shape) * inner
    if layer.kind is LayerKind.FULLY_CONNECTED:
        return prod(result.shape) * prod(source.shape[-3:])
    if layer.kind not in CONVOLUTIONS:
        return 0
    kernel = layer.attributes.get("kernel", ())
    channels = source.shape[-len(kernel) - 1]
    kernels = result.shape[-len(kernel) - 1]
    groups = int(layer.attributes.get("groups", 1))
    positions: int = prod((source if layer.kind is LayerKind.DECONVOLUTION else result).shape or ())
    positions //= channels if layer.kind is LayerKind.DECONVOLUTION else kernels
    return positions * int(prod(kernel)) * (channels // groups) * kernels
