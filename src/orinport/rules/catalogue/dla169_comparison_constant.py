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
No rewrite is applied.

## Source
Rows K08, K10 and OP27: operator reference 10.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule
from orinport.rules.support import COMPARISONS, finding, holding, takes_comparison

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
        constants = [tensor for tensor in layer.inputs if tensor.constant]
        if not constants:
            return
        row = context.rows.get("K08")
        if row is not None and len(constants) > row.values["max_constants"]:
            yield finding(
                self,
                layer,
                row,
                f"{len(constants)} inputs of {layer['op']} are constant; the DLA takes at most"
                f" {row.values['max_constants']}.",
                value=len(constants),
                limit=row.values["max_constants"],
                advice="Compare the constants beforehand.",
            )
            return
        page = context.rows.get("K10")
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
            holding(context, ("K10", "OP27")),
            f"{layer['op']} with a constant of {constant.volume} values in {constant.dtype.value}: which constants it"
            " takes is not documented.",
            value=(constant.volume, constant.dtype.value),
            limit=(page.values["constant_values"], page.values["constant_type"]),
            advice="Subtract the thresholds from the tensor and compare with 0.",
            verdict=Verdict.UNKNOWN,
        )


RULE = ComparisonConstant()
