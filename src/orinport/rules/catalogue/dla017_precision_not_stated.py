"""A layer that is documented without a word on precision.

## What it checks
Whether the documents that name a layer say that they mean the precision of the target. For parametric ReLU (8.4
and 8.5), Resize by mode, ABS, Shuffle and Reduce MAX they do not. It is a note: the layer counts as taken.

## Why it matters
A layer that runs in FP16 inside an INT8 network brings conversions on both sides. LINEAR Resize in INT8 is said
to be computed in FP16 if its input range exceeds its output range.

## Example
A Resize in an INT8 network.

## What to do
Give input and output of a Resize the same range. Look at the profile of the board for conversions around such
layers.

## Fix safety
No rewrite is applied.

## Source
Rows OP17, OP29, OP30, OP40, OP44 and Z07: points that NvInfer.h and the guides leave open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_POINTS: Mapping[LayerKind, str] = {
    LayerKind.PARAMETRIC_RELU: "OP17",
    LayerKind.RESIZE: "OP29",
    LayerKind.UNARY: "OP30",
    LayerKind.SHUFFLE: "OP40",
    LayerKind.REDUCE: "OP44",
}


class PrecisionNotStated(LayerRule):
    code = "DLA017"
    title = "Documents do not state the precision for this layer"
    rows = ("OP17", "OP29", "OP30", "OP40", "OP44", "Z07", "U01a", "U01b")
    kinds = (LayerKind.PARAMETRIC_RELU, LayerKind.RESIZE, LayerKind.UNARY, LayerKind.SHUFFLE, LayerKind.REDUCE)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get(_POINTS[layer.kind])
        if row is None:
            return
        if not _is_taken(layer, context):
            return
        kind = layer.kind
        yield finding(
            self,
            layer,
            row,
            f"Documents take this {kind.value} layer without saying in which precision.",
            value=context.precision.value,
            limit=None,
            advice="Look for conversions around this layer in a profile from the board.",
            verdict=None,
        )


def _is_taken(layer: Layer, context: Context) -> bool:
    """False where another rule refuses the layer, or where its precision is beyond doubt."""
    if layer.kind is LayerKind.UNARY or layer.kind is LayerKind.REDUCE:
        return layer["op"] in ("ABS", "MAX")
    if layer.kind is LayerKind.RESIZE:
        return context.precision is Precision.INT8
    if layer.kind is LayerKind.SHUFFLE:
        rank: int = context.rows["F01"].values["rank"]
        return layer.inputs[0].rank == layer.outputs[0].rank == rank
    return True


RULE = PrecisionNotStated()
