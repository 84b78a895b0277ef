"""Shape movers in a graph, read as shuffles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.rewrites.context import RewriteContext

__all__ = ["MOVERS", "chain_into", "shuffle_of"]

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


def chain_into(value: ir.Value, context: RewriteContext) -> tuple[ir.Value, Shuffle, tuple[ir.Node, ...]] | None:
    """The longest chain of shape movers that ends in `value` and is one shuffle: its source, what it does, its nodes.

    None if `value` does not come from a shape mover.
    """
    producer = value.producer()
    total = shuffle_of(producer, context)
    if producer is None or total is None or producer.graph is not context.graph:
        return None
    nodes = [producer]
    source = producer.inputs[0]
    while source is not None:
        earlier = source.producer()
        step = shuffle_of(earlier, context)
        if earlier is None or step is None or earlier.graph is not context.graph:
            break
        joined = step.then(total)
        if joined is None:
            break
        total = joined
        nodes.insert(0, earlier)
        source = earlier.inputs[0]
    assert source is not None
    return source, total, tuple(nodes)
