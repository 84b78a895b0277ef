"""DLA layers with different batch sizes.

## What it checks
Whether the layers on the DLA have one batch size. All layers of a loadable share one; others go to a loadable of
their own. It is a note.

## Why it matters
Every change of batch, as by moving windows or tokens in front of the channels, opens another loadable, with a
launch of its own.

## Example
A window attention that turns (1, 64, 56, 56) into (64, 64, 7, 7) and back.

## What to do
Keep the batch as it is and work on the last three dimensions.

## Fix safety
No rewrite is applied.

## Source
Row G11: TensorRT documentation 10.16 to 11.4.1. The first version is not known: inferred from 8.6 to 10.15.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from orinport.rules.regions import network_finding, on_dla
from orinport.rules.rule import NetworkRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class BatchSizes(NetworkRule):
    code = "DLA301"
    title = "DLA layers have different batch sizes"
    rows = ("G11",)

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        row = context.rows.get("G11")
        if row is None:
            return
        sizes = Counter(
            batch
            for layer in layers
            if on_dla(layer, context) and layer.outputs and (batch := layer.outputs[0].batch) is not None
        )
        if len(sizes) < 2:
            return
        listing = ", ".join(f"{batch} ({number})" for batch, number in sizes.most_common(4))
        yield network_finding(
            self,
            (row,),
            f"The DLA layers have {len(sizes)} batch sizes, batch (layers): {listing}; each goes to a loadable of its"
            " own.",
            value=len(sizes),
            limit=1,
            advice="Keep the batch and work on the last three dimensions.",
            verdict=None,
        )


RULE = BatchSizes()
