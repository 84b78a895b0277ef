"""Q/DQ with UINT8 or a zero point other than 0.

## What it checks
Quantisers with a zero point other than 0 or with UINT8. The parser takes them for the DLA from TensorRT 10.11 on,
with an option and DLA software 3.16 or newer.

## Why it matters
DLA arithmetic in INT8 is symmetric otherwise; a zero point that is dropped shifts every value.

## Example
A network quantised to UINT8 with zero point 128.

## What to do
Quantise symmetrically (INT8, zero point 0). `orinport quantize` and `prepare --precision int8` translate zero points
that are symmetric in other words, such as UINT8 with 128.

## Fix safety
No rewrite is applied.

## Source
Rows I05 and I08: TensorRT changelog 10.11, NvOnnxParser.h 10.14 to 11.1, trtexec 10.16 and 11.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import DType, LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding
from orinport.targets.catalogue import catalogue_rows
from orinport.targets.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class AsymmetricQuantisation(LayerRule):
    code = "DLA202"
    title = "Asymmetric quantisation"
    rows = ("I05", "I08")
    kinds = (LayerKind.QUANTIZE, LayerKind.DEQUANTIZE)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        types = {tensor.dtype for tensor in (*layer.inputs, *layer.outputs)}
        if not layer["zero_point"] and DType.UINT8 not in types and layer["to"] != DType.UINT8.value:
            return
        row = catalogue_rows()["I05"]
        needed = Version.parse(row.values["dla_software"])
        stack = context.target.stack
        old = (row.since is not None and stack.tensorrt < row.since) or (stack.dla is not None and stack.dla < needed)
        have = f"TensorRT {stack.tensorrt} with DLA software {stack.dla or 'of an unknown version'}"
        yield finding(
            self,
            layer,
            row,
            f"The quantiser is asymmetric (UINT8 or a zero point), which needs TensorRT {row.since} and DLA software"
            f" {needed}; this is {have}.",
            value=str(stack.dla or ""),
            limit=str(needed),
            advice="Quantise symmetrically: INT8, zero point 0.",
            verdict=Verdict.GPU if old else Verdict.UNKNOWN if stack.dla is None else None,
        )


RULE = AsymmetricQuantisation()
