"""A comparison of operands that differ in shape.

## What it checks
Shapes are equal, or one operand is (N, C, 1, 1) or (N, 1, 1, 1): documented from TensorRT 10.3 on. Before that
no broadcast is documented: `unknown`.

## Why it matters
Thresholds are usually scalars and pass as (1, 1, 1, 1); a map per pixel, (1, 1, H, W), does not.

## Example
Greater of (1, 8, 20, 20) and (1, 1, 20, 20).

## What to do
Make the shapes equal.

## Fix safety
The rewrite compare-to-cast is exact: it copies 4-D operands to one shape by Resize and a convolution of ones.

## Source
Rows K07 and OP28: operator reference 10.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.fixes import COMPARE_TO_CAST
from orinport.rules.rule import LayerRule
from orinport.rules.support import COMPARISONS, by, finding, holding, takes_comparison, unshaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer, Tensor
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context
    from orinport.targets.target import RuleRow


class ComparisonBroadcast(LayerRule):
    code = "DLA168"
    title = "Comparison with a broadcast that the DLA does not take"
    rows = ("K07", "OP28")
    kinds = (LayerKind.ELEMENTWISE,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        if layer["op"] not in COMPARISONS or not takes_comparison(layer, context):
            return
        first, second = layer.inputs
        if first.shape is not None and first.shape == second.shape:
            return
        row = context.rows.get("K07")
        if unshaped(layer.inputs):  # DLA103 speaks
            return
        if row is not None and (_narrow(first, second, row) or _narrow(second, first, row)):
            return
        yield finding(
            self,
            layer,
            row if row is not None else holding(context, ("OP28",)),
            f"{layer['op']} of {by(first.shape or ())} and {by(second.shape or ())}: "
            + (
                f"the DLA takes equal shapes, {' and '.join(row.values['broadcast'])}."
                if row is not None
                else "no document of this TensorRT version says that the DLA takes a broadcast here."
            ),
            value=(first.shape, second.shape),
            limit="equal shapes" if row is None else ("equal shapes", *row.values["broadcast"]),
            advice="Make the shapes equal.",
            fix=COMPARE_TO_CAST if all(tensor.rank == 4 and not tensor.constant for tensor in layer.inputs) else None,
            verdict=Verdict.UNKNOWN if row is None else Verdict.GPU,
        )


def _narrow(part: Tensor, other: Tensor, row: RuleRow) -> bool:
    """True if `part` has one of the row's forms (`NC11`, `N111`) against `other`; a constant may leave N as 1."""
    if part.shape is None or other.shape is None or len(part.shape) != len(other.shape):
        return False
    for form in row.values["broadcast"]:
        wanted = tuple(1 if letter == "1" else size for letter, size in zip(form, other.shape, strict=False))
        if part.shape == wanted or (part.constant and part.shape == (1, *wanted[1:])):
            return True
    return False


RULE = ComparisonBroadcast()
