"""A comparison that the DLA does not take, or not in this precision.

## What it checks
EQUAL is documented from TensorRT 8.5 on, GREATER and LESS from 10.3 on (and in DRIVE OS 6.0.9, 8.6.12), all in
INT8 only. EQUAL on Xavier, and GREATER and LESS between 8.6.12 and 10.3, are `unknown`. Greater-or-equal and
less-or-equal arrive as a comparison, an EQUAL of the same two inputs and an OR of both; that is taken from 10.3
on.

## Why it matters
In FP16 every comparison is refused. The result is BOOL, which the DLA cannot hand out: see DLA166 for what has
to follow.

## Example
A Greater with a threshold in a network prepared for FP16.

## What to do
Compare after the network, or use arithmetic: Clip(x * large, 0, 1) is a step function for whole numbers.

## Fix safety
compare-to-clip, which takes the difference, amplifies and clips it, is the same for numbers that are not within 2^-30
of each other and needs consent (tolerance).

## Source
Rows K01a to K02, K09, OP24, OP25 and OP26: developer guide 8.5, operator reference, current
documentation, operator table of NVIDIA/Deep-Learning-Accelerator-SW.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import DType, LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.fixes import COMPARE_TO_CLIP
from orinport.rules.rule import LayerRule
from orinport.rules.support import COMPARISONS, finding, holding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class Comparison(LayerRule):
    code = "DLA022"
    title = "Comparison that the DLA does not take"
    rows = ("K01a", "K01b", "K01c", "K01d", "K02", "K09", "OP24", "OP25", "OP26")
    kinds = (LayerKind.ELEMENTWISE,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        op = layer["op"]
        if op not in COMPARISONS:
            return
        rows = context.rows
        integer = rows.get("K02")
        if integer is not None and context.precision.value != integer.values["precision"]:
            yield finding(
                self,
                layer,
                integer,
                f"The comparison {op} is taken in {integer.values['precision'].upper()} only, and the network is"
                f" prepared in {context.precision.value.upper()}.",
                value=context.precision.value,
                limit=integer.values["precision"],
                advice="Prepare the network in INT8, or compare after the network.",
                fix=_fix(layer, context),
            )
            return
        accept = next((row for row in holding(context, ("K01a", "K01b", "K01c")) if op in row.values["allowed"]), None)
        if accept is not None:
            doubt = rows.get("OP24") if op == "EQUAL" else None
            if doubt is not None:
                yield finding(
                    self,
                    layer,
                    (doubt, accept),
                    f"The guide takes {op} without naming Xavier, so it is not documented for this platform.",
                    value=op,
                    limit=None,
                    advice="Try it on the board, or compare after the network.",
                    verdict=Verdict.UNKNOWN,
                )
            return
        refused = rows.get("K01d")
        certain = refused is not None and op in refused.values["refused"]
        version = context.target.stack.tensorrt
        yield finding(
            self,
            layer,
            refused if refused is not None and certain else holding(context, () if op == "EQUAL" else ("OP26",)),
            f"The DLA does not take the comparison {op} in TensorRT {version}."
            if certain
            else f"No document says whether the DLA takes the comparison {op} in TensorRT {version}.",
            value=op,
            limit=None,
            advice="Compare after the network, or use a target with TensorRT 10.3 or later in INT8.",
            verdict=Verdict.GPU if certain else Verdict.UNKNOWN,
            fix=_fix(layer, context),
        )


def _fix(layer: Layer, context: Context) -> tuple[str, str] | None:
    """The rewrite of comparisons of numbers whose truth values stay inside the network."""
    numbers = all(tensor.dtype in (DType.FP16, DType.FP32) for tensor in layer.inputs)
    return COMPARE_TO_CLIP if numbers and layer.outputs[0].name not in context.outputs else None


RULE = Comparison()
