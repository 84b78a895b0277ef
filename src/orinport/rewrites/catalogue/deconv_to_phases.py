"""`ConvTranspose(x, strides 2) -> Transpose(Concat(Conv(x), Conv(x), Conv(x), Conv(x)))`: upsampling phase by phase.

## What it does
With stride s, every s-th row and column of a deconvolution is a convolution of its own, over the taps of the kernel
that fall there. The convolutions of all phases are concatenated as channels, and 4-D transposes put rows and columns in
their places. Padding and groups become those of the convolutions.

## Why
The DLA takes deconvolutions without padding and in one group only, and in INT8 no Slice that could cut a border off.
There are as many products as before, and none by zero.

## Example
`ConvTranspose((1, 64, 20, 20), kernel 4x4, strides 2, pads 1)`: four 2x2 convolutions, a Concat, two transposes. A
bilinear upsampling, which has as many groups as channels: four depthwise convolutions.

## Refused
Dilation; a stride above the kernel, where some phases hold the bias alone; an output that is no multiple of the stride;
output padding past the last product; more phases than pay; transposes with dimensions above the DLA's limit; kernels or
biases known at run time only.

## Safety
exact: the same sums.

## Source
Rows D06a, D07a, F01, N05 and V01b of the acceptance catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._rearrange import Step, build_steps, plan_steps
from orinport.rewrites.catalogue._windows import Window, build_conv
from orinport.rewrites.catalogue.conv_pads_to_pad import pads_too_much
from orinport.rewrites.catalogue.conv_transpose_to_unpadded import Deconvolution, unfit_deconvolution
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "DeconvToPhases"]

_JOINTS = frozenset({"Concat", "Slice", "Split"})
_PLAIN = Window((1, 1), (1, 1), (0, 0), (0, 0), (1, 1))


@dataclass(frozen=True, slots=True)
class _Phase:
    """Along one axis: the taps of the kernel in the order of what they read, and the padding they need."""

    taps: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class _Data:
    deconvolution: Deconvolution
    rows: tuple[_Phase, ...]
    columns: tuple[_Phase, ...]
    steps: tuple[Step, ...]


class DeconvToPhases(Rewrite):
    """A deconvolution becomes a convolution for each phase of its stride."""

    name = "deconv-to-phases"
    safety = Safety.EXACT
    op_types = ("ConvTranspose",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        before, after = context.shape(node.inputs[0]), context.shape(node.outputs[0])
        found = unfit_deconvolution(node, context)
        if found is None or before is None or after is None or found[0].strides == (1, 1):
            return None
        data = found[0]
        bias = context.input(node, 2)
        if not context.is_constant(node.inputs[1]) or (bias is not None and not context.is_constant(bias)):
            return Refusal("the kernel or the bias is known at run time only")
        if data.dilations != (1, 1):
            return Refusal("it is dilated")
        if any(size % stride for size, stride in zip(after[2:], data.strides, strict=True)):
            return Refusal(f"{after[2]} x {after[3]} is no multiple of the stride {list(data.strides)}")
        most = context.figure("deconvolution_phases", "max")
        if prod(data.strides) > most:
            return Refusal(f"it would take {prod(data.strides)} convolutions, and more than {most} do not pay")
        rows, columns = (_phases(data, axis, before[2 + axis], after[2 + axis]) for axis in range(2))
        if rows is None or columns is None:
            return Refusal("a phase of the stride meets no tap of the kernel, or reads too far to either side")
        if any(pads_too_much(_window(row, column), context) for row, column in product(rows, columns)):
            return Refusal("a phase needs padding as large as its part of the kernel")
        steps = plan_steps(_interleave(data, after), context.limit("G05", "max"))
        if steps is None:
            return Refusal(f"the rearrangement has a dimension above the DLA's limit of {context.limit('G05', 'max')}")
        return Match((node,), (node.outputs[0],), _Data(data, rows, columns, steps))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, data = match.nodes[0], match.data
        group = data.deconvolution.group
        value, stored, bias = node.inputs[0], builder.context.constant(node.inputs[1]), builder.context.input(node, 2)
        assert value is not None
        assert stored is not None
        channels, each = stored.shape[:2]
        results = []
        for row, column in product(data.rows, data.columns):
            taps = stored[:, :, row.taps][:, :, :, column.taps]
            grouped = taps.reshape(group, channels // group, each, *taps.shape[2:])
            kernel = np.swapaxes(grouped, 1, 2).reshape(group * each, channels // group, *taps.shape[2:])
            weights = builder.constant(kernel, "weights")
            results.append(build_conv(builder, value, weights, bias, _window(row, column), group))
        joined = builder.op("Concat", *results, axis=1)
        output = match.outputs[0]
        made = build_steps(builder, _apart(joined, builder), data.steps, builder.shape(output))
        joints = any(reader.op_type in _JOINTS for reader in builder.context.consumers(output))
        return (_apart(made, builder) if joints else made,)


def _apart(value: ir.Value, builder: Builder) -> ir.Value:
    """The value through a depthwise convolution of ones: no reshape may stand next to a Slice or Concat (N05)."""
    channels = builder.shape(value)[1]
    ones = builder.constant(np.ones((channels, 1, 1, 1), builder.numpy_dtype(value)), "ones")
    return build_conv(builder, value, ones, None, _PLAIN, channels)


def _phases(data: Deconvolution, axis: int, size: int, result: int) -> tuple[_Phase, ...] | None:
    """One phase for each remainder of the stride; None if there is one without taps, or one that would have to crop.

    Row m of phase r is row s m + r of the result; tap t reads row m + (r + b - t) / s, b rows being cut off before.
    """
    stride, found = data.strides[axis], []
    for remainder in range(stride):
        place = remainder + data.begin[axis]
        taps = [tap for tap in range(data.kernel[axis]) if (place - tap) % stride == 0]
        if not taps:
            return None
        first, last = (place - taps[-1]) // stride, (place - taps[0]) // stride
        end = result // stride - 1 + last - (size - 1)
        if first > 0 or end < 0:
            return None
        found.append(_Phase(tuple(reversed(taps)), -first, end))
    return tuple(found)


def _window(row: _Phase, column: _Phase) -> Window:
    kernel = (len(row.taps), len(column.taps))
    return Window(kernel, (1, 1), (row.begin, column.begin), (row.end, column.end), (1, 1))


def _interleave(data: Deconvolution, after: tuple[int, ...]) -> Shuffle:
    """From the phases as channels, (N, s s C, H, W), to (N, C, s H, s W)."""
    batch, channels, height, width = after
    tall, wide = data.strides
    rows, columns = height // tall, width // wide
    before = (batch, tall * wide * channels, rows, columns)
    return Shuffle.make(before, (batch, tall, wide, channels, rows, columns), (0, 3, 4, 1, 5, 2), after)


REWRITE = DeconvToPhases()
