"""An element-wise operation that the DLA does not take.

## What it checks
Taken are SUM, PROD, MAX and MIN; SUB from TensorRT 8.2 on; DIV and POW from 10.3 on (DIV also in DRIVE OS
6.0.9, that is 8.6.12). DIV and POW are refused up to 8.5, DIV up to 8.6.11 and POW in all of 8.6; between 8.6
and 10.3 nothing is documented. FLOOR_DIV, AND, OR, XOR and MOD stand in no list: `unknown`.

## Why it matters
Decoders of detection networks divide and square, and so do normalisations.

## Example
A Div by a constant for orin-agx-64gb/jp6.0. The builder says: "DLA cores do not support DIV ElementWise
operation."

## What to do
Division by a constant: multiply by its inverse. Square: multiply the tensor with itself. Otherwise use a target
with TensorRT 10.3 or later.

## Fix safety
The rewrite fuse-scale-into-conv is exact up to rounding: a division by a constant per channel behind a convolution
goes into its weights. div-to-mul multiplies by the reciprocals of any constant, and pow-to-mul writes the powers 2, 3
and 4 as products; both are exact up to rounding.

## Source
Rows E01 to E03e, E06, OP20, OP21 and OP23: NvInfer.h, developer guides, operator reference, current
documentation, operator table of NVIDIA/Deep-Learning-Accelerator-SW.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.fixes import DIV_TO_MUL, FUSE_SCALE_INTO_CONV, POW_TO_MUL
from orinport.rules.rule import LayerRule
from orinport.rules.support import COMPARISONS, finding, fuses_into_convolution, holding, is_boolean, is_or_equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_OPEN: Mapping[str, tuple[str, ...]] = {"DIV": ("OP20",), "POW": ("OP21",), "SUB": ()}
_ADVICE: Mapping[str, str] = {
    "DIV": "With a constant divisor multiply by its inverse; otherwise use a target with TensorRT 10.3 or later.",
    "POW": "Write a square as a product of the tensor with itself; otherwise use a target with TensorRT 10.3 or later.",
    "SUB": "Multiply by -1 and add.",
    "AND": "On masks of 0 and 1: multiply.",
    "OR": "On masks of 0 and 1: add and Clip to 1.",
    "XOR": "On masks of 0 and 1: subtract and take the absolute value.",
}


class ElementwiseOperation(LayerRule):
    code = "DLA021"
    title = "Element-wise operation that the DLA does not take"
    rows = ("E01", "E02", "E03a", "E03b", "E03c", "E03d", "E03e", "E06", "OP20", "OP21", "OP23")
    kinds = (LayerKind.ELEMENTWISE,)
    fix = FUSE_SCALE_INTO_CONV

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        op, rows = layer["op"], context.rows
        for name in ("E01", "E02", "E03b", "E03c"):
            row = rows.get(name)
            if row is not None and op in row.values["allowed"]:
                return
        if op in COMPARISONS or is_or_equal(layer, context) or is_boolean(layer, context):  # DLA022, DLA035
            return
        version = context.target.stack.tensorrt
        for name in ("E03a", "E03d", "E03e"):
            row = rows.get(name)
            if row is not None and op in row.values["refused"]:
                yield finding(
                    self,
                    layer,
                    row,
                    f"The DLA does not take the element-wise operation {op} in TensorRT {version}.",
                    value=op,
                    limit=_taken(context),
                    advice=_ADVICE.get(op, "Use operations that the DLA takes."),
                    fix=_fix(layer, context),
                )
                return
        yield finding(
            self,
            layer,
            holding(context, _OPEN.get(op, ("E06",))),
            f"No document says whether the DLA takes the element-wise operation {op} in TensorRT {version}.",
            value=op,
            limit=_taken(context),
            advice=_ADVICE.get(op, "Use operations that the DLA takes."),
            verdict=Verdict.UNKNOWN,
            fix=_fix(layer, context),
        )


def _fix(layer: Layer, context: Context) -> tuple[str, str] | None:
    if fuses_into_convolution(layer, context):
        return FUSE_SCALE_INTO_CONV
    if not layer.inputs[1].constant:
        return None
    if layer["op"] == "DIV":
        return DIV_TO_MUL
    return POW_TO_MUL if layer["op"] == "POW" and layer.inputs[1].volume == 1 else None


def _taken(context: Context) -> tuple[str, ...]:
    rows = holding(context, ("E01", "E02", "E03b", "E03c"))
    return tuple(op for row in rows for op in row.values["allowed"])


RULE = ElementwiseOperation()
