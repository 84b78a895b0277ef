"""A layer that does not work on exactly two spatial dimensions.

## What it checks
Convolution, FullyConnected, Deconvolution, Pooling, Activation, ElementWise and Scale work on two spatial
dimensions, that is on 4-D tensors `(N, C, H, W)`.

## Why it matters
The DLA knows images only. A ReLU or an addition on a tensor of rank 2, 3 or 5 goes to the GPU, and cuts the
network at this place, although the same operation on a 4-D tensor would be taken.

## Example
A Conv node with a weight of shape (16, 8, 3, 3, 3); an Add of two tensors of shape (1, 196, 768).

## What to do
Keep tensors 4-D: (N, tokens, C) as (N, C, 1, tokens), (N, C) as (N, C, 1, 1). Write a 3-D convolution as a sum of
2-D convolutions over the depth.

## Fix safety
No rewrite is applied for this rule alone; rewrites that make 1x1 convolutions of matrix products keep tensors 4-D.

## Source
Rows C01, C12a, C12b, D01, P01, A01a, A01b, E01, S01 and G15a: NvInfer.h, developer guides 8.4 and 8.5, current
documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, speaking

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_ROWS: Mapping[LayerKind, tuple[str, ...]] = {
    LayerKind.CONVOLUTION: ("C01",),
    LayerKind.FULLY_CONNECTED: ("C01",),
    LayerKind.DECONVOLUTION: ("D01",),
    LayerKind.POOLING: ("P01",),
    LayerKind.ACTIVATION: ("A01a", "A01b"),
    LayerKind.ELEMENTWISE: ("E01",),
    LayerKind.SCALE: ("S01",),
}

_CONVOLUTION = (
    "Write a 1-D convolution as a 2-D one of height 1, a 3-D one as a sum of 2-D convolutions over its depth."
)
_OTHER = "Keep the tensor 4-D: (N, C) as (N, C, 1, 1), (N, tokens, C) as (N, C, 1, tokens)."


class SpatialDimensions(LayerRule):
    code = "DLA120"
    title = "Layer does not work on exactly two spatial dimensions"
    rows = ("C01", "C12a", "C12b", "D01", "P01", "A01a", "A01b", "E01", "S01", "G15a")
    kinds = tuple(_ROWS)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = speaking(context, _ROWS[layer.kind])
        if row is None:
            return
        # An element-wise layer broadcasts: its output has the rank that counts.
        tensor = layer.outputs[0] if layer.kind is LayerKind.ELEMENTWISE else layer.inputs[0]
        if tensor.shape is None:  # DLA103 speaks
            return
        spatial, limit = len(tensor.shape) - 2, row.values["spatial"]
        if spatial == limit:
            return
        named = context.rows.get("C12a") if layer.kind is LayerKind.CONVOLUTION else None
        yield finding(
            self,
            layer,
            (row, named) if named is not None and spatial == named.values["spatial"] else row,
            f"The layer works on a tensor of rank {len(tensor.shape)} {list(tensor.shape)}; the DLA takes exactly"
            f" {limit} spatial dimensions, (N, C, H, W).",
            value=len(tensor.shape),
            limit=limit + 2,
            advice=_CONVOLUTION if layer.kind is LayerKind.CONVOLUTION else _OTHER,
        )


RULE = SpatialDimensions()
