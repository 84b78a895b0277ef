"""A Slice that takes every second, third, ... element.

## What it checks
The stride is 1 in every dimension.

## Why it matters
The Focus layer of early YOLOv5 takes every second pixel in four slices.

## Example
x[..., ::2, ::2] in PyTorch.

## What to do
Write the slices as one convolution of stride 2 with one-hot weights; it can be merged into the convolution
behind.

## Fix safety
The rewrite slice-step-to-conv is exact: a depthwise 1x1 convolution of that stride, with weights of 1.

## Source
Rows V02 and V07: NvInfer.h from 8.4.1 on, developer guide 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import SLICE_STEP_TO_CONV
from orinport.rules.rule import LayerRule
from orinport.rules.support import by, finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class SliceStride(LayerRule):
    code = "DLA183"
    title = "Slice with a step"
    rows = ("V02", "V07")
    kinds = (LayerKind.SLICE,)
    fix = SLICE_STEP_TO_CONV

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("V02")
        stride = layer["stride"]
        if row is None or stride is None or set(stride) <= {row.values["stride"]}:
            return
        yield finding(
            self,
            layer,
            row,
            f"The steps are {by(stride)}; the DLA takes steps of {row.values['stride']}.",
            value=stride,
            limit=row.values["stride"],
            advice="Write it as a convolution of that stride with one-hot weights.",
            fix=SLICE_STEP_TO_CONV if layer.inputs[0].rank == 4 and 0 not in stride else None,
        )


RULE = SliceStride()
