"""`Reshape(Transpose(Reshape(x))) -> x, or one mover`: chains of shape movers become as short as they can.

## What it does
Reshape, Flatten, Squeeze, Unsqueeze and Transpose in a row are composed into one rearrangement. If it is none, the
chain goes away; if it can be had with fewer nodes, it is written again.

## Why
Each mover is a shuffle layer, and one whose rank is not 4 is refused: a pair that cancels costs two loadables for
nothing.

## Example
`Reshape((1, 2048) -> (1, 2048, 1, 1))` after `Flatten((1, 2048, 1, 1))`: both go away.

## Refused
A chain of movers that does not compose, or is as short as it can be, is left alone.

## Safety
exact: bit-equal.

## Source
Rows F01 and F02 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._movers import MOVERS, chain_into
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext
    from orinport.rewrites.shuffle import Shuffle

__all__ = ["REWRITE", "MergeShapeMovers"]


class MergeShapeMovers(Rewrite):
    """A chain of shape movers becomes the shortest that does the same."""

    name = "merge-shape-movers"
    safety = Safety.EXACT
    op_types = MOVERS

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        output = node.outputs[0]
        chain = chain_into(output, context)
        if chain is None:
            return None
        source, total, nodes = chain
        if len(total.steps()) >= _alone(nodes, context) or _leaves_four(source, total, nodes, context):
            return None
        return Match(nodes, (output,), (source, total))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        source, total = match.data
        return (builder.shuffle(source, total),)


def _leaves_four(source: ir.Value, total: Shuffle, nodes: Sequence[ir.Node], context: RewriteContext) -> bool:
    """The chain stays 4-D all the way, as the DLA rearranges, and the shorter one would not."""
    if context.rank(source) != 4 or any(context.rank(mover.outputs[0]) != 4 for mover in nodes):
        return False
    return any(len(numbers) != 4 for _, numbers in total.steps())


def _alone(nodes: Sequence[ir.Node], context: RewriteContext) -> int:
    """How many of the chain go away with its last: those behind the last that something else reads."""
    count = 1
    for mover in reversed(nodes[:-1]):
        if context.only_consumer(mover.outputs[0]) is None:
            break
        count += 1
    return count


REWRITE = MergeShapeMovers()
