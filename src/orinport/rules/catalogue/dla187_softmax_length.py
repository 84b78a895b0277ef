"""A SoftMax over more elements than the DLA takes, or one that is computed approximately.

## What it checks
If every dimension but batch and axis is 1, the axis is at most 8192 long. If others exceed 1, it is at most
1024 long, and the result is an approximation whose error grows towards 1024; a note says so.

## Why it matters
Attention over 4096 tokens and segmentation over many classes differ in which of the two applies.

## Example
SoftMax over axis 3 of (1, 8, 2048, 2048).

## What to do
Leave a long SoftMax to the GPU.

## Fix safety
No rewrite is applied.

## Source
Rows M03 and M04: NvInfer.h from 8.4.1 on, developer guide 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, softmax_extent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class SoftmaxLength(LayerRule):
    code = "DLA187"
    title = "SoftMax is too long, or approximate"
    rows = ("M03", "M04")
    kinds = (LayerKind.SOFTMAX,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        accurate, fast = context.rows.get("M03"), context.rows.get("M04")
        if accurate is None or fast is None:
            return
        data = layer.inputs[0]
        if data.shape is None:  # DLA103 speaks
            return
        if layer["axis"] >= len(data.shape):
            return
        length, others = softmax_extent(data.shape, layer["axis"])
        row = accurate if others == 1 else fast
        if length > row.values["max"]:
            yield finding(
                self,
                layer,
                row,
                f"The axis is {length} long and"
                f" {'the other dimensions are 1' if others == 1 else 'other dimensions exceed 1'};"
                f" the DLA takes at most {row.values['max']}.",
                value=length,
                limit=row.values["max"],
                advice="Leave it to the GPU, or apply SoftMax after the network.",
            )
        elif others != 1:
            yield finding(
                self,
                layer,
                fast,
                f"Other dimensions than the axis exceed 1, so SoftMax over {length} elements is approximate.",
                value=length,
                limit=fast.values["max"],
                advice="Check the accuracy; the error grows with the length of the axis.",
                verdict=None,
            )


RULE = SoftmaxLength()
