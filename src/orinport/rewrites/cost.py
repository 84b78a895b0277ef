"""What a node computes: terms of a sum, multiply-accumulates."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from orinport.rewrites.context import MOVERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

__all__ = ["RECURRENT", "accumulate_length", "dims_of", "macs", "takes_sums"]

_SUMS = frozenset(
    {
        "GlobalAveragePool",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMean",
        "ReduceSum",
        "ReduceSumSquare",
    }
)
RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
"""ONNX Runtime clips what enters their activations, so that infinities and NaN come out as numbers here and there."""

_SUMMING = frozenset(
    {
        *("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"),
        *("GroupNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization"),
        *RECURRENT,
    }
)
"""Operators of which the larger part is sums."""


def takes_sums(before: Sequence[ir.Node], after: Sequence[ir.Node]) -> bool:
    """Whether sums go to the DLA, told by the nodes off it `before` and `after`, though more of these may be off it.

    Nothing may be left there that sums, less work altogether, and in no more places: nodes that read each other are
    one place, each part that a Split gives is one, and nodes that compute nothing are none and no work.
    """
    if not any(node.op_type in _SUMMING for node in before) or any(node.op_type in _SUMMING for node in after):
        return False
    return _work(after) < _work(before) and _places(after) <= _places(before)


def _work(nodes: Sequence[ir.Node]) -> int:
    return sum(macs(node) for node in nodes if node.op_type not in MOVERS)


def _places(nodes: Sequence[ir.Node]) -> int:
    """Groups of nodes that read each other, without those of movers alone."""
    groups: list[set[ir.Node]] = []
    for node in nodes:
        near = {value.producer() for value in node.inputs if value is not None}
        near |= {use.node for value in node.outputs for use in value.uses()}
        joined = [group for group in groups if not near.isdisjoint(group)]
        groups = [group for group in groups if group not in joined]
        groups.append({node}.union(*joined))
    parts = [
        [len(node.outputs) if node.op_type == "Split" else node.op_type not in MOVERS for node in group]
        for group in groups
    ]
    return sum(max(group) for group in parts)


def accumulate_length(node: ir.Node) -> int:
    """How many terms one output element of `node` sums up."""
    source = node.inputs[0] if node.inputs else None
    weights = node.inputs[1] if len(node.inputs) > 1 else None
    if source is None:
        return 1
    dims = dims_of(source)
    if node.op_type in ("Conv", "ConvTranspose") and weights is not None:
        kernel = dims_of(weights)
        return max(1, prod(kernel[1:]) if node.op_type == "Conv" else dims[1] * prod(kernel[2:]))
    if node.op_type == "MatMul":
        return max(1, dims[-1] if dims else 1)
    if node.op_type == "Gemm":
        transposed = node.attributes["transA"].as_int() if "transA" in node.attributes else 0
        return max(1, dims[-2] if transposed else dims[-1])
    if node.op_type == "Einsum":
        return max(1, *dims)
    if node.op_type in RECURRENT and weights is not None and node.inputs[2] is not None:
        return max(1, dims_of(weights)[-1] + dims_of(node.inputs[2])[-1])
    if node.op_type == "AveragePool":
        return prod(node.attributes["kernel_shape"].as_ints())
    if node.op_type in ("Softmax", "LogSoftmax"):
        return max(dims, default=1)
    if node.op_type in _SUMS:
        return max(1, prod(dims) // max(1, prod(dims_of(node.outputs[0]))))
    return 1


def macs(node: ir.Node) -> int:
    """Multiply-accumulates of `node`, or its elements if it has none."""
    result = node.outputs[0] if node.outputs else None
    volume = 0 if result is None else prod(dims_of(result))
    if node.op_type == "ConvTranspose":
        weights = node.inputs[1]
        source = node.inputs[0]
        return 0 if weights is None or source is None else prod(dims_of(source)) * prod(dims_of(weights)[1:])
    if node.op_type in RECURRENT:
        sequence, *matrices = (() if value is None else dims_of(value) for value in node.inputs[:3])
        return prod(sequence[:2]) * sum(map(prod, matrices))
    return volume * accumulate_length(node)


def dims_of(value: ir.Value) -> tuple[int, ...]:
    """The shape, with 1 for what is not known; empty if nothing is."""
    if value.shape is None:
        return ()
    return tuple(dim if isinstance(dim, int) else 1 for dim in value.shape)
