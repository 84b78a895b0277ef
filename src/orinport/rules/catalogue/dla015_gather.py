"""A gather.

## What it checks
Every Gather layer, in all its modes.

## Why it matters
Indexing is common in PyTorch exports (x[:, k], token selection, embeddings), and each one cuts the network.

## Example
A Gather node with constant index 0 on axis 1.

## What to do
With constant indices over channels, write it as a 1x1 convolution with one-hot weights or as a Slice; take an
embedding before the network.

## Fix safety
The rewrites gather-to-slices, gather-elements-to-slices and gather-nd-to-slices are exact: constant indices become
slices and a concatenation.

## Source
Row X01a: NvInfer.h from 8.2.1 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.fixes import GATHER_ELEMENTS_TO_SLICES, GATHER_ND_TO_SLICES, GATHER_TO_SLICES
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


_FIXES: Mapping[str, tuple[str, str]] = {
    "DEFAULT": GATHER_TO_SLICES,
    "ELEMENT": GATHER_ELEMENTS_TO_SLICES,
    "ND": GATHER_ND_TO_SLICES,
}


class Gather(LayerRule):
    code = "DLA015"
    title = "Gather"
    rows = ("X01a",)
    kinds = (LayerKind.GATHER,)
    fix = GATHER_TO_SLICES

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("X01a")
        mode = layer.attributes.get("mode", "DEFAULT")
        yield finding(
            self,
            layer,
            row if row is not None else (),
            f"The DLA takes no Gather, in none of its modes ({mode})."
            if row is not None
            else f"No document of this TensorRT version says whether the DLA takes a Gather ({mode}).",
            value=mode,
            limit=None,
            advice="With constant indices over channels, use a 1x1 convolution with one-hot weights or a Slice.",
            verdict=Verdict.GPU if row is not None else Verdict.UNKNOWN,
            fix=_FIXES[mode] if _chooses_by_constants(layer, mode) else None,
        )


def _chooses_by_constants(layer: Layer, mode: str) -> bool:
    """True for constant indices into a tensor that is none itself; not for samples of a 4-D tensor."""
    data, rest = layer.inputs[0], layer.inputs[1:]
    samples = mode != "ND" and data.rank == 4 and layer.attributes.get("axis", 0) == 0
    return not data.constant and not samples and all(each.constant for each in rest)


RULE = Gather()
