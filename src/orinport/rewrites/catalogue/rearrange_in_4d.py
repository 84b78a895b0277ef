"""`Reshape(Transpose(Reshape(x)))` through five or six dimensions `->` the same through four: shuffles for the DLA.

## What it does
Channel shuffles, DepthToSpace, SpaceToDepth and other rearrangements that pass through tensors of another rank become
reshapes and transposes of which every step is 4-D and leaves the batch alone. The fewest transposes are looked for.

## Why
The DLA takes reshapes and transposes, but only of 4-D tensors and with C, H and W up to 8192.

## Example
The channel shuffle of ShuffleNet, `(1, 136, 28, 28)` in 4 groups, goes through `(1, 4, 34, 784)` in place of
`(1, 4, 34, 28, 28)`. DepthToSpace takes two transposes.

## Refused
A rearrangement that moves samples, or for which every way has a side above the limit.

## Safety
exact: bit-equal. `channel-shuffle-to-conv`, `depth-to-space-to-deconv` and `space-to-depth-to-conv` do the same as
layers that the DLA computes faster, for finite numbers.

## Source
Rows F01, F02 and F03 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._movers import MOVERS, chain_into
from orinport.rewrites.catalogue._rearrange import blocks_of, build_steps, plan_steps
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext
    from orinport.rewrites.shuffle import Shuffle

__all__ = ["REWRITE", "RearrangeIn4D"]


class RearrangeIn4D(Rewrite):
    """A rearrangement goes through 4-D tensors only."""

    name = "rearrange-in-4d"
    safety = Safety.EXACT
    op_types = (*MOVERS, "DepthToSpace", "SpaceToDepth")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        found = _blocks(node, context) if node.op_type not in MOVERS else _chain(node, context)
        if found is None or isinstance(found, Refusal):
            return found
        source, shuffle, nodes = found
        if shuffle.keeps_order:
            return None
        batch = shuffle.before[0]
        if shuffle.shape[0] != batch or shuffle.without_batch() is None:
            return Refusal("it moves elements from one sample to another")
        limit = int(context.limit("F01", "max"))
        steps = plan_steps(shuffle, limit)
        if steps is None:
            return Refusal(f"every way in four dimensions has a side above the DLA's limit of {limit}")
        return Match(nodes, (node.outputs[0],), (source, steps, shuffle.shape))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        source, steps, shape = match.data
        return (build_steps(builder, source, steps, shape),)


_Found = tuple["ir.Value", "Shuffle", tuple["ir.Node", ...]]


def _blocks(node: ir.Node, context: RewriteContext) -> _Found | Refusal:
    source, shuffle = node.inputs[0], blocks_of(node, context)
    if source is None or shuffle is None:
        return Refusal("the shape is not known, or holds no elements")
    return source, shuffle, (node,)


def _chain(node: ir.Node, context: RewriteContext) -> _Found | None:
    """The chain of movers from one 4-D tensor to another, if it passes through any that is not 4-D."""
    if context.rank(node.outputs[0]) != 4:
        return None
    chain = chain_into(node.outputs[0], context, rank=4)
    if chain is None or all(context.rank(mover.outputs[0]) == 4 for mover in chain[2]):
        return None
    return chain


REWRITE = RearrangeIn4D()
