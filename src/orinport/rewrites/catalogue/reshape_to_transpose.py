"""`Reshape(Slice(x)) -> Transpose(Slice(x))`: reshapes beside slices and concatenations that only move ones.

## What it does
A reshape from four dimensions to four that does no more than put its dimensions of 1 elsewhere becomes a Transpose,
where it stands directly in front of a Slice, Split or Concat, or behind one.

## Why
The builder refuses a reshape directly beside a Slice or Concat; a transpose it takes there. Parsers before TensorRT 9
make a reshape of such a transpose again, so there nothing is won and nothing is changed.

## Example
`Slice` to `(1, 1, 16, 1)` and `Reshape` to `(1, 16, 1, 1)`: `Transpose(0, 2, 1, 3)`.

## Refused
Reshapes that join or split dimensions are left alone.

## Safety
exact: bit-equal.

## Source
Rows N05 and F01 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orinport.rewrites.catalogue._movers import shuffle_of
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ReshapeToTranspose"]


class ReshapeToTranspose(Rewrite):
    """Reshapes beside a Slice or Concat become transposes."""

    name = "reshape-to-transpose"
    safety = Safety.EXACT
    op_types = ("Concat", "Slice", "Split")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        parts = node.inputs if node.op_type == "Concat" else node.inputs[:1]
        front = {value: value.producer() for value in parts if value is not None}
        before = {value: mover for value, mover in front.items() if _order(mover, context) is not None}
        outputs: list[ir.Value] = []
        behind: list[ir.Node] = []
        for output in node.outputs:
            readers = context.consumers(output)
            movers = [each for each in readers if _order(each, context) is not None]
            behind += movers
            outputs += [each.outputs[0] for each in movers]
            if len(movers) < len(readers) or context.is_output(output):
                outputs.append(output)
        if not before and not behind:
            return None
        movers = [mover for mover in before.values() if mover is not None]
        return Match((node, *dict.fromkeys(movers), *behind), tuple(outputs), (before, tuple(behind)))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node, context = match.nodes[0], builder.context
        before, behind = match.data
        inputs = [_moved(before[value], builder) if value in before else value for value in node.inputs]
        attributes: dict[str, Any] = dict(node.attributes)
        first = builder.op(node.op_type, *inputs, outputs=len(node.outputs), **attributes)
        producer = first.producer()
        assert producer is not None
        made = dict(zip(node.outputs, producer.outputs, strict=True))
        results = dict(made)
        for mover in behind:
            perm = _order(mover, context)
            assert perm is not None
            results[mover.outputs[0]] = builder.transpose(made[mover.inputs[0]], perm)
        return [results[value] for value in match.outputs]


def _order(node: ir.Node | None, context: RewriteContext) -> tuple[int, ...] | None:
    """The order of dimensions that a Reshape gives, if it does no more than that."""
    shuffle = None if node is None or node.op_type == "Transpose" else shuffle_of(node, context)
    if node is None or shuffle is None or shuffle.is_identity or node.graph is not context.graph:
        return None
    return shuffle.permutation()


def _moved(mover: ir.Node | None, builder: Builder) -> ir.Value:
    perm = _order(mover, builder.context)
    assert mover is not None
    assert perm is not None
    value = mover.inputs[0]
    assert value is not None
    return builder.transpose(value, perm)


REWRITE = ReshapeToTranspose()
