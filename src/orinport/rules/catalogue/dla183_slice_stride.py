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
The rewrites slice-step-to-conv (a depthwise 1x1 convolution of that stride, with weights of 1) and merge-slices (slices
of a reversed tensor read the tensor itself) are exact.

## Source
Rows V02 and V07: NvInfer.h from 8.4.1 on, developer guide 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import MERGE_SLICES, SLICE_STEP_TO_CONV
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
            fix=_fix(layer, context),
        )


def _fix(layer: Layer, context: Context) -> tuple[str, str] | None:
    if 0 in layer["stride"]:
        return None
    name = layer.outputs[0].name
    readers = context.consumers.get(name, ())
    if readers and name not in context.outputs and all(reader.kind is LayerKind.SLICE for reader in readers):
        return MERGE_SLICES
    return SLICE_STEP_TO_CONV if layer.inputs[0].rank == 4 else None


RULE = SliceStride()
