"""A Slice, or one output of a Split, in INT8.

## What it checks
From TensorRT 8.5 to 10.8 Slice is documented in FP16 only: INT8 is refused. For 8.4, 8.6 and from 10.9 on
nothing is documented for INT8: `unknown`. Slice on Xavier in 8.4 stands in the header but not in the guide:
`unknown`.

## Why it matters
Channel splits stand in every C2f and ELAN block of the YOLO family. In an INT8 network each goes to the GPU, or
runs in FP16 with conversions around it.

## Example
A Split along the channels in YOLOv8, prepared in INT8.

## What to do
Set the layer to FP16, or replace the split by convolutions: the layer before it makes its parts separately.

## Fix safety
No rewrite is applied.

## Source
Rows V01b, V08a, V08b, OP33, OP34a, OP34b and OP35: developer guide 8.5, operator reference.
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


class SlicePrecision(LayerRule):
    code = "DLA027"
    title = "Slice in INT8"
    rows = ("V01b", "V08a", "V08b", "OP33", "OP34a", "OP34b", "OP35")
    kinds = (LayerKind.SLICE,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        rows = context.rows
        row = rows.get("V01b")
        if context.precision.value == (row.values["precision"] if row is not None else Precision.FP16.value):
            doubt = rows.get("OP35")
            if doubt is not None:
                yield finding(
                    self,
                    layer,
                    doubt,
                    "Slice on Xavier stands in the header of TensorRT 8.4 but not in its guide.",
                    value=context.precision.value,
                    limit=None,
                    advice="Try it on the board, or use a later release.",
                    verdict=Verdict.UNKNOWN,
                )
            return
        open_row = speaking(
            context,
            (
                "OP33",
                "OP34a",
                "OP34b",
            ),
        )
        if row is None and open_row is None:
            return
        certain = open_row is None and row is not None
        yield finding(
            self,
            layer,
            (row,) if row is not None and open_row is None else holding(context, ("OP33", "OP34a", "OP34b", "V01b")),
            "Slice is taken in FP16 only."
            if certain
            else f"No document says whether Slice is taken in INT8 in TensorRT {context.target.stack.tensorrt}.",
            value=context.precision.value,
            limit=row.values["precision"] if row is not None else None,
            advice="Set this layer to FP16 (trtexec --layerPrecisions), and expect conversions on both sides.",
            verdict=Verdict.GPU if certain else Verdict.UNKNOWN,
        )


RULE = SlicePrecision()
