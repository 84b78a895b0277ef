"""`GRU(x) -> Conv, Sigmoid, Tanh, Mul, Add` for each step: a gated recurrent layer unrolled.

## What it does
A 1x1 convolution a gate projects all steps of the sequence and is split into them. Each step is

    z = f(x_z + R_z h)    r = f(x_r + R_r h)    c = g(x_h + r * (R_h h + b))    h' = c + z * (h - c)

with R as 1x1 convolutions on a tensor (N, H, 1, 1); without `linear_before_reset` c is g(x_h + R_h (r * h)). The first
step without an initial state leaves out what is zero. Where g is Relu, h' is (1 - z) * c + z * h as ONNX writes it,
because c may be infinite. The states are joined for Y, the last one is Y_h. Forward, reverse and
bidirectional, either layout, all images of a batch.

## Why
The DLA has no loops. Its length is fixed when the network is built, and then a recurrence is a chain of layers that the
DLA takes. Gates are convolutions of their own, so that nothing in the chain of states is sliced: a slice runs in FP16.

## Example
`GRU((8, 1, 32), hidden 64)`, as PyTorch exports it: three convolutions to 64 channels over 1x8 positions, three Splits,
and 7 times 13 layers after a first step of fewer.

## Refused
Weights known at run time only; `sequence_lens` below the full length; `clip`; activations other than Sigmoid, Tanh and
Relu, gates of Relu; sequences that unrolled exceed the limit of nodes; dimensions above the DLA's limit.

## Safety
exact: the same products and activations, biases that meet added up beforehand.

## Source
Rows A01a, C02a, E02, G05, N01, V01a and X05 of the acceptance catalogue; ONNX, GRU-22.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._recurrent import BOUNDED, match_recurrence, unroll
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.catalogue._recurrent import Cell, Term
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "GruToConv"]

_NODES = 13
_Z, _R, _H = range(3)
"""Gates in ONNX's order: update, reset, hidden."""


class GruToConv(Rewrite):
    """GRU becomes convolutions and element-wise layers, step by step."""

    name = "gru-to-conv"
    safety = Safety.EXACT
    op_types = ("GRU",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        return match_recurrence(node, context, gates=3, letters=("Sigmoid", "Tanh"), nodes=_NODES, states=1)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        if builder.context.attribute(match.nodes[0], "linear_before_reset", 0):
            return unroll(match.data, _step_linear, match, builder, merged=(_Z, _R))
        return unroll(match.data, _step, match, builder, merged=(_Z, _R, _H))


def _step_linear(cell: Cell, inputs: Sequence[ir.Value], states: Sequence[Term]) -> Sequence[Term]:
    """The reset gate works on the product, as in PyTorch."""
    state = states[0]
    inner = cell.product(_H, state, biased=True)
    if inner is not None:
        inner = cell.multiply(inner, _gate(cell, _R, inputs, state))
    return _blend(cell, inputs, state, cell.activate(1, cell.add(inputs[_H], inner)))


def _step(cell: Cell, inputs: Sequence[ir.Value], states: Sequence[Term]) -> Sequence[Term]:
    """The reset gate works on the state, ONNX's default."""
    state = states[0]
    inner = None if state is None else cell.product(_H, cell.multiply(state, _gate(cell, _R, inputs, state)))
    return _blend(cell, inputs, state, cell.activate(1, cell.add(inputs[_H], inner)))


def _gate(cell: Cell, gate: int, inputs: Sequence[ir.Value], state: Term) -> ir.Value:
    return cell.activate(0, cell.add(inputs[gate], cell.product(gate, state)))


def _blend(cell: Cell, inputs: Sequence[ir.Value], state: Term, candidate: ir.Value) -> Sequence[Term]:
    """(1 - z) * candidate + z * state."""
    update = _gate(cell, _Z, inputs, state)
    if cell.activations[1] in BOUNDED:
        return (cell.add(candidate, cell.multiply(update, cell.subtract(state, candidate))),)
    return (cell.add(cell.multiply(cell.complement(update), candidate), cell.multiply(state, update)),)


REWRITE = GruToConv()
