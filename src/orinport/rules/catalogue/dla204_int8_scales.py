"""Implicit INT8 needs a scale for every activation.

## What it checks
Whether the target quantises implicitly (TensorRT 10 and older) in INT8. It is a note: a scale for every tensor has
to come from a calibration cache, and some ranges have to be equal: input and output of a pooling, all inputs and
the output of a concatenation, both inputs of an element-wise operation.

## Why it matters
A tensor without a scale makes its layers run in FP16, or on the GPU. FP16 convolution is many times slower.

## Example
Any network with --precision int8 on jp6.2.

## What to do
Let `orinport quantize` make the calibration cache; it equalises the ranges that have to be equal.

## Fix safety
No rewrite is applied.

## Source
Rows I01 (builder logs), I02 and C15 (NvInfer.h, IInt8EntropyCalibrator2), I03, P05, N04 and E07 (NvInfer.h,
TensorRT 8.4 and 8.5 Developer Guides). The builder's message: "Node: X cannot run in INT8 mode due to missing
scale and zero point."
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.regions import network_finding, on_dla
from orinport.rules.rule import NetworkRule
from orinport.rules.support import holding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


_EXPLICIT = frozenset({LayerKind.QUANTIZE, LayerKind.DEQUANTIZE})


class Int8Scales(NetworkRule):
    code = "DLA204"
    title = "INT8 needs a scale for every tensor"
    rows = ("I01", "I02", "C15", "I03", "P05", "N04", "E07")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        if "I01" not in context.rows or any(layer.kind in _EXPLICIT for layer in layers):
            return
        tensors = {tensor.name for layer in layers if on_dla(layer, context) for tensor in layer.outputs}
        if not tensors:
            return
        yield network_finding(
            self,
            holding(context, ("I01", "I02")),
            f"INT8 needs a scale for each of the {len(tensors)} tensors that DLA layers write and for their inputs;"
            " a tensor without one runs in FP16.",
            value=len(tensors),
            limit=None,
            advice="Make a calibration cache with `orinport quantize`.",
            verdict=None,
        )


RULE = Int8Scales()
