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
from orinport.rules.finding import Verdict
from orinport.rules.fixes import FUSE_SCALE_INTO_CONV
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, fuses_into_convolution, holding, speaking

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
        constants = [tensor for tensor in layer.inputs if tensor.constant]
        if not constants:
            return
        row = context.rows.get("E05")
        if row is not None and len(constants) > row.values["max_constants"]:
            yield finding(
                self,
                layer,
                row,
                f"{len(constants)} inputs of DIV are constant; the DLA takes at most {row.values['max_constants']}.",
                value=len(constants),
                limit=row.values["max_constants"],
                advice="Compute the quotient of the constants beforehand.",
            )
            return
        page = context.rows.get("E10")
        if page is None:
            return
        constant = constants[0]
        if constant.shape is None:  # DLA103 speaks
            return
        if constant.volume == page.values["constant_values"] and constant.dtype.value == page.values["constant_type"]:
            return
        yield finding(
            self,
            layer,
            holding(context, ("E10", "OP22")),
            f"DIV with a constant of {constant.volume} values in {constant.dtype.value}: which constants it takes is"
            " not documented.",
            value=(constant.volume, constant.dtype.value),
            limit=(page.values["constant_values"], page.values["constant_type"]),
            advice="Multiply by the inverse of the constant.",
            verdict=Verdict.UNKNOWN,
            fix=FUSE_SCALE_INTO_CONV if fuses_into_convolution(layer, context) else None,
        )


RULE = DivisionConstant()
