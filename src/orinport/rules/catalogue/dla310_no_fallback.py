"""Refused layers where nothing may run on the GPU.

## What it checks
Without GPU fallback, and always in a standalone loadable, whether any layer is refused. One is enough: the build
ends there. Layers of unknown fate may end it as well.

## Why it matters
A refusal that would only cost time with fallback makes the build fail without it.

## Example
--standalone with a SoftMax on Xavier.

## What to do
Take the refused layers away, or allow fallback.

## Fix safety
No rewrite is applied.

## Source
Rows W01, G10 and J03: NvInfer.h 5.1.5 to 11.1, TensorRT 8.4 and 8.5 Developer Guides 12.3, trtexec 8.6 to 11.1
("GPU fallback not allowed for DLA standalone mode").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rules.finding import Verdict
from orinport.rules.regions import layer_names, network_finding
from orinport.rules.rule import NetworkRule
from orinport.rules.support import holding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


_REFUSED = frozenset({Verdict.GPU, Verdict.BLOCKED})


class NoFallback(NetworkRule):
    code = "DLA310"
    title = "Refused layers end the build"
    rows = ("W01", "G10", "J03")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        if context.gpu_fallback:
            return
        refused = [layer for layer in layers if context.verdicts[layer.index] in _REFUSED]
        if not refused:
            return
        unknown = sum(context.verdicts[layer.index] is Verdict.UNKNOWN for layer in layers)
        why = "a standalone loadable has no GPU fallback" if context.standalone else "GPU fallback is off"
        yield network_finding(
            self,
            holding(context, ("W01", "J03") if context.standalone else ("W01", "G10")),
            f"The DLA refuses {len(refused)} of {len(layers)} layers and {why}: the build ends at"
            f" {layer_names(refused)}." + (f" Nothing is known of another {unknown}." if unknown else ""),
            value=len(refused),
            limit=0,
            advice="Take these layers away, or allow GPU fallback.",
            verdict=Verdict.BLOCKED,
        )


RULE = NoFallback()
