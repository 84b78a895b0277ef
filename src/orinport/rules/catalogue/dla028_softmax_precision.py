"""A SoftMax in INT8 on Orin.

## What it checks
In TensorRT 8.5 and from 10.0 to 10.8 SoftMax is documented in FP16 only: INT8 is refused. For 8.4, 8.6 and from
10.9 on nothing is documented for INT8: `unknown`.

## Why it matters
The exponential needs the range of FP16.

## Example
The last layer of a classifier prepared in INT8.

## What to do
Set the layer to FP16, or return the logits and apply SoftMax after the network.

## Fix safety
No rewrite is applied.

## Source
Rows M01b, OP38a, OP38b and OP38c: developer guide 8.5, operator reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, holding, speaking
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class SoftmaxPrecision(LayerRule):
    code = "DLA028"
    title = "SoftMax in INT8"
    rows = ("M01b", "OP38a", "OP38b", "OP38c")
    kinds = (LayerKind.SOFTMAX,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        rows = context.rows
        row = rows.get("M01b")
        if context.precision.value == (row.values["precision"] if row is not None else Precision.FP16.value):
            return
        open_row = speaking(
            context,
            (
                "OP38a",
                "OP38b",
                "OP38c",
            ),
        )
        if row is None and open_row is None:
            return
        certain = open_row is None and row is not None
        yield finding(
            self,
            layer,
            (row,) if row is not None and open_row is None else holding(context, ("OP38a", "OP38b", "OP38c", "M01b")),
            "SoftMax is taken in FP16 only."
            if certain
            else f"No document says whether SoftMax is taken in INT8 in TensorRT {context.target.stack.tensorrt}.",
            value=context.precision.value,
            limit=row.values["precision"] if row is not None else None,
            advice="Set this layer to FP16 (trtexec --layerPrecisions), and expect conversions on both sides.",
            verdict=Verdict.GPU if certain else Verdict.UNKNOWN,
        )


RULE = SoftmaxPrecision()
