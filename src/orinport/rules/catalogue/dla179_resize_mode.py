"""A Resize in a mode, or with a mapping of coordinates, that the DLA does not take.

## What it checks
NEAREST: asymmetric coordinates with floor, or half-pixel coordinates with either rounding of halves. LINEAR:
half-pixel coordinates. On Xavier with TensorRT 8.2 only NEAREST, asymmetric, floor. Cubic and aligned corners
are refused.

## Why it matters
Frameworks differ in the default: align_corners = True in PyTorch, asymmetric LINEAR from Upsample (opset 9) and
from TensorFlow 1.

## Example
Resize with mode linear and coordinate_transformation_mode asymmetric.

## What to do
Export with align_corners = False and opset 11 or later.

## Fix safety
No rewrite is applied.

## Source
Rows Z04, Z05, Z06a and Z06b: NvInfer.h from 8.2.1 on; builder log: "For bilinear resize, DLA only supports
kHALF_PIXEL coordinate transformation ...".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, speaking

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ResizeMode(LayerRule):
    code = "DLA179"
    title = "Resize mode that the DLA does not take"
    rows = ("Z04", "Z05", "Z06a", "Z06b")
    kinds = (LayerKind.RESIZE,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        mode = layer["mode"]
        refused = context.rows.get("Z06a")
        if refused is not None and mode in refused.values["refused"]:
            yield finding(
                self,
                layer,
                refused,
                f"The mode is {mode}; the DLA takes NEAREST and LINEAR.",
                value=mode,
                limit=("NEAREST", "LINEAR"),
                advice="Use bilinear interpolation with half-pixel coordinates.",
            )
            return
        row = speaking(context, ("Z05", "Z04"))
        if row is None:
            return
        allowed = row.values[mode.lower()]
        found = [layer["coordinate_transformation"], layer["selector"]]
        if mode == "NEAREST":
            found.append(layer["rounding"])
        if found in allowed:
            return
        extra = context.rows.get("Z06b")
        yield finding(
            self,
            layer,
            (row, extra) if extra is not None and mode == "LINEAR" and found[0] not in extra.values["allowed"] else row,
            f"{mode} with {', '.join(found)}; the DLA takes "
            + (" or ".join(f"({', '.join(form)})" for form in allowed) if allowed else f"no {mode} here")
            + ".",
            value=tuple(found),
            limit=tuple(map(tuple, allowed)),
            advice="Export with half-pixel coordinates (align_corners = False), or NEAREST with asymmetric and floor.",
        )


RULE = ResizeMode()
