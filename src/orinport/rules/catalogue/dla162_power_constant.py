"""A POW whose operands are not one tensor and one constant.

## What it checks
Exactly one input of POW is a constant. A page that was not available is said to ask for one FP32 value as
constant and an INT8 tensor as the other input; what does not keep that is `unknown`.

## Why it matters
POW is documented from TensorRT 10.3 on, and with a constant exponent only.

## Example
Pow of two tensors that are computed at run time; Pow with exponent 2 in FP16.

## What to do
Write a square as a product of the tensor with itself.

## Fix safety
No rewrite is applied.

## Source
Rows E04, E10 and OP22: operator reference 10.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, holding
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_ADVICE = "Write a square as a product of the tensor with itself, or prepare the network in INT8."


class PowerConstant(LayerRule):
    code = "DLA162"
    title = "POW without one constant operand"
    rows = ("E04", "E10", "OP22")
    kinds = (LayerKind.ELEMENTWISE,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("E04")
        if row is None or layer["op"] != "POW":
            return
        constants = [tensor for tensor in layer.inputs if tensor.constant]
        if len(constants) != row.values["constants"]:
            yield finding(
                self,
                layer,
                row,
                f"{len(constants)} inputs of POW are constant; the DLA asks for exactly {row.values['constants']}.",
                value=len(constants),
                limit=row.values["constants"],
                advice=_ADVICE,
            )
            return
        page = context.rows.get("E10")
        if page is None:
            return
        constant = constants[0]
        if constant.shape is None:  # DLA103 speaks
            return
        wanted = page.values["constant_values"]
        if (
            constant.volume == wanted
            and constant.dtype.value == page.values["constant_type"]
            and context.precision is Precision.INT8
        ):
            return
        yield finding(
            self,
            layer,
            holding(context, ("E10", "OP22")),
            f"POW in {context.precision.value.upper()} with a constant of {constant.volume} values in"
            f" {constant.dtype.value}: only {wanted} value in {page.values['constant_type']} with an INT8 tensor is"
            " known of.",
            value=(context.precision.value, constant.volume, constant.dtype.value),
            limit=(Precision.INT8.value, wanted, page.values["constant_type"]),
            advice=_ADVICE,
            verdict=Verdict.UNKNOWN,
        )


RULE = PowerConstant()
