"""`Slice(Conv(x, [A; B])) -> Conv(x, A), Conv(x, B)`: a convolution that is only sliced becomes several.

## What it does
Where everything that reads a convolution, or the ReLU behind it, is a Slice or Split of its channels, each part gets a
convolution with its share of the weights. It undoes fuse-parallel-convs.

## Why
In INT8 the DLA takes no Slice; in FP16 a part that does not begin at whole atoms of channels costs a copy. Applied
where it takes a Slice off the GPU, or the prediction says that it is faster.

## Example
`Split(Conv(x), (10, 54))` in INT8: two convolutions with 10 and 54 output channels.

## Refused
Groups; weights or bias known at run time only; a result that something else reads too is left alone.

## Safety
exact: the same sums.

## Source
Rows V01b and V08b of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._slices import channel_parts
from orinport.rewrites.catalogue._windows import build_conv, read_window
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ConvSlicesToConvs"]


class ConvSlicesToConvs(Rewrite):
    """A convolution that is only sliced becomes one for each slice."""

    name = "conv-slices-to-convs"
    safety = Safety.EXACT
    op_types = ("Conv",)
    for_speed = True

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        shape, weights = context.shape(node.inputs[0]), context.shape(node.inputs[1])
        if shape is None or weights is None or len(shape) != 4:
            return None
        relu = context.only_consumer(node.outputs[0])
        if relu is not None and (relu.op_type != "Relu" or not context.standard(relu)):
            relu = None
        whole = node.outputs[0] if relu is None else relu.outputs[0]
        slices = context.consumers(whole)
        if not slices or context.is_output(whole) or any(each.graph is not context.graph for each in slices):
            return None
        parts = []
        for each in slices:
            found = channel_parts(each, context) if each.inputs[0] is whole else None
            if found is None:
                return None
            parts += found
        if int(context.attribute(node, "group", 1)) != 1:
            return Refusal("it has groups")
        bias = context.input(node, 2)
        if not context.is_constant(node.inputs[1]) or (bias is not None and not context.is_constant(bias)):
            return Refusal("its weights or bias are known at run time only")
        window = read_window(node, weights[2:], shape[2:], context)
        nodes = (node, *(() if relu is None else (relu,)), *slices)
        return Match(nodes, tuple(value for value, _, _ in parts), (window, tuple(parts), relu is not None))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        window, parts, relu = match.data
        stored, added = (
            builder.context.constant(node.inputs[1]),
            builder.context.constant(builder.context.input(node, 2)),
        )
        value = node.inputs[0]
        assert value is not None
        assert stored is not None
        results = []
        for _, start, end in parts:
            weights = builder.constant(stored[start:end], "weights")
            bias = None if added is None else builder.constant(added[start:end], "bias")
            made = build_conv(builder, value, weights, bias, window)
            results.append(builder.op("Relu", made) if relu else made)
        return results


REWRITE = ConvSlicesToConvs()
