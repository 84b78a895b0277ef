"""Average pooling that does not count the padding.

## What it checks
An average pool with count_include_pad = 0 divides by the number of image positions under the window
(exclusive). On Xavier the padding has to be counted, and this has to be set explicitly, even without any
padding. On Orin no document speaks: the restriction is worded for Xavier only, so the verdict is `unknown`
where padding, or a window that ceil_mode lets hang over the edge, makes a difference.

## Why it matters
count_include_pad = 0 is the default of ONNX, so every padded AveragePool of a network that says nothing is one
of these. TensorRT 7 took the layer on Xavier and counted the padding all the same: wrong values at the border.

## Example
AveragePool with kernel_shape [3, 3], pads [1, 1, 1, 1] and no count_include_pad (Inception).

## What to do
Count the padding and correct the border: the rewrite does so.

## Fix safety
The rewrite average-pool-to-inclusive is exact: it counts the padding and multiplies with a constant map of h*w
/ (number of image positions).

## Source
Rows P06a, P06b, P07a, P07b and OP13: NvInfer.h 7.1.3 to 9.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.fixes import AVERAGE_POOL_TO_INCLUSIVE
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, holding, speaking

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class PoolingExclusive(LayerRule):
    code = "DLA143"
    title = "Average pooling leaves out the padding"
    rows = ("P06a", "P06b", "P07a", "P07b", "OP13")
    kinds = (LayerKind.POOLING,)
    fix = AVERAGE_POOL_TO_INCLUSIVE

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        if not layer["exclusive"] or layer["type"] != "AVERAGE":
            return
        matters = _matters(layer)
        explicit = speaking(context, ("P06b", "P07a"))
        if explicit is not None and not matters:
            yield finding(
                self,
                layer,
                explicit,
                "The average is set to leave out padding (count_include_pad = 0) and has none; whether the DLA of"
                " Xavier minds is not documented.",
                value="exclusive",
                limit="inclusive",
                advice="Set count_include_pad = 1: without padding it changes nothing.",
                verdict=Verdict.UNKNOWN,
                fix=AVERAGE_POOL_TO_INCLUSIVE,
            )
            return
        if explicit is not None:
            yield finding(
                self,
                layer,
                explicit,
                "The average leaves out the padding (count_include_pad = 0); on Xavier the DLA takes only averages that"
                " are set to count it.",
                value="exclusive",
                limit="inclusive",
                advice="Count the padding and multiply with a constant map that corrects the border.",
                fix=AVERAGE_POOL_TO_INCLUSIVE,
            )
            return
        if not matters:
            return
        ignored = context.rows.get("P06a")
        if ignored is not None:
            message = (
                "The average leaves out the padding (count_include_pad = 0); this version counts it all the same, so"
                " the border would be wrong."
            )
        else:
            message = (
                "The average leaves out the padding (count_include_pad = 0); no document says whether this DLA can"
                " do so."
            )
        yield finding(
            self,
            layer,
            holding(context, self.rows),
            message,
            value="exclusive",
            limit="inclusive",
            advice="Count the padding and multiply with a constant map that corrects the border.",
            verdict=Verdict.UNKNOWN,
            fix=AVERAGE_POOL_TO_INCLUSIVE,
        )


def _matters(layer: Layer) -> bool:
    """True if some window sees padding, or may hang over the edge; an unknown shape counts as that."""
    before, after = layer["pre_padding"], layer["post_padding"]
    if any(before) or any(after):
        return True
    if not layer["round_up"]:
        return False
    shape = layer.inputs[0].shape
    if shape is None:
        return True
    window, stride = layer["window"], layer["stride"]
    return any((size - over) % step for size, over, step in zip(shape[2:], window, stride, strict=False))


RULE = PoolingExclusive()
