"""`Conv(Pad(x)) -> Conv(x, pads)`: zeros around a tensor become the padding of what reads it.

## What it does
A Pad of the height and width is added to the padding of the Conv, AveragePool or MaxPool behind it. An average pool
counts the padding from then on, as it counted the zeros. For a max pool the padding must not be able to win: minus
infinity, or zeros around values that are never negative.

## Why
The DLA has no Pad, but every convolution and pool pads on its own.

## Example
`Conv(Pad(x, 3), kernel 7x7, strides 2)`, as TensorFlow exports ResNet: a convolution with pads `(3, 3, 3, 3)`.

## Refused
Modes other than constant; other values than zero; padding of the batch or the channels; padding that takes away; pads
known at run time only; an average pool that leaves padding of its own out of the count; a max pool over values that may
be negative; padding as large as the window.

## Safety
exact: bit-equal.

## Source
ONNX operator specification, Pad; rows C03a, P03a and X05 of the acceptance catalogue.
"""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING, Any

from orinport.rewrites.catalogue._windows import Window, read_window
from orinport.rewrites.catalogue.conv_pads_to_pad import pads_too_much
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "FusePad", "all_padding_of", "moves_into_readers", "pad_value", "padding_of", "shape_to_pad"]

_NEVER_NEGATIVE = frozenset({"Abs", "Relu", "Sigmoid", "Softmax"})


class FusePad(Rewrite):
    """Pad becomes the padding of the convolution or pool behind it."""

    name = "fuse-pad"
    safety = Safety.EXACT
    op_types = ("AveragePool", "Conv", "MaxPool")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        padded = node.inputs[0]
        pad = None if padded is None else padded.producer()
        if padded is None or pad is None or pad.op_type != "Pad" or not context.standard(pad):
            return None
        if pad.graph is not context.graph or context.is_constant(pad.inputs[0]):
            return None
        shape, before, after = (context.shape(value) for value in (pad.inputs[0], padded, node.outputs[0]))
        if shape is None or before is None or after is None:
            return Refusal("the shape is not known")
        added = padding_of(pad, len(shape), context)
        if isinstance(added, Refusal):
            return added
        kernel = _kernel(node, context)
        if kernel is None:
            return Refusal("the kernel's shape is not known")
        window = read_window(node, kernel, before[2:], context)
        refusal = _unfit(node, pad, window, context)
        if refusal is not None:
            return refusal
        total = [own + more for own, more in zip(window.pads, added, strict=True)]
        joined = window.with_pads(tuple(total[: len(kernel)]), tuple(total[len(kernel) :]))
        if node.op_type == "Conv" and pads_too_much(joined, context):
            return Refusal("the padding would be as large as the kernel, which the DLA does not take")
        if node.op_type != "Conv" and any(pad >= kernel[axis % len(kernel)] for axis, pad in enumerate(total)):
            return Refusal("the padding is as large as the window")
        return Match((node, pad), (node.outputs[0],), total)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, pad = match.nodes
        attributes: dict[str, Any] = dict(node.attributes)
        attributes.pop("auto_pad", None)
        attributes["pads"] = match.data
        if node.op_type == "AveragePool":
            attributes["count_include_pad"] = 1
        output = match.outputs[0]
        return (
            builder.op(
                node.op_type,
                pad.inputs[0],
                *node.inputs[1:],
                shape=builder.shape(output),
                dtype=builder.context.dtype(output),
                **attributes,
            ),
        )


def shape_to_pad(pad: ir.Node, context: RewriteContext, modes: Sequence[str]) -> tuple[int, ...] | Refusal | None:
    """The shape of what a Pad in one of these modes pads on the DLA; None if it is not one of them, or a constant."""
    value = pad.inputs[0]
    if context.attribute(pad, "mode", "constant") not in modes or value is None or context.is_constant(value):
        return None
    shape = context.shape(value)
    if shape is None or len(shape) != 4 or 0 in shape:
        return Refusal("the DLA takes rank 4, and no empty or unknown shape")
    if not context.is_float(value):
        return Refusal(f"the DLA does not compute in {context.dtype(value)}")
    return shape


def padding_of(
    pad: ir.Node, rank: int, context: RewriteContext, modes: Sequence[str] = ("constant",)
) -> tuple[int, ...] | Refusal:
    """Padding of the spatial dimensions in one of `modes`: those before, then those after."""
    total = all_padding_of(pad, rank, context, modes)
    if isinstance(total, Refusal):
        return total
    if any(total[:2]) or any(total[rank : rank + 2]):
        return Refusal("it pads the batch or the channels")
    return (*total[2:rank], *total[rank + 2 :])


def all_padding_of(pad: ir.Node, rank: int, context: RewriteContext, modes: Sequence[str]) -> tuple[int, ...] | Refusal:
    """Padding of all dimensions in one of `modes`: those before, then those after."""
    if context.attribute(pad, "mode", "constant") not in modes:
        return Refusal(f"it pads in {context.attribute(pad, 'mode')} mode")
    axes = list(range(rank))
    if context.opset < 11:
        given = context.attribute(pad, "pads")
    else:
        values = context.constant(context.input(pad, 1))
        given = None if values is None else values.reshape(-1)
        chosen = context.input(pad, 3)
        numbers = context.constant(chosen)
        if chosen is not None:
            given = None if numbers is None else given
            axes = [] if numbers is None else [int(axis) % rank for axis in numbers.reshape(-1)]
    if given is None:
        return Refusal("the padding is known at run time only")
    total = [0] * (2 * rank)
    for index, axis in enumerate(axes):
        total[axis], total[rank + axis] = int(given[index]), int(given[len(axes) + index])
    if min(total) < 0:
        return Refusal("it takes rows or columns away")
    return tuple(total)


def pad_value(pad: ir.Node, context: RewriteContext) -> float | None:
    """What it pads with; None if that is known at run time only."""
    if context.opset < 11:
        return float(context.attribute(pad, "value", 0.0))
    given = context.input(pad, 2)
    if given is None:
        return 0.0
    values = context.constant(given)
    return None if values is None else float(values.reshape(-1)[0]) if values.size else 0.0


def moves_into_readers(pad: ir.Node, context: RewriteContext) -> bool:
    """Every reader of the Pad can pad on its own instead."""
    readers = context.consumers(pad.outputs[0])
    if not readers or context.is_output(pad.outputs[0]):
        return False
    return all(
        reader.graph is context.graph
        and context.standard(reader)
        and reader.op_type in FusePad.op_types
        and isinstance(REWRITE.match(reader, context), Match)
        for reader in readers
    )


def _kernel(node: ir.Node, context: RewriteContext) -> tuple[int, ...] | None:
    if node.op_type != "Conv":
        return tuple(int(size) for size in context.attribute(node, "kernel_shape"))
    weights = context.shape(node.inputs[1])
    return None if weights is None else weights[2:]


def _unfit(node: ir.Node, pad: ir.Node, window: Window, context: RewriteContext) -> Refusal | None:
    """Why the operator's own padding is not the same as what Pad puts there."""
    number = pad_value(pad, context)
    if number is None:
        return Refusal("what it pads with is known at run time only")
    if node.op_type == "MaxPool":
        if len(node.outputs) > 1 and (node.outputs[1].uses() or context.is_output(node.outputs[1])):
            return Refusal("the indices of MaxPool are used")
        if isinf(number) and number < 0:
            return None
        source = pad.inputs[0]
        producer = None if source is None else source.producer()
        never = producer is not None and context.standard(producer) and producer.op_type in _NEVER_NEGATIVE
        return None if number == 0.0 and never else Refusal("the padding could be the maximum")
    if number != 0.0:
        return Refusal(f"it pads with {number:g}, and the DLA with zeros")
    if node.op_type == "AveragePool" and window.padded and not context.attribute(node, "count_include_pad", 0):
        return Refusal("the pool leaves padding of its own out of the count")
    return None


REWRITE = FusePad()
