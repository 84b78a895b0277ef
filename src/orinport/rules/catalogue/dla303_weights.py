"""The weights are too large for one loadable.

## What it checks
The weights of the layers of each loadable together, less than 512 MiB. Weights of convolutions count in the
target's precision, those of Scale layers with 4 bytes.

## Why it matters
Weights lie in the pool "global DRAM", 512 MiB by default; a larger loadable does not compile.

## Example
A network with 300 million weights in FP16.

## What to do
Use INT8, or cut the network into several parts. From 8.4 on the pool can be made larger
(--memPoolSize=dlaGlobalDRAM); whether this limit moves with it is not documented.

## Fix safety
No rewrite is applied.

## Source
Rows G13 (NvInfer.h 7.1.3 to 11.1, Weights) and Y03 (TensorRT 8.4 and 8.5 Developer Guides); open for larger pools
(OP52).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.regions import too_large
from orinport.rules.rule import NetworkRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class Weights(NetworkRule):
    code = "DLA303"
    title = "Weights are too large for a loadable"
    rows = ("G13", "Y03", "OP52")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        row = context.rows.get("G13")
        if row is None:
            return
        advice = "Use INT8, or cut the network into parts."
        yield from too_large(
            self, layers, context, row, lambda layer: _weight_bytes(layer, context), "weights", advice=advice
        )


def _weight_bytes(layer: Layer, context: Context) -> int:
    values: int = layer.attributes.get("weight_values", 0)
    if layer.kind is LayerKind.SCALE and "O02" in context.rows:
        size: int = context.rows["O02"].values["bytes"]
    else:
        size = context.rows["G13"].values["element_bytes"][context.precision.value]
    return values * size


RULE = Weights()
