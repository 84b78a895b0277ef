"""A comparison for the DLA needs settings of its own in the build.

## What it checks
Comparisons that are taken: device DLA and precision INT8 have to be set on the comparison and on the Cast behind
it, otherwise the GPU is assumed. It is a note. Documented for TensorRT 8.5; whether later versions keep it is not
known, so EQUAL from 8.6 to 10.2 is `unknown`.

## Why it matters
Without the settings the comparison runs on the GPU; with them the build may fail even with GPU fallback.

## Example
Equal followed by Cast, in INT8.

## What to do
Set --layerDeviceTypes and --layerPrecisions for both layers; if the build fails, leave both out.

## Fix safety
No rewrite is applied.

## Source
Rows K04, K06 and OP25: developer guide 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule
from orinport.rules.support import COMPARISONS, finding, holding, takes_comparison

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ComparisonSettings(LayerRule):
    code = "DLA167"
    title = "Comparison needs its device and precision set"
    rows = ("K04", "K06", "OP25")
    kinds = (LayerKind.ELEMENTWISE,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("K04")
        if row is None or layer["op"] not in COMPARISONS or not takes_comparison(layer, context):
            return
        doubtful = layer["op"] == "EQUAL" and "OP25" in context.rows
        yield finding(
            self,
            layer,
            holding(context, self.rows),
            "The builder assumes the GPU for this comparison unless device DLA and precision INT8 are set on it and on"
            " its Cast.",
            value=None,
            limit="device and precision set",
            advice="Set --layerDeviceTypes and --layerPrecisions for both layers; if the build fails, leave both out.",
            verdict=Verdict.UNKNOWN if doubtful else None,
        )


RULE = ComparisonSettings()
