"""`Slice(Conv(x, [A; B])) -> Conv(x, A), Conv(x, B)`: a convolution that is only sliced becomes several.

## What it does
Where everything that reads a convolution, or the activations behind it, is a Slice or Split of its channels, each part
gets a convolution with its share of the weights, and activations of its own. It undoes fuse-parallel-convs.

## Why
In INT8 the DLA takes no Slice; in FP16 a part that does not begin at whole atoms of channels costs a copy. Applied
where it takes a Slice off the GPU, or the prediction says that it is faster.

## Example
The blocks of YOLOv8, `Split(SiLU(Conv(x)), (32, 32))`, in INT8: two convolutions with 32 output channels, each with its
SiLU.

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
        whole, steps = _activations(node.outputs[0], context)
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
        nodes = (node, *(each for step in steps for each in step), *slices)
        return Match(nodes, tuple(value for value, _, _ in parts), (window, tuple(parts), steps))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        window, parts, steps = match.data
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
            for step in steps:
                made = _again(step, made, builder)
            results.append(made)
        return results


_UNARY = frozenset(
    {
        "Clip",
        "Elu",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Mish",
        "Relu",
        "Selu",
        "Sigmoid",
        "Softplus",
        "Tanh",
    }
)


def _activations(value: ir.Value, context: RewriteContext) -> tuple[ir.Value, tuple[tuple[ir.Node, ...], ...]]:
    """What pointwise activations alone make of `value`, and those: one node, or one and the Mul by its own input."""
    steps: list[tuple[ir.Node, ...]] = []
    while not context.is_output(value):
        step = _activation(value, context)
        if step is None:
            break
        steps.append(step)
        value = step[-1].outputs[0]
    return value, tuple(steps)


def _activation(value: ir.Value, context: RewriteContext) -> tuple[ir.Node, ...] | None:
    readers = context.consumers(value)
    unary = next((each for each in readers if each.op_type in _UNARY and each.inputs[0] is value), None)
    if unary is None or any(each.graph is not context.graph or not context.standard(each) for each in readers):
        return None
    if any(each is not None and not context.is_constant(each) for each in unary.inputs[1:]):
        return None
    if len(readers) == 1:
        return (unary,)
    gate = context.only_consumer(unary.outputs[0])
    if len(readers) != 2 or gate is None or gate not in readers or gate.op_type != "Mul":
        return None
    return (unary, gate) if set(gate.inputs) == {value, unary.outputs[0]} else None


def _again(step: tuple[ir.Node, ...], value: ir.Value, builder: Builder) -> ir.Value:
    """The activation once more, on another value."""
    made = builder.copy(step[0], [value, *step[0].inputs[1:]], builder.shape(value))
    return made if len(step) == 1 else builder.op("Mul", value, made)


REWRITE = ConvSlicesToConvs()
