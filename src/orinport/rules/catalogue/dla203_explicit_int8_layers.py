"""A layer that computes in explicit INT8.

## What it checks
Layers that read the output of a DequantizeLinear: with explicit quantisation they are the ones that run in INT8,
and what holds for the Q/DQ layers around them holds for them.

## Why it matters
It is not only the quantisers that leave the DLA, but the convolutions between them.

## Example
A Conv whose input and weights come from DequantizeLinear, on jp6.2.

## What to do
As for DLA201: turn Q/DQ into a calibration cache for TensorRT 10 and older.

## Fix safety
Taking the pairs out and giving their scales as a calibration cache keeps the scales.

## Source
Row G14 and conflict CF03, as for DLA201.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.catalogue.dla201_explicit_quantisation import explicit_quantisation
from orinport.rules.rule import NetworkRule
from orinport.rules.support import finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


_QUANTISERS = frozenset({LayerKind.QUANTIZE, LayerKind.DEQUANTIZE})


class ExplicitInt8Layers(NetworkRule):
    code = "DLA203"
    title = "Layer computes in explicit INT8"
    rows = ("G14", "CF03")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        dequantised = {
            tensor.name for layer in layers if layer.kind is LayerKind.DEQUANTIZE for tensor in layer.outputs
        }
        if not dequantised:
            return
        verdict, rows, message = explicit_quantisation(context)
        for layer in layers:
            source = next((tensor.name for tensor in layer.inputs if tensor.name in dequantised), None)
            if source is None or layer.kind in _QUANTISERS:
                continue
            yield finding(
                self,
                layer,
                rows,
                f"The layer reads {source!r} from a DequantizeLinear, so it is quantised explicitly; {message}.",
                value=source,
                limit=None,
                advice="Turn Q/DQ into a calibration cache for TensorRT 10 and older.",
                verdict=verdict,
            )


RULE = ExplicitInt8Layers()
