"""A unary operation that the DLA does not take.

## What it checks
Taken is ABS, from TensorRT 8.4 on. All others are refused up to 8.6. For SIN, COS, ATAN and ATANH documents
differ from 8.6.12 (DRIVE OS 6.0.9) on: headers name ABS alone, the operator table of NVIDIA's DLA software
names SIN, COS and one inverse function, in INT8 as far as is known: `unknown`. For other operations in 10.x and
11.x nothing is documented: `unknown`.

## Why it matters
Sqrt and Exp in normalisations and decoders, and Neg and Floor in index arithmetic, cut the network.

## Example
A Sqrt node for orin-agx-64gb/jp6.0. The builder says: "Unary operation: CEIL is not supported on DLA."

## What to do
Neg is a product with -1. Square roots of constants fold. Exp in a detection head can move behind the network.

## Fix safety
The rewrites div-to-mul (NEG by a product with -1) and reciprocal-to-div (RECIP, from TensorRT 10.3 on) are exact.
gelu-to-tanh (ERF) and sqrt-to-pow (SQRT, in INT8) approximate within a stated error and need consent (tolerance), and
so do log-softmax-to-softmax, mean-variance-to-div and lp-normalization-to-div, which replace the operator around it.

## Source
Rows U01a to U03, CF11, CF12, OP31 and OP32: NvInfer.h, developer guides, operator table of
NVIDIA/Deep-Learning-Accelerator-SW.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.composites import fix_of
from orinport.rules.finding import Verdict
from orinport.rules.fixes import DIV_TO_MUL, GELU_TO_TANH, RECIPROCAL_TO_DIV, SQRT_TO_POW
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, holding, is_boolean, speaking, takes_division, takes_power

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_GENERAL = "Compute it outside of the part for the DLA, or fold it if its input is constant."
_ADVICE: Mapping[str, str] = {
    "NEG": "Multiply by -1.",
    "RECIP": "Divide instead, on a target with TensorRT 10.3 or later, or fold the inverse of a constant.",
    "SQRT": "Use POW with 0.5 on a target with TensorRT 10.3 or later.",
}


class UnaryOperation(LayerRule):
    code = "DLA023"
    title = "Unary operation that the DLA does not take"
    rows = ("U01a", "U01b", "U02a", "U02b", "U03", "CF11", "CF12", "OP31", "OP32")
    kinds = (LayerKind.UNARY,)
    fix = DIV_TO_MUL

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        op, rows = layer["op"], context.rows
        limit = speaking(context, ("U01a", "U01b"))
        if (limit is not None and op in limit.values["allowed"]) or is_boolean(layer, context):
            return
        version = context.target.stack.tensorrt
        doubt = rows.get("CF11")
        if doubt is not None and op in doubt.values["unknown"]:
            exchanged = rows.get("CF12")
            text = exchanged.text if exchanged is not None and op in exchanged.values["unknown"] else doubt.text
            yield finding(
                self,
                layer,
                holding(context, ("CF11", "CF12", "U02a", "U02b", "OP31")),
                f"The unary operation {op}: {text}",
                value=op,
                limit=None,
                advice="Try it on the board in INT8, or compute it outside of the part for the DLA.",
                verdict=Verdict.UNKNOWN,
            )
            return
        open_row = rows.get("OP32")
        if limit is None or open_row is not None:
            yield finding(
                self,
                layer,
                open_row if open_row is not None else (),
                f"No document says whether the DLA takes the unary operation {op} in TensorRT {version}.",
                value=op,
                limit="ABS",
                advice=_ADVICE.get(op, _GENERAL),
                verdict=Verdict.UNKNOWN,
                fix=fix_of(layer, context, _fix(op, context)),
            )
            return
        yield finding(
            self,
            layer,
            limit,
            f"The DLA does not take the unary operation {op} in TensorRT {version}; it takes"
            f" {', '.join(limit.values['allowed'])} alone.",
            value=op,
            limit=tuple(limit.values["allowed"]),
            advice=_ADVICE.get(op, _GENERAL),
            fix=fix_of(layer, context, _fix(op, context)),
        )


def _fix(op: str, context: Context) -> tuple[str, str] | None:
    if op == "RECIP":
        return RECIPROCAL_TO_DIV if takes_division(context) else None
    if op == "SQRT":
        return SQRT_TO_POW if takes_power(context) else None
    return {"ERF": GELU_TO_TANH, "NEG": DIV_TO_MUL}.get(op)


RULE = UnaryOperation()
