"""`Conv(x, kernel 65) -> Add(Conv(Slice(x)), Conv(Slice(x)), ...)`: kernels above the limit in parts.

## What it does
A kernel longer than 32, or dilated by more than 32, is cut into parts that are not. Each part is a convolution over the
rows and columns that it sees, and the results are added up. Padding stands before all of it, as a Pad.

## Why
The DLA's convolution takes kernels and dilations of up to 32.

## Example
`Conv((1, 8, 1, 400), kernel 1x65)`: convolutions with kernels 1x21, 1x22 and 1x22 over slices, and two additions.

## Refused
Kernels known at run time only; more parts than pay.

## Safety
exact: the same products in another order of summation.

## Source
Rows C02a and C05 of the acceptance catalogue; V03c for the Pad.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._slices import crop
from orinport.rewrites.catalogue._windows import Window, build_conv, conv_window, pad_zeros
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "SplitConvKernel"]


class SplitConvKernel(Rewrite):
    """Convolutions with large or widely dilated kernels become sums of smaller ones."""

    name = "split-conv-kernel"
    safety = Safety.EXACT
    op_types = ("Conv",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        window = conv_window(node, context)
        if window is None:
            return None
        longest, widest = context.limit("C02a", "max"), context.limit("C05", "max")
        if max(window.kernel) <= longest and max(window.dilations) <= widest:
            return None
        if not context.is_constant(node.inputs[1]):
            return Refusal("the kernel is known at run time only")
        parts = tuple(_parts(k, longest if d <= widest else 1) for k, d in _pairs(window))
        most = context.figure("convolution_parts", "max")
        count = len(parts[0]) * len(parts[1])
        if count > most:
            return Refusal(f"it would take {count} convolutions, and more than {most} do not pay")
        return Match((node,), (node.outputs[0],), (window, parts))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        window, parts = match.data
        value = node.inputs[0]
        stored = builder.context.constant(node.inputs[1])
        assert value is not None
        assert node.inputs[1] is not None
        assert stored is not None
        if len(parts[0]) == len(parts[1]) == 1:  # only the dilation of a single element is too wide
            plain = replace(window, dilations=tuple(d if k > 1 else 1 for k, d in _pairs(window)))
            group = int(builder.context.attribute(node, "group", 1))
            return (build_conv(builder, value, node.inputs[1], builder.context.input(node, 2), plain, group),)
        value = pad_zeros(value, window, builder) if window.padded else value
        size = builder.shape(match.outputs[0])[2:]
        bias, group = builder.context.input(node, 2), int(builder.context.attribute(node, "group", 1))
        total: ir.Value | None = None
        for rows, columns in product(*parts):
            starts, lengths, own = [], [], []
            for axis, (first, last) in enumerate((rows, columns)):
                own.append(window.dilations[axis] if last - first > 1 else 1)
                starts.append(first * window.dilations[axis])
                lengths.append((size[axis] - 1) * window.strides[axis] + (last - first - 1) * own[axis] + 1)
            seen = crop(value, starts, lengths, builder)
            weights = builder.constant(stored[:, :, rows[0] : rows[1], columns[0] : columns[1]], "weights")
            kernel = (rows[1] - rows[0], columns[1] - columns[0])
            small = Window(kernel, window.strides, (0, 0), (0, 0), (own[0], own[1]))
            made = build_conv(builder, seen, weights, bias if total is None else None, small, group)
            total = made if total is None else builder.op("Add", total, made)
        assert total is not None
        return (total,)


def _pairs(window: Window) -> list[tuple[int, int]]:
    """(kernel, dilation) of each axis."""
    return list(zip(window.kernel, window.dilations, strict=True))


def _parts(kernel: int, limit: int) -> tuple[tuple[int, int], ...]:
    """`kernel` elements in as few nearly equal parts as the limit allows: (first, end) of each."""
    count = -(-kernel // limit)
    bounds = [kernel * index // count for index in range(count + 1)]
    return tuple(pairwise(bounds))


REWRITE = SplitConvKernel()
