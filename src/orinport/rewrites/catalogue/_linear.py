"""Linear layers, however they are written: `MatMul (+ Add)` or `Gemm` with constant weights, and moves behind them.

Layers that read the same tensor can be one: their weights side by side, `x [W1 | W2] + [b1 | b2]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.builder import RefusedError
from orinport.rewrites.rewrite import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = [
    "Branch",
    "Linear",
    "branch_behind",
    "build_linear",
    "common_source",
    "linear_at",
    "linear_behind",
    "moves_to",
    "reshape_to",
    "same_rows",
    "same_tensor",
]

_MOVERS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
"""Operators that keep every element and its order."""


@dataclass(frozen=True, slots=True)
class Linear:
    """`output = source @ weight + bias`, with `weight` (K, columns), stored transposed if `transposed`."""

    nodes: tuple[ir.Node, ...]
    source: ir.Value
    weight: ir.Value
    transposed: bool
    bias: ir.Value | None
    output: ir.Value
    inner: int
    columns: int

    def weights(self, context: RewriteContext) -> NDArray[np.generic]:
        """(K, columns)."""
        array = context.constant(self.weight)
        assert array is not None
        return array.T if self.transposed else array

    def biases(self, context: RewriteContext) -> NDArray[np.generic] | None:
        """(columns), or None."""
        array = context.constant(self.bias)
        return None if array is None else np.broadcast_to(array.reshape(-1), (self.columns,))


@dataclass(frozen=True, slots=True)
class Branch:
    """A linear layer and the moves between it and whoever reads its result as `value`."""

    linear: Linear
    movers: tuple[ir.Node, ...]
    value: ir.Value

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        """All of them."""
        return (*self.linear.nodes, *self.movers)


def linear_at(node: ir.Node, context: RewriteContext) -> Linear | None:
    """The linear layer that begins at a MatMul or Gemm; None if it is none."""
    if not context.standard(node) or node.op_type not in ("MatMul", "Gemm"):
        return None
    return _matmul(node, context) if node.op_type == "MatMul" else _gemm(node, context)


def _matmul(node: ir.Node, context: RewriteContext) -> Linear | None:
    source, weight = node.inputs
    shape = context.shape(weight)
    if source is None or weight is None or shape is None or len(shape) != 2 or context.is_constant(source):
        return None
    if not context.is_constant(weight) or not context.is_float(weight) or (context.rank(source) or 0) < 2:
        return None
    addition = context.only_consumer(node.outputs[0])
    if addition is not None and addition.op_type == "Add" and context.standard(addition):
        bias = _other(addition, node.outputs[0])
        if _is_bias(bias, shape[1], context):
            return Linear((node, addition), source, weight, False, bias, addition.outputs[0], *shape)
    return Linear((node,), source, weight, False, None, node.outputs[0], *shape)


def _gemm(node: ir.Node, context: RewriteContext) -> Linear | None:
    source, weight, bias = node.inputs[0], node.inputs[1], context.input(node, 2)
    shape = context.shape(weight)
    if source is None or weight is None or shape is None or context.is_constant(source):
        return None
    if not context.is_constant(weight) or not context.is_float(weight):
        return None
    if context.attribute(node, "transA", 0) or context.attribute(node, "alpha", 1.0) != 1:
        return None
    if bias is not None and (context.attribute(node, "beta", 1.0) != 1 or not context.is_constant(bias)):
        return None
    transposed = bool(context.attribute(node, "transB", 0))
    inner, columns = reversed(shape) if transposed else shape
    if bias is not None and not _is_bias(bias, columns, context):
        return None
    return Linear((node,), source, weight, transposed, bias, node.outputs[0], inner, columns)


def linear_behind(value: ir.Value, context: RewriteContext) -> Linear | None:
    """The linear layer whose result `value` is."""
    node = value.producer()
    if node is None:
        return None
    if node.op_type == "Add" and context.standard(node):
        for each in node.inputs:
            inner = None if each is None else each.producer()
            found = None if inner is None else linear_at(inner, context)
            if found is not None and found.output is value:
                return found
        return None
    found = linear_at(node, context)
    return found if found is not None and found.output is value else None


def branch_behind(value: ir.Value, context: RewriteContext) -> Branch | Refusal:
    """The linear layer and the moves that lead to `value` and to nothing else; a refusal says what is in the way."""
    movers: list[ir.Node] = []
    current = value
    while (linear := linear_behind(current, context)) is None:
        node = current.producer()
        if node is None:
            return Refusal(f"{value.name!r} comes from no linear layer, but is an input of the network")
        source = context.input(node, 0)
        if node.op_type not in _MOVERS or not context.standard(node) or source is None:
            return Refusal(f"{value.name!r} comes from {node.op_type}, not from a linear layer with constant weights")
        if not _keeps_last(source, current, context):
            return Refusal(f"{node.op_type} between the linear layer and {value.name!r} mixes its columns")
        movers.append(node)
        current = source
    for each in (linear.output, *(node.outputs[0] for node in linear.nodes), *(node.outputs[0] for node in movers)):
        if context.is_output(each):
            return Refusal(f"{each.name!r} is an output of the network")
        if len(context.consumers(each)) != 1:
            return Refusal(f"{each.name!r} is read by others too")
    return Branch(linear, tuple(reversed(movers)), value)


def same_tensor(first: ir.Value, second: ir.Value, context: RewriteContext) -> bool:
    """Whether both hold the same elements in the same shape: one value, or two equal reshapes of one."""
    if first is second:
        return True
    shape = _dims(first)
    return shape is not None and shape == _dims(second) and _origin(first, context)[0] is _origin(second, context)[0]


def same_rows(first: ir.Value, second: ir.Value, context: RewriteContext) -> bool:
    """Whether both hold the same rows in whatever shape: one value, or reshapes of one that keep the last dimension."""
    if first is second:
        return True
    if first.shape is None or second.shape is None or not len(first.shape) or not len(second.shape):
        return False
    last = first.shape[-1]
    return (
        isinstance(last, int) and last == second.shape[-1] and _origin(first, context)[0] is _origin(second, context)[0]
    )


def moves_to(sources: Sequence[ir.Value], context: RewriteContext) -> tuple[ir.Node, ...]:
    """The reshapes that make `sources` from one tensor; none if they are one value."""
    if all(source is sources[0] for source in sources):
        return ()
    return tuple(dict.fromkeys(node for source in sources for node in _origin(source, context)[1]))


def common_source(builder: Builder, sources: Sequence[ir.Value]) -> ir.Value:
    """A value with the rows of each of `sources`, which are one value or reshapes of one, in the shape of the first."""
    if not moves_to(sources, builder.context):
        return sources[0]
    origin = _origin(sources[0], builder.context)[0]
    assert sources[0].shape is not None
    return reshape_to(builder, origin, list(sources[0].shape))


def _origin(value: ir.Value, context: RewriteContext) -> tuple[ir.Value, tuple[ir.Node, ...]]:
    """What `value` is reshaped from, and by which nodes."""
    nodes: list[ir.Node] = []
    while (node := value.producer()) is not None and node.op_type in _MOVERS and context.standard(node):
        source = node.inputs[0]
        if source is None:
            break
        nodes.append(node)
        value = source
    return value, tuple(reversed(nodes))


def build_linear(builder: Builder, parts: Sequence[Linear]) -> ir.Value:
    """`parts`, which read the same rows, as one layer: their columns side by side. Only new constants are made."""
    context = builder.context
    source = common_source(builder, [part.source for part in parts])
    weights = np.concatenate([part.weights(context) for part in parts], axis=1)
    dims = [*(source.shape or ())[:-1], weights.shape[1]]
    dtype = context.dtype(source)
    output = builder.op(
        "MatMul",
        source,
        builder.constant(np.ascontiguousarray(weights), "weights"),
        shape=dims,
        dtype=dtype,
    )
    biases = [part.biases(context) for part in parts]
    if all(bias is None for bias in biases):
        return output
    filled = [
        np.zeros(part.columns, weights.dtype) if bias is None else bias
        for part, bias in zip(parts, biases, strict=True)
    ]
    bias = builder.constant(np.concatenate(filled).astype(weights.dtype), "bias")
    return builder.op("Add", output, bias, shape=dims, dtype=dtype)


def reshape_to(builder: Builder, value: ir.Value, shape: Sequence[object]) -> ir.Value:
    """`value` in another shape, in which one dimension may be known by name only."""
    numbers = [dim if isinstance(dim, int) else -1 for dim in shape]
    if numbers.count(-1) > 1:
        raise RefusedError("more than one dimension is dynamic")
    dtype = builder.context.dtype(value)
    return builder.op("Reshape", value, builder.ints(numbers), shape=shape, dtype=dtype)  # type: ignore[arg-type]


def _keeps_last(before: ir.Value, after: ir.Value, context: RewriteContext) -> bool:
    ranks = context.rank(before), context.rank(after)
    if before.shape is None or after.shape is None or not all(ranks):
        return False
    last = before.shape[-1]
    return isinstance(last, int) and last == after.shape[-1]


def _is_bias(value: ir.Value | None, columns: int, context: RewriteContext) -> bool:
    shape = context.shape(value)
    if value is None or shape is None or not context.is_constant(value):
        return False
    size = int(np.prod(shape, dtype=np.int64))
    return size == 1 or (size == columns and shape[-1] == columns)


def _other(addition: ir.Node, value: ir.Value) -> ir.Value | None:
    return next((each for each in addition.inputs if each is not value), None)


def _dims(value: ir.Value) -> tuple[object, ...] | None:
    """The dimensions, symbols by name; None if any is not known at all."""
    if value.shape is None:
        return None
    dims = tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)
    return None if any(dim is None for dim in dims) else dims
