"""The batch is larger than the DLA takes.

## What it checks
Batch, the product of all dimensions but the last three, of every tensor that a layer reads or writes: at most
4096, and 32 in the TensorRT 7.1 era.

## Why it matters
The batch is not only the first dimension: a reshape that moves tokens or windows in front of the last three
dimensions makes each of them an image of its own.

## Example
A tensor (128, 64, 16, 16, 16) has batch 128 * 64 = 8192.

## What to do
Keep tokens and windows in the last two dimensions, or cut the batch in parts.

## Fix safety
No rewrite is applied.

## Source
Rows G02, G03 and G04: NvInfer.h (getMaxDLABatchSize), TensorRT 8.4 and 8.5 Developer Guides, documentation 10.16
to 11.4.1; NVIDIA/TensorRT issue 2318 for 7.1.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from orinport.rules.rule import NetworkRule
from orinport.rules.support import finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer, Tensor
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class Batch(NetworkRule):
    code = "DLA100"
    title = "Batch is too large"
    rows = ("G02", "G03", "G04")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        row = min(
            (context.rows[name] for name in ("G02", "G03") if name in context.rows),
            key=lambda row: row.values["max"],
            default=None,
        )
        if row is None:
            return
        limit, trailing = row.values["max"], context.rows["G04"].values["trailing"]
        for layer in layers:
            for tensor in (*layer.inputs, *layer.outputs):
                # Four dimensions or fewer of which the first is small: nearly all tensors.
                if tensor.constant or tensor.shape is None or prod(tensor.shape[:-trailing]) <= limit:
                    continue
                yield self._too_large(layer, tensor, context, limit)
                break

    def _too_large(self, layer: Layer, tensor: Tensor, context: Context, limit: int) -> Finding:
        assert tensor.shape is not None
        rows = tuple(context.rows[name] for name in self.rows if name in context.rows)
        batch = prod(tensor.shape[: -context.rows["G04"].values["trailing"]])
        return finding(
            self,
            layer,
            rows,
            f"The tensor {tensor.name!r} of shape {list(tensor.shape)} has batch {batch}, which exceeds the DLA's"
            f" limit of {limit}.",
            value=batch,
            limit=limit,
            advice="Keep all but the images themselves in the last three dimensions, or cut the batch in parts.",
        )


RULE = Batch()
