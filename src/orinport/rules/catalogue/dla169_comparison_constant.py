"""A comparison with a constant operand that the DLA may not take.

## What it checks
At most one input is a constant (TensorRT 10.3 and later). A page that was not available is said to ask for one
FP32 value; a constant of another type or of more values is `unknown`, from 8.6 on.

## Why it matters
A threshold per channel is not known to be taken, a single one is.

## Example
Greater of (1, 8, 20, 20) and a constant of shape (1, 8, 1, 1).

## What to do
Subtract the thresholds from the tensor (as a bias) and compare with 0.

## Fix safety
The rewrite compare-to-cast is exact: it subtracts several thresholds first and compares with zero.

## Source
Rows K08, K10 and OP27: operator reference 10.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import COMPARE_TO_CAST
from orinport.rules.rule import LayerRule
from orinport.rules.support import COMPARISONS, constant_operand, takes_comparison

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ComparisonConstant(LayerRule):
    code = "DLA169"
    title = "Comparison with constants that the DLA may not take"
    rows = ("K08", "K10", "OP27")
    kinds = (LayerKind.ELEMENTWISE,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        if layer["op"] not in COMPARISONS or not takes_comparison(layer, context):
            return
        yield from constant_operand(
            self,
            layer,
            context,
            self.rows,
            many="Compare the constants beforehand.",
            advice="Subtract the thresholds from the tensor and compare with 0.",
            fix=COMPARE_TO_CAST if any(each.constant and each.volume != 1 for each in layer.inputs) else None,
        )


RULE = ComparisonConstant()
