"""An integer or boolean tensor.

## What it checks
INT32, INT64 and BOOL tensors that a layer reads or writes at run time. One BOOL is allowed: the one between a
comparison and the Cast right behind it.

## Why it matters
The DLA computes in FP16 and INT8 only. Indices, masks and shape arithmetic run on the GPU.

## Example
A Cast to INT32 before an embedding; the mask of a Where.

## What to do
Fold shape arithmetic into constants; write masks as 0 and 1 in floating point and multiply.

## Fix safety
No rewrite is applied.

## Source
Rows G21a (TensorRT 8.5 Developer Guide, Equal) and G21b (NVIDIA/Model-Optimizer issue 1415).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import DType, LayerKind
from orinport.rules.rule import NetworkRule
from orinport.rules.support import finding, is_or_equal, is_truth

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer, Tensor
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


_ROWS = {DType.BOOL: "G21a", DType.INT32: "G21b", DType.INT64: "G21b"}
_CASTS = frozenset({LayerKind.CAST, LayerKind.IDENTITY})


class Integers(NetworkRule):
    code = "DLA104"
    title = "Integer or boolean tensor"
    rows = ("G21a", "G21b")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        for layer in layers:
            for tensor in (*layer.inputs, *layer.outputs):
                if tensor.dtype not in _ROWS or tensor.constant:
                    continue
                row = context.rows.get(_ROWS[tensor.dtype])
                if row is None or _inside_comparison(tensor, context):
                    continue
                yield finding(
                    self,
                    layer,
                    row,
                    f"The tensor {tensor.name!r} is {tensor.dtype.value.upper()}; the DLA computes in FP16 and INT8.",
                    value=tensor.dtype.value,
                    limit="fp16 or int8",
                    advice="Fold index and shape arithmetic, or write the values in floating point.",
                )
                break


def _inside_comparison(tensor: Tensor, context: Context) -> bool:
    """True for the BOOL tensor between a comparison and the one Cast behind it, or the OR that joins two of them."""
    maker = context.producers.get(tensor.name)
    if maker is None or tensor.dtype is not DType.BOOL or not is_truth(maker, context):
        return False
    readers = context.consumers.get(tensor.name, ())
    if len(readers) != 1 or tensor.name in context.outputs:
        return False
    return readers[0].kind in _CASTS or is_or_equal(readers[0], context)


RULE = Integers()
