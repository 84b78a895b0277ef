"""A Scale layer in a version whose documents do not name it.

## What it checks
Scale is documented in the guides of TensorRT 8.4 and 8.5. Later documents were not to be had or do not name it,
earlier ones name it without limits. It counts as taken, as inferred; this note says so.

## Why it matters
Batch normalisation that does not fold into a convolution becomes a Scale.

## Example
A BatchNormalization behind an addition, for orin-agx-64gb/jp6.0.

## What to do
Nothing. Batch normalisation directly behind a convolution folds into it and leaves no Scale.

## Fix safety
The rewrite fuse-scale-into-conv is exact up to rounding: scale and shift go into weights and bias.

## Source
Rows S01, X06 and OP18: developer guides 8.4 and 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import FUSE_SCALE_INTO_CONV
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, fuses_into_convolution, speaking
from orinport.targets.target import Confidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ScaleDocuments(LayerRule):
    code = "DLA030"
    title = "No current document names Scale"
    rows = ("S01", "X06", "OP18")
    kinds = (LayerKind.SCALE,)
    fix = FUSE_SCALE_INTO_CONV

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        open_row = context.rows.get("OP18")
        row = speaking(context, ("S01", "X06"))
        if row is None or (open_row is None and row.confidence is Confidence.DOCUMENTED):
            return
        version = context.target.stack.tensorrt
        yield finding(
            self,
            layer,
            (row,) if open_row is None else (open_row, row),
            f"Scale counts as taken in TensorRT {version}, though only the guides of 8.4 and 8.5 name it.",
            value=str(version),
            limit=None,
            advice="Nothing to do; batch normalisation directly behind a convolution folds into it.",
            verdict=None,
            fix=FUSE_SCALE_INTO_CONV if fuses_into_convolution(layer, context) else None,
        )


RULE = ScaleDocuments()
