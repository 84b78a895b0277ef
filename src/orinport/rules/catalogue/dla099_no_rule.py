"""A kind of layer on which no rule speaks.

## What it checks
Whether any rule names the layer's kind. If none does, nothing is known about it and the verdict is `unknown`.

## Why it matters
An unknown layer never counts as taken. It is placed on the GPU, which is the safe assumption.

## Example
A layer kind that a newer TensorRT has added.

## What to do
Ask the board: canRunOnDLA(), or trtexec with a verbose log.

## Fix safety
No rewrite is applied.

## Source
Row G22a: canRunOnDLA() on the target decides (NvInfer.h 6.0.1 to 11.1; TensorRT 8.5 Developer Guide).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class NoRule(LayerRule):
    code = "DLA099"
    title = "No rule speaks about this kind of layer"
    rows = ("G22a",)
    kinds = ()

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        if layer.kind in context.covered or layer.kind is LayerKind.CONSTANT:
            return
        yield finding(
            self,
            layer,
            context.rows["G22a"],
            f"Nothing is known about {layer.kind.value} on the DLA.",
            value=layer.kind.value,
            limit=None,
            advice="Ask the board: canRunOnDLA(), or the verbose log of trtexec.",
            verdict=Verdict.UNKNOWN,
        )


RULE = NoRule()
