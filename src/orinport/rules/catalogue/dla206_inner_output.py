"""A tensor inside an INT8 network is also an output.

## What it checks
In INT8, whether a network output is read by further layers. It is a note.

## Why it matters
Making an inner tensor an output ends the fusions across it and changes the error of quantisation.

## Example
A backbone that returns every feature map and goes on from it.

## What to do
Keep such outputs only where they are needed.

## Fix safety
No rewrite is applied.

## Source
Row I12: TensorRT 8.4 Developer Guide (NVIDIA's Chinese translation); inferred for later versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rules.regions import on_dla
from orinport.rules.rule import NetworkRule
from orinport.rules.support import finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class InnerOutput(NetworkRule):
    code = "DLA206"
    title = "Inner tensor of an INT8 network is an output"
    rows = ("I12",)

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        row = context.rows.get("I12")
        if row is None:
            return
        for layer in layers:
            for tensor in layer.outputs:
                readers = context.consumers.get(tensor.name, ())
                if tensor.name not in context.outputs or not readers or not on_dla(layer, context):
                    continue
                yield finding(
                    self,
                    layer,
                    row,
                    f"The output {tensor.name!r} is also read by {len(readers)} layers, which ends INT8 fusions across"
                    " it.",
                    value=len(readers),
                    limit=0,
                    advice="Return it only if it is needed.",
                    verdict=None,
                )


RULE = InnerOutput()
