"""Where, Not, And or Or on BOOL tensors.

## What it checks
Select layers (Where), and NOT, AND and OR on BOOL tensors. The OR that joins GREATER or LESS with EQUAL of the
same two inputs (greater-or-equal) is taken from TensorRT 10.3 on.

## Why it matters
Masks in attention and in decoders are built of these, and the DLA has no BOOL tensors to work on.

## Example
Where(mask, scores, -inf) in an attention layer.

## What to do
Work on masks of 0 and 1: Where(c, x, 0) is x * c, Not(x) is 1 - x, And is a product, Or is Clip(a + b, 0, 1).

## Fix safety
logic-to-arithmetic (NOT, AND, OR) and where-to-slices (constant conditions) are exact; where-to-arithmetic, and
compare-to-clip for greater-or-equal, need consent (tolerance).

## Source
Rows K11, K09 and CF14: NVIDIA/Model-Optimizer issue 1415; operator table of NVIDIA/Deep-Learning-Accelerator-SW;
operator reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import COMPARE_TO_CLIP, LOGIC_TO_ARITHMETIC, WHERE_TO_ARITHMETIC, WHERE_TO_SLICES
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, holding, is_boolean, is_or_equal, joins_comparisons

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_ADVICE: Mapping[str, str] = {
    "WHERE": "With a mask of 0 and 1 and a branch of zeros: multiply. Two branches: x * c + y * (1 - c).",
    "NOT": "With a mask of 0 and 1: subtract it from 1.",
    "AND": "With masks of 0 and 1: multiply.",
    "OR": "With masks of 0 and 1: add and Clip to 1.",
}


class BooleanLogic(LayerRule):
    code = "DLA035"
    title = "Where, Not, And or Or on truth values"
    rows = ("K11", "K09", "CF14")
    kinds = (LayerKind.SELECT, LayerKind.UNARY, LayerKind.ELEMENTWISE)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        if layer.kind is not LayerKind.SELECT and not is_boolean(layer, context):
            return
        if is_or_equal(layer, context):
            return
        op = layer.attributes.get("op", "WHERE")
        conflict = context.rows.get("CF14") if joins_comparisons(layer, context) else None
        yield finding(
            self,
            layer,
            holding(context, ("K11", "CF14")) if conflict is not None else context.rows["K11"],
            f"The DLA does not take {op} on truth values."
            if conflict is None
            else f"The DLA does not take greater-or-equal in TensorRT {context.target.stack.tensorrt}. {conflict.text}",
            value=op,
            limit=None,
            advice=_ADVICE[op],
            fix=_fix(layer, context),
        )


def _fix(layer: Layer, context: Context) -> tuple[str, str] | None:
    """The rewrite of logic, or of a Where: by slices for a constant condition along one axis, else by arithmetic."""
    if layer.kind is not LayerKind.SELECT:
        return COMPARE_TO_CLIP if joins_comparisons(layer, context) else LOGIC_TO_ARITHMETIC
    condition, *branches = layer.inputs
    result = layer.outputs[0]
    if not condition.constant or condition.shape is None or result.rank != 4:
        return WHERE_TO_ARITHMETIC
    wide = [axis for axis, size in enumerate(condition.shape) if size > 1]
    whole = all(not each.constant and each.shape == result.shape for each in branches)
    return WHERE_TO_SLICES if whole and len(wide) == 1 and wide != [0] else WHERE_TO_ARITHMETIC


RULE = BooleanLogic()
