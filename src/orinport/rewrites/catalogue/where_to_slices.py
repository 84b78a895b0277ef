"""`Where(mask, x, y) -> Concat(Slice(x), Slice(y), ...)`: a constant choice of channels by slices.

## What it does
Where with a constant condition that differs along one axis of 4-D tensors only becomes one Slice for each stretch of
equal conditions, from one branch or the other, and a Concat; a condition that is the same everywhere chooses a branch.

## Why
Where is no layer of the DLA; Slice and Concat along the channels are.

## Example
Channels 0 to 7 from one branch and 8 to 15 from another: two slices and a Concat.

## Refused
Conditions known at run time or that differ along several axes, and constant branches, for `where-to-arithmetic`;
branches that are broadcast; other ranks than 4; integers; more stretches than are worth a slice each.

## Safety
exact: bit-equal. An infinity in the branch that is not chosen stays out.

## Source
Rows K11, N01 and V01a of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._constants import shrink
from orinport.rewrites.catalogue._selection import assemble, stretches_of
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "WhereToSlices"]


class WhereToSlices(Rewrite):
    """A constant choice becomes slices."""

    name = "where-to-slices"
    safety = Safety.EXACT
    op_types = ("Where",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        condition, branches, shape = context.constant(node.inputs[0]), node.inputs[1:], context.shape(node.outputs[0])
        if condition is None:
            return Refusal("the condition is known at run time only")
        if shape is None or len(shape) != 4 or 0 in shape:
            return Refusal("the DLA takes rank 4, and no empty or unknown shape")
        if not context.is_float(branches[0]):
            return Refusal(f"the DLA does not compute in {context.dtype(branches[0])}")
        if any(context.is_constant(each) or context.shape(each) != shape for each in branches):
            return Refusal("a branch is constant or broadcast")
        small = shrink(condition.reshape((1,) * (4 - condition.ndim) + condition.shape))
        axes = [axis for axis in range(4) if small.shape[axis] > 1]
        if len(axes) > 1 or axes == [0]:
            return Refusal("the condition differs along the batch" if axes == [0] else "it differs along several axes")
        axis = axes[0] if axes else 1
        flags = np.resize(small.reshape(-1), shape[axis])
        runs = stretches_of([(bool(flag), index) for index, flag in enumerate(flags)])
        most = int(context.figure("selection", "slices"))
        if len(runs) > most:
            return Refusal(f"it would need {len(runs)} slices, more than {most}")
        return Match((node,), (node.outputs[0],), (axis, runs))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        axis, runs = match.data
        yes, no = match.nodes[0].inputs[1:]
        assert yes is not None
        assert no is not None
        if len(runs) == 1:
            return (yes if runs[0][0] else no,)
        return (assemble(builder, yes, no, axis, runs),)


REWRITE = WhereToSlices()
