"""`RNN(x) -> Tanh(Add(Conv(x), Conv(h)))` for each step: a simple recurrent layer unrolled.

## What it does
One 1x1 convolution projects all steps of the sequence and is split into them. Each step adds the 1x1 convolution of the
state before and applies the activation. The states are joined for Y, the last one is Y_h. Forward, reverse and
bidirectional, with or without initial state, either layout, all images of a batch.

## Why
The DLA has no loops. Its length is fixed when the network is built, and then a recurrence is a chain of layers that the
DLA takes.

## Example
`RNN((8, 1, 32), hidden 64)`: a convolution to 64 channels over 1x8 positions, a Split, and 7 times Conv, Add, Tanh.

## Refused
Weights known at run time only; `sequence_lens` below the full length; `clip`; activations other than Sigmoid, Tanh and
Relu; sequences that unrolled exceed the limit of nodes; dimensions above the DLA's limit.

## Safety
exact: the same products and activations, both biases added up beforehand.

## Source
Rows C02a, G05, N01, V01a and X05 of the acceptance catalogue; ONNX, RNN-22.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._recurrent import match_recurrence, unroll
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.catalogue._recurrent import Cell, Term
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "RnnToConv"]

_NODES = 3


class RnnToConv(Rewrite):
    """RNN becomes convolutions and activations, step by step."""

    name = "rnn-to-conv"
    safety = Safety.EXACT
    op_types = ("RNN",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        return match_recurrence(node, context, gates=1, letters=("Tanh",), nodes=_NODES, states=1)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        return unroll(match.data, _step, match, builder, merged=(0,))


def _step(cell: Cell, inputs: Sequence[ir.Value], states: Sequence[Term]) -> Sequence[Term]:
    return (cell.activate(0, cell.add(inputs[0], cell.product(0, states[0]))),)


REWRITE = RnnToConv()
