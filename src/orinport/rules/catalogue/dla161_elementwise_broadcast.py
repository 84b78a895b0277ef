"""An element-wise operation whose operands differ in shape.

## What it checks
Safe are equal shapes, and a constant of shape (1, C, 1, 1) or (1, 1, 1, 1). Any other broadcast is documented
nowhere: `unknown`.

## Why it matters
The scaling of squeeze-and-excite, (N, C, H, W) times (N, C, 1, 1), is the most common case. It is said to pass
often, but no document says that it does.

## Example
Mul of (1, 64, 56, 56) with (1, 64, 1, 1), both computed at run time.

## What to do
Try it on the board. A Resize to the full size before the operation makes the shapes equal, within the limits of
Resize.

## Fix safety
No rewrite is applied.

## Source
Rows E09 and OP19: the operator reference is silent; operator table of NVIDIA/Deep-Learning-Accelerator-SW.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule
from orinport.rules.support import LOGICAL, by, finding, holding, is_per_channel, unshaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ElementwiseBroadcast(LayerRule):
    code = "DLA161"
    title = "Element-wise operation with broadcast"
    rows = ("E09", "OP19")
    kinds = (LayerKind.ELEMENTWISE,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        if layer["op"] in LOGICAL:
            return
        first, second = layer.inputs
        if first.shape is not None and first.shape == second.shape:
            return
        if unshaped(layer.inputs):  # DLA103 speaks
            return
        if is_per_channel(first, second) or is_per_channel(second, first):
            return
        shapes = f"{by(first.shape or ())} and {by(second.shape or ())}"
        yield finding(
            self,
            layer,
            holding(context, self.rows),
            f"{layer['op']} of {shapes}: no document says that the DLA takes this broadcast.",
            value=(first.shape, second.shape),
            limit="equal shapes, or a constant of shape (1, C, 1, 1) or (1, 1, 1, 1)",
            advice="Make the shapes equal, for instance by a Resize, or try it on the board.",
            verdict=Verdict.UNKNOWN,
        )


RULE = ElementwiseBroadcast()
