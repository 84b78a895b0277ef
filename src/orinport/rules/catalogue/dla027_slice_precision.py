"""A Slice, or one output of a Split, in INT8.

## What it checks
From TensorRT 8.5 to 10.8 Slice is documented in FP16 only: INT8 is refused. For 8.4, 8.6 and from 10.9 on
nothing is documented for INT8: `unknown`. Slice on Xavier in 8.4 stands in the header but not in the guide:
`unknown`.

## Why it matters
Channel splits stand in every C2f and ELAN block of the YOLO family. In an INT8 network each goes to the GPU, or
runs in FP16 with conversions around it.

## Example
A Split along the channels in YOLOv8, prepared in INT8.

## What to do
Set the layer to FP16, or replace the split by convolutions: the layer before it makes its parts separately.

## Fix safety
conv-slices-to-convs is exact: where a convolution, with its activations, is only sliced, each part gets a convolution
of its own. Other slices stay.

## Source
Rows V01b, V08a, V08b, OP33, OP34a, OP34b and OP35: developer guide 8.5, operator reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import CONV_SLICES_TO_CONVS
from orinport.rules.rule import LayerRule
from orinport.rules.support import only_precision

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_ADVICE = "Set this layer to FP16 (trtexec --layerPrecisions), and expect conversions on both sides."


class SlicePrecision(LayerRule):
    code = "DLA027"
    title = "Slice in INT8"
    rows = ("V01b", "V08a", "V08b", "OP33", "OP34a", "OP34b", "OP35")
    kinds = (LayerKind.SLICE,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        fix = CONV_SLICES_TO_CONVS if _parts_of_convolution(layer, context) else None
        return only_precision(self, layer, context, "Slice", self.rows[:1] + self.rows[3:], advice=_ADVICE, fix=fix)


def _parts_of_convolution(layer: Layer, context: Context) -> bool:
    """True if it takes channels of a convolution, or of the activations behind one, that are only sliced."""
    name = layer.inputs[0].name
    if any(reader.kind is not LayerKind.SLICE for reader in context.consumers.get(name, ())) or name in context.outputs:
        return False
    for _ in range(4):
        producer = context.producers.get(name)
        if producer is None or producer.kind is LayerKind.CONVOLUTION:
            return producer is not None and layer.inputs[0].shape is not None
        if producer.kind not in (LayerKind.ACTIVATION, LayerKind.ELEMENTWISE):
            return False
        name = producer.inputs[0].name
    return False


RULE = SlicePrecision()
