"""A Slice whose start, size, stride or axes are computed at run time.

## What it checks
Start, size and stride are build-time constants; so are the axes, where they are given (TensorRT 10.3 and
later).

## Why it matters
A slice that follows from the shape of another tensor stays dynamic if the shapes are not given.

## Example
Slice up to Shape(x)[2] // 2, exported with dynamic axes.

## What to do
Export with fixed shapes, or give --shapes, so that the bounds fold.

## Fix safety
No rewrite is applied.

## Source
Rows V02 and V04: NvInfer.h from 8.4.1 and 10.3 on, developer guide 8.5.
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

_AXES_INPUT = 5
"""Position of the axes among the inputs of ISliceLayer."""


class SliceConstant(LayerRule):
    code = "DLA182"
    title = "Slice with bounds that are computed at run time"
    rows = ("V02", "V04")
    kinds = (LayerKind.SLICE,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("V02")
        if row is None:
            return
        runtime = [name for name in ("start", "size", "stride") if layer[name] is None]
        if runtime:
            yield finding(
                self,
                layer,
                row,
                f"{', '.join(runtime).capitalize()} of the slice is computed at run time; the DLA takes build-time"
                " constants only.",
                value="run time",
                limit="build-time constant",
                advice="Export with fixed shapes, or give --shapes, so that the bounds become constants.",
            )
        axes = context.rows.get("V04")
        if axes is None or len(layer.inputs) <= _AXES_INPUT or layer.inputs[_AXES_INPUT].constant:
            return
        yield finding(
            self,
            layer,
            axes,
            "The axes of the slice are computed at run time; the DLA takes a build-time constant only.",
            value="run time",
            limit="build-time constant",
            advice="Make the axes an initializer.",
        )


RULE = SliceConstant()
