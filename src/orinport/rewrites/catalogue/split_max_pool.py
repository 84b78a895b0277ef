"""`MaxPool(x, 13x13) -> MaxPool(MaxPool(MaxPool(x, 5x5), 5x5), 5x5)`: large max pools as cascades of small ones.

## What it does
A max pool whose window or padding is above the DLA's limit becomes a chain of pools whose windows add up to it; a
stride is taken as early as it divides. Max pools of stride 1 that read the same tensor share the chain: each goes on
from the next smaller one.

## Why
The DLA pools over windows of at most 8 x 8 with padding of at most 7.

## Example
Spatial pyramid pooling with 5x5, 9x9 and 13x13, each padded to the same size: three 5x5 pools in a row.

## Refused
Dilated pools; pools whose indices are used; integers.

## Safety
exact: bit-equal; padding never wins a maximum.

## Source
Rows P02, P03a and P04 of the acceptance catalogue; WongKinYiu/yolov7 pull request 2150 for the pyramid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._windows import read_window
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "SplitMaxPool"]


@dataclass(frozen=True, slots=True)
class _Pass:
    """A max pool along one axis; `begin` and `end` are its padding."""

    kernel: int
    stride: int
    begin: int
    end: int

    def result(self, size: int) -> int:
        return (size + self.begin + self.end - self.kernel) // self.stride + 1


_IDLE = _Pass(1, 1, 0, 0)


@dataclass(frozen=True, slots=True)
class _Pool:
    """A pool of the network: one pass for each axis, rounded down."""

    node: ir.Node
    passes: tuple[_Pass, _Pass]


class SplitMaxPool(Rewrite):
    """Max pools above the limits become chains of smaller ones."""

    name = "split-max-pool"
    safety = Safety.EXACT
    op_types = ("MaxPool",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        value = node.inputs[0]
        if value is None or context.rank(value) != 4:
            return None
        if context.shape(value) is None or context.shape(node.outputs[0]) is None:
            return Refusal("the shape is not known")
        if not _too_large(node, context):
            return None
        if not context.is_float(value):
            return Refusal(f"pools do not take {context.dtype(value)}")
        if _indices_used(node, context):
            return Refusal("the indices of MaxPool are used")
        pool = _read(node, context)
        if pool is None:
            return Refusal("the window is dilated or sees padding alone")
        others = [_read(each, context) for each in context.consumers(value) if _shares(each, value, context)]
        known = sorted(
            {each.node: each for each in (pool, *others) if each is not None}.values(),
            key=lambda each: (max(p.kernel for p in each.passes), each.node is not node),
        )
        chain = _chain(pool, known)
        return Match(tuple(each.node for each in chain), tuple(each.node.outputs[0] for each in chain), chain)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        results: list[ir.Value] = []
        before: _Pool | None = None
        value = match.nodes[0].inputs[0]
        assert value is not None
        for pool in match.data:
            rest = pool.passes if before is None else _beyond(pool, before)
            assert rest is not None
            value = _cascade(value, rest, builder)
            results.append(value)
            before = pool
        return tuple(results)


def _too_large(node: ir.Node, context: RewriteContext) -> bool:
    kernel = context.attribute(node, "kernel_shape")
    pads = context.attribute(node, "pads", (0,))
    return bool(max(kernel) > context.limit("P02", "max") or max(pads) > context.limit("P03a", "max"))


def _indices_used(node: ir.Node, context: RewriteContext) -> bool:
    return len(node.outputs) > 1 and bool(node.outputs[1].uses() or context.is_output(node.outputs[1]))


def _shares(node: ir.Node, value: ir.Value, context: RewriteContext) -> bool:
    """A pool of stride 1 beside the one that is split."""
    return (
        node.op_type == "MaxPool"
        and context.standard(node)
        and node.graph is context.graph
        and node.inputs[0] is value
        and context.shape(node.outputs[0]) is not None
        and not _indices_used(node, context)
    )


def _read(node: ir.Node, context: RewriteContext) -> _Pool | None:
    before, after = context.shape(node.inputs[0]), context.shape(node.outputs[0])
    assert before is not None
    assert after is not None
    window = read_window(node, tuple(context.attribute(node, "kernel_shape")), before[2:], context)
    if window.dilations != (1, 1):
        return None
    passes = []
    for axis in range(2):
        kernel, stride, begin = window.kernel[axis], window.strides[axis], window.begin[axis]
        reach = (after[2 + axis] - 1) * stride + kernel - before[2 + axis] - begin
        if begin >= kernel or reach >= kernel:
            return None
        passes.append(_Pass(kernel, stride, begin, max(0, reach)))
    return _Pool(node, (passes[0], passes[1]))


def _chain(pool: _Pool, known: Sequence[_Pool]) -> tuple[_Pool, ...]:
    """Pools of which each goes on from the one before, `pool` among them."""
    chain = [pool]
    place = known.index(pool)
    for smaller in reversed(known[:place]):
        if _beyond(chain[0], smaller) is not None:
            chain.insert(0, smaller)
    for larger in known[place + 1 :]:
        if _beyond(larger, chain[-1]) is not None:
            chain.append(larger)
    return tuple(chain)


def _beyond(pool: _Pool, before: _Pool) -> tuple[_Pass, _Pass] | None:
    """What is left to do for `pool` on the result of `before`; None if that result is of no use."""
    rest = []
    for whole, part in zip(pool.passes, before.passes, strict=True):
        left = _Pass(whole.kernel - part.kernel + 1, 1, whole.begin - part.begin, whole.end - part.end)
        if whole.stride != 1 or part.stride != 1 or left.kernel < 1 or min(left.begin, left.end) < 0:
            return None
        if max(left.begin, left.end) >= left.kernel:
            return None
        rest.append(left)
    return None if rest == [_IDLE, _IDLE] else (rest[0], rest[1])


def _cascade(value: ir.Value, passes: tuple[_Pass, _Pass], builder: Builder) -> ir.Value:
    limit = builder.context.limit("P02", "max")
    size = builder.shape(value)[2:]
    plans = [_split(each, length, limit) for each, length in zip(passes, size, strict=True)]
    count = max(map(len, plans))
    rows, columns = ((*plan, *[_IDLE] * (count - len(plan))) for plan in plans)
    for row, column in zip(rows, columns, strict=True):
        batch, channels, height, width = builder.shape(value)
        value = builder.op(
            "MaxPool",
            value,
            kernel_shape=[row.kernel, column.kernel],
            strides=[row.stride, column.stride],
            pads=[row.begin, column.begin, row.end, column.end],
            shape=(batch, channels, row.result(height), column.result(width)),
            dtype=builder.context.dtype(value),
        )
    return value


def _split(whole: _Pass, size: int, limit: int) -> tuple[_Pass, ...]:
    """The passes that make up `whole` over `size` elements, each with a window within the limit."""
    if whole.kernel <= limit:
        return (whole,)
    for stride in range(min(limit, whole.stride), 1, -1):
        kernel = next((k for k in range(limit, stride - 1, -1) if (whole.kernel - k) % stride == 0), None)
        if whole.stride % stride == 0 and kernel is not None:
            return _strided(whole, size, kernel, stride, limit)
    count = -(-(whole.kernel - 1) // (limit - 1))
    reach = -(-(whole.kernel - 1) // count)
    begin, end = (-(-reach * pad // (whole.kernel - 1)) for pad in (whole.begin, whole.end))
    first = _Pass(reach + 1, 1, begin, end)
    rest = _Pass(whole.kernel - reach, whole.stride, whole.begin - begin, whole.end - end)
    return (first, *_split(rest, first.result(size), limit))


def _strided(whole: _Pass, size: int, kernel: int, stride: int, limit: int) -> tuple[_Pass, ...]:
    """A first pass of `stride`, padded at the end so that no element is dropped, and the rest."""
    left, step = (whole.kernel - kernel) // stride + 1, whole.stride // stride
    before = max(0, -(-(whole.begin - kernel + 1) // stride))
    begin = whole.begin - before * stride
    last = (whole.result(size) - 1) * step - before
    windows = (size + begin - kernel) // stride + 1
    if windows < last + left:
        windows = max(1, -(-(size + begin - kernel) // stride) + 1, last + 1)
    first = _Pass(kernel, stride, begin, max(0, (windows - 1) * stride + kernel - size - begin))
    rest = _Pass(left, step, before, max(0, last + left - windows))
    return (first, *_split(rest, windows, limit))


REWRITE = SplitMaxPool()
