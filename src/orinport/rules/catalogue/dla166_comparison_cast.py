"""A comparison whose result does not go straight into a Cast.

## What it checks
The result goes into exactly one Cast to FP16 or INT8, has no other reader and is no output of the network. For
greater-or-equal this holds for the OR of both comparisons. That it is no output is documented for TensorRT 8.5
only; whether later versions keep it is `unknown`, but the rule of the single Cast is.

## Why it matters
The result is BOOL, and no BOOL tensor enters or leaves the DLA.

## Example
Greater, then Where.

## What to do
Put a Cast to FLOAT16 behind the comparison and work on the mask of 0 and 1.

## Fix safety
The rewrite compare-to-cast is exact: one Cast to FP16 behind the comparison, and what else reads it behind that.

## Source
Rows K03, K05, K09 and OP25: developer guide 8.5, current documentation, operator reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import COMPARE_TO_CAST
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, is_cast_on_dla, is_or_equal, is_truth, takes_comparison

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ComparisonCast(LayerRule):
    code = "DLA166"
    title = "Comparison does not go straight into a Cast"
    rows = ("K03", "K05", "K09", "OP25")
    kinds = (LayerKind.ELEMENTWISE,)
    fix = COMPARE_TO_CAST

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("K03")
        if row is None or not is_truth(layer, context) or not takes_comparison(layer, context):
            return
        name = layer.outputs[0].name
        readers = context.consumers.get(name, ())
        if name in context.outputs:
            inside = context.rows.get("K05")
            yield finding(
                self,
                layer,
                (row,) if inside is None else (row, inside),
                f"The truth values {name!r} are an output of the network; the DLA takes a comparison only if its"
                " result goes straight into a Cast and nowhere else.",
                value="network output",
                limit="one Cast",
                advice="Cast to FLOAT16 inside, return that, and cast to BOOL outside.",
                fix=COMPARE_TO_CAST,
            )
            return
        if len(readers) == 1 and is_or_equal(readers[0], context):
            return
        if is_cast_on_dla(layer, context):
            return
        targets = row.values["to"]
        seen = ", ".join(
            f"{reader.kind.value} to {reader.outputs[0].dtype.value}" if reader.outputs else reader.kind.value
            for reader in readers
        )
        yield finding(
            self,
            layer,
            row,
            f"The comparison is read by {seen or 'nothing'}; the DLA asks for exactly one Cast to"
            f" {' or '.join(targets)}.",
            value=seen,
            limit=f"one Cast to {' or '.join(targets)}",
            advice="Put one Cast to FLOAT16 behind the comparison and work on the mask of 0 and 1.",
            fix=COMPARE_TO_CAST,
        )


RULE = ComparisonCast()
