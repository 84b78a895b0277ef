"""`AveragePool(x, exclusive padding) -> AveragePool(x)`, without padding or counting it.

## What it does
An average pool that leaves its padding out of the count (ONNX's default) is written in one that does not have to: as a
window cut to the part that lies on the tensor, where there is only one window; else as a pool that counts the padding,
times the constant that corrects the count at each position. Without padding only the setting changes.

## Why
On Xavier the DLA pools with inclusive padding only, and wants that said; on Orin nobody documents the other kind.

## Example
`AveragePool((1, 1024, 6, 6), kernel 7x7, pads (0, 0, 1, 1))`: the only window sees 6 x 6, so kernel 6x6 and no pads.

## Refused
Ceil mode where the last window reaches past the end, and dilation, where the count is another one; shapes that are not
known.

## Safety
exact: the same sums, divided in two steps.

## Source
Rows P06a to P07b of the acceptance catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "AveragePoolToInclusive", "explicit_pads"]


@dataclass(frozen=True, slots=True)
class _Data:
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]


class AveragePoolToInclusive(Rewrite):
    """Average pools that leave out their padding are written in ones that count it, or have none."""

    name = "average-pool-to-inclusive"
    safety = Safety.EXACT
    op_types = ("AveragePool",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value, output = node.inputs[0], node.outputs[0]
        before, after = context.shape(value), context.shape(output)
        if context.attribute(node, "count_include_pad", 0):
            return None
        if before is None or after is None:
            return Refusal("the shape is not known")
        if len(before) != 4 or 0 in before:
            return None
        kernel = tuple(int(size) for size in context.attribute(node, "kernel_shape"))
        strides = tuple(int(step) for step in context.attribute(node, "strides", (1, 1)))
        pads = explicit_pads(node, before, after, context)
        if any(int(step) != 1 for step in context.attribute(node, "dilations", (1, 1))):
            return Refusal("the window is dilated")
        if context.attribute(node, "ceil_mode", 0) and not _floor_is_same(before, after, kernel, strides, pads):
            return Refusal("in ceil mode the last window reaches past the end")
        return Match((node,), (output,), _Data((kernel[0], kernel[1]), (strides[0], strides[1]), pads))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, output, data = match.nodes[0], match.outputs[0], match.data
        value = node.inputs[0]
        assert value is not None
        height, width = builder.shape(value)[2:]
        shape = builder.shape(output)
        size = (height, width)
        kernel, pads, strides = list(data.kernel), list(data.pads), list(data.strides)
        counts = []
        for axis in (0, 1):
            begin, _end = pads[axis], pads[axis + 2]
            if shape[2 + axis] == 1 and kernel[axis] - begin >= size[axis]:
                kernel[axis], pads[axis], pads[axis + 2], strides[axis] = size[axis], 0, 0, 1
                begin = 0
            starts = np.arange(shape[2 + axis]) * strides[axis] - begin
            counts.append(np.minimum(starts + kernel[axis], size[axis]) - np.maximum(starts, 0))
        pooled = builder.op(
            "AveragePool",
            value,
            kernel_shape=kernel,
            strides=strides,
            pads=pads,
            count_include_pad=1,
            shape=shape,
            dtype=builder.context.dtype(value),
        )
        if not any(pads):
            return (pooled,)
        factor = kernel[0] * kernel[1] / np.outer(counts[0], counts[1])
        full = np.broadcast_to(factor, shape).astype(builder.numpy_dtype(value))
        return (builder.op("Mul", pooled, builder.constant(full, "count")),)


def explicit_pads(
    node: ir.Node, before: tuple[int, ...], after: tuple[int, ...], context: RewriteContext
) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) of a 2-D pool or convolution, `auto_pad` worked out."""
    mode = context.attribute(node, "auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        top, left, bottom, right = context.attribute(node, "pads", (0, 0, 0, 0))
        return int(top), int(left), int(bottom), int(right)
    if mode == "VALID":
        return 0, 0, 0, 0
    kernel = context.attribute(node, "kernel_shape")
    strides = context.attribute(node, "strides", (1, 1))
    total = [max(0, (after[2 + axis] - 1) * strides[axis] + kernel[axis] - before[2 + axis]) for axis in (0, 1)]
    small = [pad // 2 for pad in total]
    large = [pad - half for pad, half in zip(total, small, strict=True)]
    begin, end = (small, large) if mode == "SAME_UPPER" else (large, small)
    return begin[0], begin[1], end[0], end[1]


def _floor_is_same(
    before: tuple[int, ...],
    after: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, int, int, int],
) -> bool:
    return all(
        (before[2 + axis] + pads[axis] + pads[axis + 2] - kernel[axis]) // strides[axis] + 1 == after[2 + axis]
        for axis in (0, 1)
    )


REWRITE = AveragePoolToInclusive()
