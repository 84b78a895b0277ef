"""`Tile(x) -> Concat(x, x)`, `Expand(x) -> Resize(x)`: copies along channels, height and width.

## What it does
Tile and Expand of 4-D tensors become what the DLA has: a Concat of the same tensor along the channels, between two
transposes for another axis; where the axis has a single element, a nearest Resize (height and width) or a convolution
with ones (channels).

## Why
The parser makes a Slice with a stride of 0 or in wrapping mode of them, which the DLA refuses.

## Example
`Expand((1, 256, 1, 1) -> (1, 256, 28, 28))`, the image pooling of DeepLab: a Resize by 28.

## Refused
Copies known at run time; copies of the batch; other ranks than 4; integers; more copies than the limits of Resize and
of the number of layers allow.

## Safety
exact: bit-equal.

## Source
Rows N01, V02, V03c and Z02a of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.builder import RefusedError
from orinport.rewrites.catalogue._broadcast import spread
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "TileToConcat"]


class TileToConcat(Rewrite):
    """Copies become concatenations and resizes."""

    name = "tile-to-concat"
    safety = Safety.EXACT
    op_types = ("Expand", "Tile")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        source = node.inputs[0]
        before, after = context.shape(source), context.shape(node.outputs[0])
        if source is None or context.is_constant(source):
            return None
        if not context.is_float(source):
            return Refusal(f"the DLA does not compute in {context.dtype(source)}")
        if not context.is_constant(context.input(node, 1)):
            return Refusal("the copies are known at run time only")
        if before is None or after is None or 0 in before or 0 in after:
            return Refusal("a shape is not known, or holds no elements")
        if len(before) != 4 or len(after) != 4:
            return Refusal(f"it goes from rank {len(before)} to {len(after)}, and the DLA takes rank 4")
        if before[0] != after[0]:
            return Refusal("it copies the batch")
        return None if before == after else Match((node,), (node.outputs[0],), (before, after))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        before, after = match.data
        value = match.nodes[0].inputs[0]
        assert value is not None
        for axis in (1, 2, 3):
            if before[axis] not in (1, after[axis]):
                value = _repeat(value, axis, after[axis] // before[axis], builder)
        single = [after[axis] if before[axis] == 1 else size for axis, size in enumerate(builder.shape(value))]
        return (spread(value, tuple(single), builder),)


def _repeat(value: ir.Value, axis: int, count: int, builder: Builder) -> ir.Value:
    most = int(builder.context.figure("selection", "slices"))
    if count > most:
        raise RefusedError(f"it would need {count} copies, more than {most}")
    swap = [0, 1, 2, 3]
    swap[1], swap[axis] = swap[axis], swap[1]
    moved = builder.transpose(value, swap)
    return builder.transpose(builder.op("Concat", *[moved] * count, axis=1), swap)


REWRITE = TileToConcat()
