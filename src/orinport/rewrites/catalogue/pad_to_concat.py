"""`Pad(x, reflect) -> Concat(Slice(x), x, Slice(x))`: padding with the tensor's own rows and columns.

## What it does
Pad in reflect, edge or wrap mode becomes slices of the rows and columns that are put around, and a Concat of them
along the channels, between transposes.

## Why
The parser makes a Slice in another mode of it, which the DLA refuses; wrapping it takes from TensorRT 10.4 on.

## Example
`Pad(x, reflect, 1)` before the convolutions of style transfer: one row and column on each side.

## Refused
Padding known at run time, of batch or channels, or that takes away; other ranks than 4; integers; more rows and columns
than are worth a slice each. Zeros are for `fuse-pad` and `conv-pads-to-convs`.

## Safety
exact: bit-equal.

## Source
Rows N01, V01a, V03a and V03c of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._selection import take
from orinport.rewrites.catalogue.fuse_pad import padding_of, shape_to_pad
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "PadToConcat"]

_MODES = ("edge", "reflect", "wrap")


class PadToConcat(Rewrite):
    """Padding by mirrors, edges and wraps becomes slices and concatenations."""

    name = "pad-to-concat"
    safety = Safety.EXACT
    op_types = ("Pad",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        shape = shape_to_pad(node, context, _MODES)
        if shape is None or isinstance(shape, Refusal):
            return shape
        mode = context.attribute(node, "mode", "constant")
        added = padding_of(node, 4, context, _MODES)
        if isinstance(added, Refusal):
            return added
        if not any(added):
            return None
        top, left, bottom, right = added
        wanted = {2: (top, bottom), 3: (left, right)}
        if mode != "edge" and any(max(wanted[axis]) >= shape[axis] for axis in wanted):
            return Refusal("it pads with more than the tensor has")
        order = {axis: np.pad(np.arange(shape[axis]), wanted[axis], mode).tolist() for axis in wanted}
        return Match((node,), (node.outputs[0],), order)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        value = match.nodes[0].inputs[0]
        assert value is not None
        for axis, indices in match.data.items():
            value = take(builder, value, axis, indices)
        return (value,)


REWRITE = PadToConcat()
