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
Copy the smaller operand to the full size first: prepare does so.

## Fix safety
The rewrite broadcast-to-resize is exact: it copies the smaller operand by nearest Resize, or along the channels by
a 1x1 convolution of ones.

## Source
Rows E09 and OP19: the operator reference is silent; operator table of NVIDIA/Deep-Learning-Accelerator-SW.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.fixes import BROADCAST_TO_RESIZE
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
    fix = BROADCAST_TO_RESIZE

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
            fix=BROADCAST_TO_RESIZE if _copies(layer) else None,
        )


def _copies(layer: Layer) -> bool:
    """True for 4-D operands of which none is copied along the batch, of an operation that the rewrite knows."""
    result = layer.outputs[0].shape
    if result is None or len(result) != 4 or layer["op"] not in ("SUM", "PROD", "SUB", "DIV", "MAX", "MIN"):
        return False
    for tensor in layer.inputs:
        if tensor.shape is None or (not tensor.constant and (len(tensor.shape) != 4 or tensor.shape[0] != result[0])):
            return False
    return True


RULE = ElementwiseBroadcast()
