"""`LSTM(x) -> Conv, Sigmoid, Tanh, Mul, Add` for each step: a long short-term memory unrolled.

## What it does
A 1x1 convolution a gate projects all steps of the sequence and is split into them. Each step is

    i, o, f = f(x + R h)    g = g(x_c + R_c h)    c' = f * c + i * g    h' = o * h(c')

with R as 1x1 convolutions on a tensor (N, H, 1, 1). The first step without an initial state leaves out what is zero.
The states are joined for Y, the last ones are Y_h and Y_c. Forward, reverse and bidirectional, either layout, all
images of a batch.

## Why
The DLA has no loops. Its length is fixed when the network is built, and then a recurrence is a chain of layers that the
DLA takes. Gates are convolutions of their own, so that nothing in the chain of states is sliced: a slice runs in FP16.

## Example
`LSTM((8, 1, 32), hidden 64)`: four convolutions to 64 channels over 1x8 positions, four Splits, and 7 times 17 layers
after a first step of fewer.

## Refused
Peepholes; coupled gates (`input_forget`); weights known at run time only; `sequence_lens` below the full length;
`clip`; activations other than Sigmoid, Tanh and Relu, gates of Relu; sequences that unrolled exceed the limit of nodes;
dimensions above the DLA's limit.

## Safety
exact: the same products and activations, both biases added up beforehand.

## Source
Rows A01a, C02a, G05, N01, V01a and X05 of the acceptance catalogue; ONNX, LSTM-22.
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

__all__ = ["REWRITE", "LstmToConv"]

_NODES = 17
_I, _O, _F, _C = range(4)
"""Gates in ONNX's order: input, output, forget, cell."""


class LstmToConv(Rewrite):
    """LSTM becomes convolutions and element-wise layers, step by step."""

    name = "lstm-to-conv"
    safety = Safety.EXACT
    op_types = ("LSTM",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        letters = ("Sigmoid", "Tanh", "Tanh")
        return match_recurrence(node, context, gates=4, letters=letters, nodes=_NODES, states=2)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        return unroll(match.data, _step, match, builder, merged=(_I, _O, _F, _C))


def _step(cell: Cell, inputs: Sequence[ir.Value], states: Sequence[Term]) -> Sequence[Term]:
    hidden, memory = states
    kept = None
    if memory is not None:
        kept = cell.multiply(memory, _gate(cell, _F, 0, inputs, hidden))
    memory = cell.add(kept, cell.multiply(_gate(cell, _I, 0, inputs, hidden), _gate(cell, _C, 1, inputs, hidden)))
    return cell.multiply(_gate(cell, _O, 0, inputs, hidden), cell.activate(2, memory)), memory


def _gate(cell: Cell, gate: int, letter: int, inputs: Sequence[ir.Value], state: Term) -> ir.Value:
    return cell.activate(letter, cell.add(inputs[gate], cell.product(gate, state)))


REWRITE = LstmToConv()
