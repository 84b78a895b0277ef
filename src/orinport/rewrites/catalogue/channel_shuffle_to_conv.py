"""`Reshape(Transpose(Reshape(x))) -> Conv(x)`: channels in another order by a 1x1 convolution.

## What it does
A chain of shape movers, or a Gather with constant indices, that only puts channels into another order, picks some or
repeats some, becomes a 1x1 convolution whose weights are zero but for a single 1 in each row.

## Why
Shuffles wait for memory, and Gather is no layer of the DLA, while a convolution of this size costs nearly nothing and
fuses with its neighbours. In INT8, one range for input and output makes it exact.

## Example
The channel shuffle of ShuffleNet with 136 channels: 136x136 weights.

## Refused
What does not only rearrange channels is left alone; more channels than the convolution buffer takes are refused.

## Safety
tolerance: the same for finite numbers. Products by zero turn an infinity, or NaN, into NaN in all channels of its
pixel; tensors in INT8 hold neither. Without consent `rearrange-in-4d` and `gather-to-slices` do it bit by bit.

## Source
Rows C01, C10a and F03 of the acceptance catalogue.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._movers import MOVERS, chain_into
from orinport.rewrites.catalogue._selection import constant_indices
from orinport.rewrites.catalogue._windows import Window, build_conv
from orinport.rewrites.limits import fits_buffer
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext
    from orinport.rewrites.shuffle import Shuffle

__all__ = ["REWRITE", "ChannelShuffleToConv"]


class ChannelShuffleToConv(Rewrite):
    """A fixed choice of channels becomes a 1x1 convolution."""

    name = "channel-shuffle-to-conv"
    safety = Safety.TOLERANCE
    finite = True
    op_types = (*MOVERS, "Gather")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        found = _gather(node, context) if node.op_type == "Gather" else _movers(node, context)
        if found is None or isinstance(found, Refusal):
            return found
        source, order, nodes = found
        shape = context.shape(source)
        assert shape is not None
        if not context.is_float(source):
            return Refusal(f"the DLA does not compute in {context.dtype(source)}")
        if not fits_buffer(context, shape[1], shape[3]):
            return Refusal(f"{shape[1]} channels and rows of {shape[3]} do not fit the convolution buffer")
        return Match(nodes, (node.outputs[0],), (source, order))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        source, order = match.data
        weights = np.zeros((len(order), builder.shape(source)[1], 1, 1), builder.numpy_dtype(source))
        weights[np.arange(len(order)), order] = 1.0
        window = Window((1, 1), (1, 1), (0, 0), (0, 0), (1, 1))
        made = build_conv(builder, source, builder.constant(weights, "order"), None, window)
        return (builder.reshape(made, builder.shape(match.outputs[0])),)


_Found = tuple["ir.Value", "NDArray[np.int64]", tuple["ir.Node", ...]]


def _gather(node: ir.Node, context: RewriteContext) -> _Found | Refusal | None:
    source, indices = node.inputs[0], constant_indices(node, context)
    if source is None or context.rank(source) != 4 or int(context.attribute(node, "axis", 0)) % 4 != 1:
        return None
    return indices if isinstance(indices, Refusal) else (source, indices, (node,))


def _movers(node: ir.Node, context: RewriteContext) -> _Found | None:
    if context.rank(node.outputs[0]) != 4:
        return None
    chain = chain_into(node.outputs[0], context, rank=4)
    order = None if chain is None or len(chain[2]) < 2 else _channel_order(chain[1])
    return None if chain is None or order is None else (chain[0], order, chain[2])


def _channel_order(shuffle: Shuffle) -> NDArray[np.int64] | None:
    """Which channel of the input each channel of the result is; None if more than channels move."""
    sample = shuffle.without_batch()
    if sample is None or shuffle.keeps_order or shuffle.before != shuffle.shape:
        return None
    plane, last = prod(shuffle.before[2:]), len(sample.expand) - 1
    expand, perm = list(sample.expand), list(sample.perm)
    if plane > 1:
        if perm[-1] != last or expand[-1] % plane:
            return None
        expand[-1] //= plane
    order: NDArray[np.int64] = np.arange(shuffle.before[1]).reshape(expand).transpose(perm).reshape(-1)
    return order


REWRITE = ChannelShuffleToConv()
