"""A DIV whose constant operand the DLA may not take.

## What it checks
At most one input of DIV is a constant. A page that was not available is said to ask for an FP32 constant; a
constant of another type or of more than one value is `unknown`.

## Why it matters
DIV is documented from TensorRT 10.3 on (8.6.12 on DRIVE).

## Example
Div of a tensor by a constant of shape (1, 64, 1, 1).

## What to do
Multiply by the inverse of the constant.

## Fix safety
The rewrite fuse-scale-into-conv is exact up to rounding: the constant goes into the weights of the convolution before.

## Source
Rows E05, E10 and OP22: operator reference 10.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import FUSE_SCALE_INTO_CONV
from orinport.rules.rule import LayerRule
from orinport.rules.support import constant_operand, fuses_into_convolution, speaking

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class DivisionConstant(LayerRule):
    code = "DLA163"
    title = "DIV with more than one constant, or with a constant of many values"
    rows = ("E05", "E10", "OP22")
    kinds = (LayerKind.ELEMENTWISE,)
    fix = FUSE_SCALE_INTO_CONV

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        if layer["op"] != "DIV" or speaking(context, ("E03b", "E03c")) is None:
            return
        yield from constant_operand(
            self,
            layer,
            context,
            self.rows,
            many="Compute the quotient of the constants beforehand.",
            advice="Multiply by the inverse of the constant.",
            fix=FUSE_SCALE_INTO_CONV if fuses_into_convolution(layer, context) else None,
        )


RULE = DivisionConstant()
