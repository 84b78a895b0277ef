"""A SoftMax in INT8 on Orin.

## What it checks
In TensorRT 8.5 and from 10.0 to 10.8 SoftMax is documented in FP16 only: INT8 is refused. For 8.4, 8.6 and from
10.9 on nothing is documented for INT8: `unknown`.

## Why it matters
The exponential needs the range of FP16.

## Example
The last layer of a classifier prepared in INT8.

## What to do
Set the layer to FP16, or return the logits and apply SoftMax after the network.

## Fix safety
No rewrite is applied.

## Source
Rows M01b, OP38a, OP38b and OP38c: developer guide 8.5, operator reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import only_precision

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_ADVICE = "Set this layer to FP16 (trtexec --layerPrecisions), or return the logits and apply SoftMax afterwards."


class SoftmaxPrecision(LayerRule):
    code = "DLA028"
    title = "SoftMax in INT8"
    rows = ("M01b", "OP38a", "OP38b", "OP38c")
    kinds = (LayerKind.SOFTMAX,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        return only_precision(self, layer, context, "SoftMax", self.rows, advice=_ADVICE)


RULE = SoftmaxPrecision()
