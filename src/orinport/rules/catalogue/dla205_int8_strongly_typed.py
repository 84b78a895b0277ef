"""INT8 in a strongly typed network.

## What it checks
Whether INT8 is asked for on TensorRT 11. There is no calibration cache any more: types and Q/DQ say what is INT8.
How ranges that have to be equal are expressed, and which Q/DQ patterns the DLA takes, is not documented.

## Why it matters
No verdict on an INT8 layer is certain on such a target.

## Example
--precision int8 on jp7.2.2.

## What to do
Use FP16 there, or ask the board.

## Fix safety
No rewrite is applied.

## Source
Rows I10 and I13 (TensorRT documentation 11.4.1); no document says more (OP03).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rules.finding import Verdict
from orinport.rules.regions import network_finding, on_dla
from orinport.rules.rule import NetworkRule
from orinport.rules.support import holding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class Int8StronglyTyped(NetworkRule):
    code = "DLA205"
    title = "INT8 in a strongly typed network is not documented"
    rows = ("I10", "I13", "OP03")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        if "OP03" not in context.rows or not any(on_dla(layer, context) for layer in layers):
            return
        yield network_finding(
            self,
            holding(context, ("I13", "OP03")),
            f"How INT8 ranges and Q/DQ have to be written for the DLA with TensorRT {context.target.stack.tensorrt} is"
            " not documented.",
            value="int8",
            limit=None,
            advice="Use FP16 on this target, or ask the board.",
            verdict=Verdict.UNKNOWN,
        )


RULE = Int8StronglyTyped()
