"""`Conv((N, C, L)) -> Reshape(Conv((N, C, 1, L)))`: one-dimensional convolutions and pools on 4-D tensors.

## What it does
Conv, ConvTranspose, MaxPool, AveragePool and LpPool over one spatial dimension become the same over two, one of which
has length 1. The length lies along the width; where rows that long do not fit the convolution buffer, along the
height.

## Why
The DLA works on exactly two spatial dimensions. The parser makes a 4-D tensor of its own from a 3-D one, but the
reshapes that it adds change the rank, and the DLA refuses those.

## Example
`Conv((1, 64, 400), kernel 5)`: a convolution over `(1, 64, 1, 400)` with the kernel 1x5. Between two such
convolutions the reshapes cancel.

## Refused
Kernels that are known at run time only; a MaxPool whose indices are used; integers; lengths above the DLA's limit.

## Safety
exact: the same sums.

## Source
Rows C01, C12b, D01, G05, G15a and P01 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orinport.rewrites.catalogue._movers import absorb
from orinport.rewrites.limits import fits_buffer
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "WindowsTo4D"]

_WEIGHTED = ("Conv", "ConvTranspose")


class WindowsTo4D(Rewrite):
    """Windows over one dimension become windows over two."""

    name = "windows-to-4d"
    safety = Safety.EXACT
    op_types = (*_WEIGHTED, "AveragePool", "LpPool", "MaxPool")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value = node.inputs[0]
        shape, result = context.shape(value), context.shape(node.outputs[0])
        if value is None or context.rank(value) != 3:
            return None
        if shape is None or result is None or 0 in shape:
            return Refusal("the shape is not known" if shape is None or 0 not in shape else "it holds no elements")
        if not context.is_float(value):
            return Refusal(f"the DLA does not compute in {context.dtype(value)}")
        weights = context.input(node, 1) if node.op_type in _WEIGHTED else None
        if node.op_type in _WEIGHTED and not context.is_constant(weights):
            return Refusal("the kernel is known at run time only")
        if len(node.outputs) > 1 and (node.outputs[1].uses() or context.is_output(node.outputs[1])):
            return Refusal("the indices of MaxPool are used")
        limit = context.limit("G05", "max")
        if max(shape[1:] + result[1:]) > limit:
            return Refusal(f"a dimension of {max(shape[1:] + result[1:])} exceeds the DLA's limit of {limit}")
        tall = _is_tall(node, shape, context)
        board = (*shape[:2], shape[2], 1) if tall else (*shape[:2], 1, shape[2])
        source, into, movers = absorb(value, Shuffle.reshape(shape, board), context)
        return Match((node, *movers), (node.outputs[0],), (source, into, tall))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        context = builder.context
        source, into, tall = match.data
        inputs = [builder.shuffle(source, into)]
        if node.op_type in _WEIGHTED:
            kernel = context.constant(node.inputs[1])
            assert kernel is not None
            inputs.append(builder.constant(kernel[..., None] if tall else kernel[..., None, :], "weights"))
            inputs += [value for value in node.inputs[2:] if value is not None]
        result = builder.shape(match.outputs[0])
        made = builder.op(
            node.op_type,
            *inputs,
            shape=(*result[:2], result[2], 1) if tall else (*result[:2], 1, result[2]),
            dtype=context.dtype(match.outputs[0]),
            **_attributes(node, context, tall=tall),
        )
        return (builder.reshape(made, result),)


def _is_tall(node: ir.Node, shape: tuple[int, ...], context: RewriteContext) -> bool:
    """The length goes along the height: a row of the whole length is too long for the convolution buffer."""
    weights = context.shape(context.input(node, 1)) if node.op_type == "Conv" else None
    if weights is None or fits_buffer(context, shape[1], shape[2], (1, weights[2])):
        return False
    dilation = int(context.attribute(node, "dilations", (1,))[0])
    return fits_buffer(context, shape[1], 1, (weights[2], 1), dilation)


def _attributes(node: ir.Node, context: RewriteContext, *, tall: bool) -> dict[str, Any]:
    """The node's attributes with a second spatial dimension in which nothing happens."""
    result: dict[str, Any] = dict(node.attributes)
    for name, idle in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("output_padding", 0), ("pads", 0)):
        values = context.attribute(node, name)
        if values is None:
            continue
        result[name] = [each for value in values for each in ((value, idle) if tall else (idle, value))]
    sizes = context.attribute(node, "output_shape")
    if sizes is not None:
        result["output_shape"] = [sizes[-1], 1] if tall else [1, sizes[-1]]
    return result


REWRITE = WindowsTo4D()
