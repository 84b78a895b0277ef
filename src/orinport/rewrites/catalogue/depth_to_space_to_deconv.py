"""`DepthToSpace(x) -> ConvTranspose(x)`: channels laid out in blocks by a deconvolution with kernel = stride.

## What it does
DepthToSpace with blocks of b x b becomes a deconvolution with kernel b x b, stride b and no padding, whose weights are
zero but for a single 1 for each input channel. Both modes, DCR (which ONNX assumes) and CRD (PyTorch's pixel shuffle).

## Why
The parser makes shuffles of six dimensions of it, which the DLA refuses; a deconvolution of that form is native.

## Example
`DepthToSpace((1, 48, 90, 160), blocksize 4)`: `ConvTranspose` to `(1, 3, 360, 640)` with 48 x 3 x 4 x 4 weights.

## Refused
Shapes that are not known; integers; blocks above the limit of the kernel.

## Safety
tolerance: the same for finite numbers. Products by zero turn an infinity, or NaN, into NaN in all of its block; tensors
in INT8 hold neither. Without consent `rearrange-in-4d` does it bit by bit.

## Source
Rows D02a, D04a, D06a, D07a and F03 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue.conv_transpose_to_unpadded import Deconvolution, unpadded
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "DepthToSpaceToDeconv"]


class DepthToSpaceToDeconv(Rewrite):
    """Depth to space becomes a deconvolution."""

    name = "depth-to-space-to-deconv"
    safety = Safety.TOLERANCE
    finite = True
    op_types = ("DepthToSpace",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        shape = context.shape(node.inputs[0])
        if shape is None or len(shape) != 4 or 0 in shape:
            return Refusal("the shape is not known, or holds no elements")
        if not context.is_float(node.inputs[0]):
            return Refusal(f"the DLA does not compute in {context.dtype(node.inputs[0])}")
        block, limit = int(context.attribute(node, "blocksize")), int(context.limit("D02a", "max"))
        if block > limit:
            return Refusal(f"blocks of {block} exceed the DLA's limit of {limit} for a kernel")
        return Match((node,), (node.outputs[0],), block)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, block = match.nodes[0], match.data
        source, shape = node.inputs[0], builder.shape(match.outputs[0])
        assert source is not None
        channels = np.arange(shape[1] * block**2)
        if builder.context.attribute(node, "mode", "DCR") == "DCR":
            places, results = np.divmod(channels, shape[1])
        else:
            results, places = np.divmod(channels, block**2)
        weights = np.zeros((len(channels), shape[1], block, block), builder.numpy_dtype(match.outputs[0]))
        weights[channels, results, places // block, places % block] = 1.0
        data = Deconvolution((block, block), (block, block), (1, 1), (0, 0), 1)
        return (unpadded(source, builder.constant(weights, "places"), None, data, builder),)


REWRITE = DepthToSpaceToDeconv()
