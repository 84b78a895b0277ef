"""The tensors inside a loadable are too large.

## What it checks
The tensors that the layers of each loadable write, network outputs left out, together less than 1 GiB.

## Why it matters
They lie in the pool "local DRAM", 1 GiB by default; a larger loadable does not compile.

## Example
A segmentation network at 4096x4096 in FP16.

## What to do
Use a smaller input or batch, INT8, or cut the network into parts. From 8.4 on the pool can be made larger
(--memPoolSize=dlaLocalDRAM); whether this limit moves with it is not documented.

## Fix safety
No rewrite is applied.

## Source
Rows G12 (NvInfer.h 7.1.3 to 11.1, ITensor) and Y02 (TensorRT 8.4 and 8.5 Developer Guides); open for larger pools
(OP52).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rules.regions import too_large
from orinport.rules.rule import NetworkRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class InnerTensors(NetworkRule):
    code = "DLA304"
    title = "Tensors inside a loadable are too large"
    rows = ("G12", "Y02", "OP52")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        row = context.rows.get("G12")
        if row is None:
            return
        size_of = row.values["element_bytes"][context.precision.value]
        advice = "Use a smaller input, INT8, or cut the network into parts."
        yield from too_large(
            self, layers, context, row, lambda layer: _inner(layer, context) * size_of, "inner tensors", advice=advice
        )


def _inner(layer: Layer, context: Context) -> int:
    """Elements that `layer` writes for other layers."""
    return sum(tensor.volume or 0 for tensor in layer.outputs if tensor.name not in context.outputs)


RULE = InnerTensors()
