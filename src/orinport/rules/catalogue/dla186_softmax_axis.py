"""A SoftMax over another axis than channel, height or width.

## What it checks
The axis is one of the last three dimensions.

## Why it matters
A SoftMax over a leading dimension is refused.

## Example
SoftMax over axis 1 of a tensor of rank 5.

## What to do
Transpose so that the axis becomes the channel.

## Fix safety
No rewrite is applied.

## Source
Row M02: NvInfer.h from 8.4.1 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class SoftmaxAxis(LayerRule):
    code = "DLA186"
    title = "SoftMax over the batch"
    rows = ("M02",)
    kinds = (LayerKind.SOFTMAX,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("M02")
        if row is None:
            return
        data = layer.inputs[0]
        if data.shape is None:  # DLA103 speaks
            return
        place = len(data.shape) - layer["axis"]
        if place in row.values["axes_from_end"]:
            return
        yield finding(
            self,
            layer,
            row,
            f"The axis is {layer['axis']} of {list(data.shape)}; the DLA takes the channel or a spatial dimension.",
            value=layer["axis"],
            limit=tuple(len(data.shape) - place for place in row.values["axes_from_end"]),
            advice="Transpose so that the axis becomes the channel.",
        )


RULE = SoftmaxAxis()
