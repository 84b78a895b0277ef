"""`SpaceToDepth(x) -> Conv(x)`: blocks of pixels laid into channels by a convolution with kernel = stride.

## What it does
SpaceToDepth with blocks of b x b becomes a convolution with kernel b x b and stride b whose weights are zero but for a
single 1 in each output channel.

## Why
The parser makes shuffles of six dimensions of it, which the DLA refuses; a strided convolution is native.

## Example
`SpaceToDepth((1, 3, 640, 640), blocksize 2)`, the Focus of YOLO: 12 x 3 x 2 x 2 weights.

## Refused
Shapes that are not known; integers; blocks above the limit of the stride; weights that do not fit the convolution
buffer or the cost limit.

## Safety
tolerance: the same for finite numbers. Products by zero turn an infinity, or NaN, into NaN in all of its block; tensors
in INT8 hold neither. Without consent `rearrange-in-4d` does it bit by bit.

## Source
Rows C02a, C04, C10a and F03 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._windows import Window, build_conv
from orinport.rewrites.limits import fits_buffer
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "SpaceToDepthToConv"]


class SpaceToDepthToConv(Rewrite):
    """Space to depth becomes a strided convolution."""

    name = "space-to-depth-to-conv"
    safety = Safety.TOLERANCE
    finite = True
    op_types = ("SpaceToDepth",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        shape = context.shape(node.inputs[0])
        if shape is None or len(shape) != 4 or 0 in shape:
            return Refusal("the shape is not known, or holds no elements")
        if not context.is_float(node.inputs[0]):
            return Refusal(f"the DLA does not compute in {context.dtype(node.inputs[0])}")
        block, limit = int(context.attribute(node, "blocksize")), int(context.limit("C04", "max"))
        if block > limit:
            return Refusal(f"blocks of {block} exceed the DLA's limit of {limit} for a stride")
        if not fits_buffer(context, shape[1], shape[3], (block, block)):
            return Refusal(
                f"{shape[1]} channels, blocks of {block} and rows of {shape[3]} do not fit the convolution buffer"
            )
        return Match((node,), (node.outputs[0],), (block, context.attribute(node, "mode", "DCR") == "CRD"))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        (block, channels_first), source = match.data, match.nodes[0].inputs[0]
        assert source is not None
        channels = builder.shape(source)[1]
        results = np.arange(channels * block**2)
        if channels_first:
            sources, places = np.divmod(results, block**2)
        else:
            places, sources = np.divmod(results, channels)
        weights = np.zeros((len(results), channels, block, block), builder.numpy_dtype(source))
        weights[results, sources, places // block, places % block] = 1.0
        window = Window((block, block), (block, block), (0, 0), (0, 0), (1, 1))
        return (build_conv(builder, source, builder.constant(weights, "places"), None, window),)


REWRITE = SpaceToDepthToConv()
