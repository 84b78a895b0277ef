"""Shape movers in a graph, read as shuffles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.rewrites.context import RewriteContext

__all__ = ["MOVERS", "absorb", "chain_from", "chain_into", "shuffle_of"]

MOVERS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose")


def shuffle_of(node: ir.Node | None, context: RewriteContext) -> Shuffle | None:
    """What a shape mover does, if it is one whose shapes are known and hold elements."""
    if node is None or node.op_type not in MOVERS or not context.standard(node) or not node.inputs:
        return None
    before, after = context.shape(node.inputs[0]), context.shape(node.outputs[0])
    if before is None or after is None or 0 in before or context.is_constant(node.inputs[0]):
        return None
    if node.op_type == "Transpose":
        perm = context.attribute(node, "perm", tuple(reversed(range(len(before)))))
        return Shuffle.transpose(before, perm)
    return Shuffle.reshape(before, after)


def chain_into(
    value: ir.Value, context: RewriteContext, *, rank: int | None = None
) -> tuple[ir.Value, Shuffle, tuple[ir.Node, ...]] | None:
    """The longest chain of shape movers that ends in `value` and is one shuffle: its source, what it does, its nodes.

    With `rank` the source has that many dimensions. None if there is no such chain.
    """
    found: tuple[ir.Value, Shuffle, tuple[ir.Node, ...]] | None = None
    total: Shuffle | None = None
    nodes: tuple[ir.Node, ...] = ()
    source: ir.Value | None = value
    while source is not None:
        mover = source.producer()
        step = shuffle_of(mover, context)
        if mover is None or step is None or mover.graph is not context.graph:
            break
        total = step if total is None else step.then(total)
        source = mover.inputs[0]
        if total is None or source is None:
            break
        nodes = (mover, *nodes)
        if rank is None or context.rank(source) == rank:
            found = source, total, nodes
    return found


def chain_from(value: ir.Value, rank: int, context: RewriteContext) -> tuple[Shuffle, tuple[ir.Node, ...]] | None:
    """The chain of shape movers that alone reads `value`, up to the first result of `rank` dimensions; else None."""
    total: Shuffle | None = None
    nodes: list[ir.Node] = []
    while True:
        mover = context.only_consumer(value)
        step = shuffle_of(mover, context)
        if mover is None or step is None or mover.inputs[0] is not value:
            return None
        total = step if total is None else total.then(step)
        if total is None:
            return None
        nodes.append(mover)
        if len(step.shape) == rank:
            return total, tuple(nodes)
        value = mover.outputs[0]


def absorb(value: ir.Value, into: Shuffle, context: RewriteContext) -> tuple[ir.Value, Shuffle, tuple[ir.Node, ...]]:
    """Where to read from so that `into` costs least: source, shuffle from there, and the movers that it makes up for.

    The movers belong into the match, or the proof could not tell that the source and `value` depend on each other.
    """
    chain = chain_into(value, context)
    if chain is not None:
        source, moved, nodes = chain
        total = moved.then(into)
        if total is not None and len(total.steps()) <= len(into.steps()):
            return source, total, nodes
    return value, into, ()
