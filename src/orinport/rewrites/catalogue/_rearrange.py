"""Shuffles of 4-D tensors as reshapes and transposes of which every step is 4-D and leaves the batch alone."""

from __future__ import annotations

from collections import deque
from itertools import permutations
from math import prod
from typing import TYPE_CHECKING

from orinport.rewrites.shuffle import Shuffle

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["Step", "blocks_of", "build_steps", "plan_steps"]

Order = tuple[int, ...]
Step = tuple[tuple[int, int, int], tuple[int, int, int]]
"""C, H and W of a view, and the order in which they are put."""

_AXES = 7
"""Axes of one sample up to which steps are looked for: 7 have 5,040 orders."""
_ORDERS = [order for order in permutations(range(3)) if order != (0, 1, 2)]


def plan_steps(shuffle: Shuffle, limit: int) -> tuple[Step, ...] | None:
    """The fewest transposes of C, H and W that do what `shuffle` does to each sample; None if there are none.

    Each regards the elements of a sample as a box whose sides are at most `limit`.
    """
    sample = shuffle.without_batch() if len(shuffle.before) == 4 == len(shuffle.shape) else None
    if sample is None or len(sample.expand) > _AXES:
        return None
    sizes, goal = sample.expand, sample.perm
    start: Order = tuple(range(len(sizes)))
    came: dict[Order, tuple[Order, Step] | None] = {start: None}
    queue = deque([start])
    while queue and goal not in came:
        now = queue.popleft()
        for then, step in _moves(now, sizes, limit):
            if then not in came:
                came[then] = now, step
                queue.append(then)
    if goal not in came:
        return None
    steps: list[Step] = []
    entry = came[goal]
    while entry is not None:
        steps.append(entry[1])
        entry = came[entry[0]]
    return tuple(reversed(steps))


def _moves(now: Order, sizes: tuple[int, ...], limit: int) -> Iterator[tuple[Order, Step]]:
    """Every order that one transpose of three blocks leads to."""
    count = len(now)
    for first in range(count):
        for second in range(first + 1, count + 1):
            blocks = (now[:first], now[first:second], now[second:])
            view = tuple(prod(sizes[axis] for axis in block) for block in blocks)
            if max(view) > limit:
                continue
            for order in _ORDERS:
                moved = tuple(axis for index in order for axis in blocks[index])
                if moved != now:
                    yield moved, ((view[0], view[1], view[2]), (order[0], order[1], order[2]))


def build_steps(builder: Builder, value: ir.Value, steps: tuple[Step, ...], shape: tuple[int, ...]) -> ir.Value:
    """`value` (N, C, H, W) put through `steps`, in `shape` at the end."""
    batch = builder.shape(value)[0]
    for view, order in steps:
        value = builder.reshape(value, (batch, *view))
        value = builder.transpose(value, (0, *(axis + 1 for axis in order)))
    return builder.reshape(value, shape)


def blocks_of(node: ir.Node, context: RewriteContext) -> Shuffle | None:
    """What DepthToSpace or SpaceToDepth does (DCR is ONNX's default mode); None if the shapes are not known."""
    before, after = context.shape(node.inputs[0]), context.shape(node.outputs[0])
    if before is None or after is None or len(before) != 4 or 0 in before:
        return None
    block = int(context.attribute(node, "blocksize"))
    batch, channels, height, width = before
    if node.op_type == "SpaceToDepth":
        expand = (batch, channels, height // block, block, width // block, block)
        perm = (0, 3, 5, 1, 2, 4) if context.attribute(node, "mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
        return Shuffle.make(before, expand, perm, after)
    rest = channels // block**2
    if context.attribute(node, "mode", "DCR") == "DCR":
        return Shuffle.make(before, (batch, block, block, rest, height, width), (0, 3, 4, 1, 5, 2), after)
    return Shuffle.make(before, (batch, rest, block, block, height, width), (0, 1, 4, 2, 5, 3), after)
