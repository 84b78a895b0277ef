"""A shape is not known at build time.

## What it checks
Whether the shape of every tensor is known. The DLA takes no dynamic dimension: every optimisation profile has
min = opt = max, and run-time dimensions equal those of the build.

## Why it matters
A shape that depends on data keeps the layer off the DLA; one that merely could not be found out may be fine.
Both give the verdict `unknown`.

## Example
What follows a NonZero, or a custom operator without shape inference.

## What to do
Fix the input shapes with --shapes; take operators with data-dependent results out of the part for the DLA.

## Fix safety
No rewrite is applied.

## Source
Rows G06, G07 and G08: NvInfer.h 7.1.3 to 11.1 (IOptimizationProfile, addInput), TensorRT 8.4 and 8.5 Developer
Guides, documentation 10.16 to 11.4.1. The builder's message: "DLA Layer X does not support dynamic shapes in any
dimension."
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rules.finding import Verdict
from orinport.rules.rule import NetworkRule
from orinport.rules.support import finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class StaticShapes(NetworkRule):
    code = "DLA103"
    title = "Shape is not known at build time"
    rows = ("G06", "G07", "G08")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        row = context.rows.get("G06")
        if row is None:
            return
        for layer in layers:
            for tensor in (*layer.inputs, *layer.outputs):
                if tensor.shape is not None:
                    continue
                yield finding(
                    self,
                    layer,
                    row,
                    f"The shape of {tensor.name!r} is not known; the DLA takes no dynamic dimension.",
                    value=None,
                    limit="static",
                    advice="Fix the input shapes with --shapes, or keep data-dependent operators out of this part.",
                    verdict=Verdict.UNKNOWN,
                )
                break


RULE = StaticShapes()
