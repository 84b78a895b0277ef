"""`Conv(x, A), Conv(x, B) -> Split(Conv(x, [A; B]))`: convolutions of one tensor become one.

## What it does
Convolutions that read the same tensor with the same kernel, stride, padding and dilation become one with the output
channels of all; a Split gives each its part. A missing bias counts as zeros. Where each is followed by a ReLU alone,
that is done before the Split.

## Why
The input is read once, and the channels fill the convolution pipe better. It is applied only where the prediction says
that it is faster: slices that do not begin at whole atoms of channels cost copies.

## Example
The query, key and value projections of attention; box and class branches of a detection head.

## Refused
Another kernel, stride, padding or dilation; convolutions that conv-slices-to-convs took apart; groups; weights known at
run time only; more channels than the DLA's limit; a board whose times nothing predicts.

## Safety
exact: the same sums.

## Source
NVIDIA/Deep-Learning-Accelerator-SW, scripts/prepare_models, horizontal fusion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.builder import REWRITE as REWRITE_KEY
from orinport.rewrites.catalogue._slices import split
from orinport.rewrites.catalogue._windows import Window, build_conv, read_window
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "FuseParallelConvs"]


class FuseParallelConvs(Rewrite):
    """Convolutions of the same tensor become one, and slices of its result."""

    name = "fuse-parallel-convs"
    safety = Safety.EXACT
    op_types = ("Conv",)
    for_speed = True

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value = node.inputs[0]
        if value is None or context.rank(value) != 4:
            return None
        beside = [each for each in context.consumers(value) if _reads(each, value, context)]
        if len(beside) < 2 or node not in beside:
            return None
        if any(_was_apart(each) for each in beside):
            return Refusal("they were one before, and its slices cost more or do not run on the DLA at this place")
        window = _window(node, context)
        if window is None:
            return Refusal("it has groups, or weights, bias or shapes that are not known")
        relu = _relu(node, context)
        alike = [
            each
            for each in beside
            if _window(each, context) == window and (_relu(each, context) is None) == (relu is None)
        ]
        if len(alike) < 2:
            return Refusal("the convolutions beside it have another kernel, stride, padding, dilation or ReLU")
        limit = context.limit("C06", "max")
        total = sum(_outputs(each, context) for each in alike)
        if total > limit:
            return Refusal(f"together they have {total} output channels, more than the DLA's limit of {limit}")
        ends = [_relu(each, context) or each for each in alike]
        nodes = dict.fromkeys((*alike, *ends))
        return Match(tuple(nodes), tuple(end.outputs[0] for end in ends), (tuple(alike), window, relu is not None))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        alike, window, relu = match.data
        context = builder.context
        value = alike[0].inputs[0]
        kernels, biases = [], []
        for each in alike:
            kernel, bias = context.constant(each.inputs[1]), context.constant(context.input(each, 2))
            assert kernel is not None
            kernels.append(kernel)
            biases.append(np.zeros(kernel.shape[0], kernel.dtype) if bias is None else bias)
        weights = builder.constant(np.concatenate(kernels), "weights")
        joined = np.concatenate(biases)
        added = builder.constant(joined, "bias") if joined.any() else None
        made = build_conv(builder, value, weights, added, window)
        if relu:
            made = builder.op("Relu", made)
        return split(made, 1, [kernel.shape[0] for kernel in kernels], builder)


def _reads(node: ir.Node, value: ir.Value, context: RewriteContext) -> bool:
    if node.op_type != "Conv" or not context.standard(node) or node.graph is not context.graph:
        return False
    return node.inputs[0] is value and all(other is not value for other in node.inputs[1:])


def _was_apart(node: ir.Node) -> bool:
    """The convolution comes from one that was taken apart: joining it again would never end."""
    return "conv-slices-to-convs" in node.metadata_props.get(REWRITE_KEY, "").split(";")


def _window(node: ir.Node, context: RewriteContext) -> Window | None:
    """The window of a convolution that can be joined; None for any other."""
    shape, weights, bias = context.shape(node.inputs[0]), context.shape(node.inputs[1]), context.input(node, 2)
    if shape is None or weights is None or context.shape(node.outputs[0]) is None:
        return None
    if not context.is_constant(node.inputs[1]) or (bias is not None and not context.is_constant(bias)):
        return None
    if int(context.attribute(node, "group", 1)) != 1:
        return None
    return read_window(node, weights[2:], shape[2:], context)


def _relu(node: ir.Node, context: RewriteContext) -> ir.Node | None:
    """The ReLU that alone reads the convolution."""
    reader = context.only_consumer(node.outputs[0])
    return reader if reader is not None and reader.op_type == "Relu" and context.standard(reader) else None


def _outputs(node: ir.Node, context: RewriteContext) -> int:
    shape = context.shape(node.outputs[0])
    assert shape is not None
    return shape[1]


REWRITE = FuseParallelConvs()
