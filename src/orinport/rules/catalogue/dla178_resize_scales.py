"""A Resize by scales that the DLA does not take.

## What it checks
There are four scales, those of batch and channel are 1, those of height and width are whole numbers: 1 to 32
for NEAREST, 1 to 4 for LINEAR. Scales that follow from sizes are checked alike.

## Why it matters
Shrinking and fractional factors are refused.

## Example
Resize with scales [1, 1, 0.5, 0.5]; a bilinear Resize by 8.

## What to do
Shrink with a strided convolution or an average pool. Split a large bilinear factor into two, which changes the
result slightly, or use a deconvolution with bilinear weights.

## Fix safety
No rewrite is applied.

## Source
Rows Z01, Z02a, Z02b and Z06a: NvInfer.h from 8.2.1 on, developer guides 8.4 and 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import between, bounds, finding, resize_scales, within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ResizeScales(LayerRule):
    code = "DLA178"
    title = "Resize scales are out of range"
    rows = ("Z01", "Z02a", "Z02b", "Z06a")
    kinds = (LayerKind.RESIZE,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        form = context.rows.get("Z01")
        if form is None:
            return
        scales = layer["scales"] or resize_scales(layer)
        if scales is None:  # DLA103 or DLA177 speaks
            return
        leading = tuple(form.values["leading"])
        shown = ", ".join(f"{scale:g}" for scale in scales)
        if len(scales) != form.values["count"] or tuple(scales[: len(leading)]) != leading:
            yield finding(
                self,
                layer,
                form,
                f"The scales are {shown}; the DLA asks for {form.values['count']}, those of batch and channel 1.",
                value=tuple(scales),
                limit=leading,
                advice="Resize height and width of a 4-D tensor only.",
            )
            return
        row = context.rows.get("Z02b" if layer["mode"] == "LINEAR" else "Z02a")
        spatial = scales[len(leading) :]
        if row is None or layer["mode"] == "CUBIC":
            return
        if within(spatial, row) and all(float(scale).is_integer() for scale in spatial):
            return
        shrinks = any(scale < 1 for scale in spatial)
        yield finding(
            self,
            layer,
            row,
            f"The scales are {shown}; in mode {layer['mode']} the DLA takes whole numbers of {between(row)} for height"
            " and width.",
            value=tuple(spatial),
            limit=bounds(row),
            advice="Shrink with a strided convolution or an average pool."
            if shrinks
            else "Use whole factors within the limit, if need be two Resize layers one after the other.",
        )


RULE = ResizeScales()
