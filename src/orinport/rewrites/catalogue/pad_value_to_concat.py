"""`Pad(x, value) -> Concat(value, x, value)`: padding with a number by constant rows beside the tensor.

## What it does
Pad in constant mode with any value, of channels, height or width, becomes a Concat of the tensor with constants along
the channels; height and width change places with the channels before and after.

## Why
The parser makes a Slice of it that reads out of bounds. The DLA takes that with zeros only, from TensorRT 10.4 on, and
pads convolutions and pools with zeros. A constant beside a tensor it reads in a Concat.

## Example
`Pad(x, 1.0)` by one row and one column: two Concat between three transposes. Four channels of zeros behind eight: one
Concat.

## Refused
Values and padding known at run time only; padding of the batch, or that takes away; other ranks than 4; integers.
Zeros that the convolutions and pools behind can put there themselves are left to `fuse-pad`.

## Safety
exact: bit-equal. In INT8 the value has to lie in the range of the tensor, which calibration makes so.

## Source
Rows N01, V03a, V03b, V03c and X03 of the acceptance catalogue; ONNX operator specification, Pad.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue.fuse_pad import all_padding_of, moves_into_readers, pad_value, shape_to_pad
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "PadValueToConcat"]

_MODES = ("constant",)


class PadValueToConcat(Rewrite):
    """Padding with a number becomes a concatenation."""

    name = "pad-value-to-concat"
    safety = Safety.EXACT
    op_types = ("Pad",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        shape = shape_to_pad(node, context, _MODES)
        if shape is None or isinstance(shape, Refusal):
            return shape
        added = all_padding_of(node, 4, context, _MODES)
        if isinstance(added, Refusal):
            return added
        if added[0] or added[4]:
            return Refusal("it pads the batch, and the DLA concatenates along the channels only")
        if not any(added) or moves_into_readers(node, context):
            return None
        number = pad_value(node, context)
        if number is None:
            return Refusal("what it pads with is known at run time only")
        return Match((node,), (node.outputs[0],), (added, number))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        added, number = match.data
        value = match.nodes[0].inputs[0]
        assert value is not None
        for axis in (1, 2, 3):
            value = _surround(builder, value, axis, (added[axis], added[4 + axis]), number)
        return (value,)


def _surround(builder: Builder, value: ir.Value, axis: int, counts: tuple[int, int], number: float) -> ir.Value:
    """`value` with that many rows of `number` in front of it and behind it."""
    if not any(counts):
        return value
    swap = [0, 1, 2, 3]
    swap[1], swap[axis] = swap[axis], swap[1]
    moved = builder.transpose(value, swap)
    batch, _, height, width = builder.shape(moved)
    sides = [builder.like(moved, number, (batch, count, height, width)) if count else None for count in counts]
    parts = [part for part in (sides[0], moved, sides[1]) if part is not None]
    return builder.transpose(builder.op("Concat", *parts, axis=1), swap)


REWRITE = PadValueToConcat()
