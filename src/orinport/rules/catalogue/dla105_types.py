"""A tensor type that the DLA does not compute in.

## What it checks
BF16, FP8, FP4, INT4, INT16, UINT8 and string tensors, and tensors whose type is not known. FP32 and FP64 are no
matter up to TensorRT 10: the builder's flags make FP16 or INT8 of them.

## Why it matters
A layer runs on the DLA in FP16 or INT8; in any other type it stays on the GPU.

## Example
A network exported in BF16.

## What to do
Export the network in FP32 or FP16.

## Fix safety
No rewrite is applied.

## Source
Row G01: TensorRT 8.4 and 8.5 Developer Guides, documentation 10.16 to 11.4.1. The builder's message: "DLA only
supports FP16 and Int8 precision type."
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import DType, LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import NetworkRule
from orinport.rules.support import finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


_FLOATS = frozenset({DType.FP64, DType.FP32, DType.FP16})
_INTEGERS = frozenset({DType.INT8, DType.INT32, DType.INT64, DType.BOOL})
_ELSEWHERE = _FLOATS | _INTEGERS
"""Types that the DLA takes, or that other rules speak of (DLA104, DLA200)."""
_QUANTISERS = frozenset({LayerKind.QUANTIZE, LayerKind.DEQUANTIZE, LayerKind.DYNAMIC_QUANTIZE})


class Types(NetworkRule):
    code = "DLA105"
    title = "Tensor type that the DLA does not compute in"
    rows = ("G01",)

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        row = context.rows.get("G01")
        if row is None:
            return
        for layer in layers:
            if layer.kind in _QUANTISERS:
                continue
            for tensor in (*layer.inputs, *layer.outputs):
                if tensor.dtype in _ELSEWHERE or tensor.constant:
                    continue
                known = tensor.dtype is not DType.UNKNOWN
                yield finding(
                    self,
                    layer,
                    row,
                    f"The tensor {tensor.name!r} is {tensor.dtype.value.upper()}; the DLA computes in FP16 and INT8."
                    if known
                    else f"The type of {tensor.name!r} is not known; the DLA computes in FP16 and INT8.",
                    value=tensor.dtype.value,
                    limit="fp16 or int8",
                    advice="Export the network in FP32 or FP16.",
                    verdict=Verdict.GPU if known else Verdict.UNKNOWN,
                )
                break


RULE = Types()
