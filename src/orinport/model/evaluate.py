"""What the operators of constant expressions compute, in NumPy.

Only operators that are listed here are ever folded. The common ones are written out below; the rest is computed
by onnx's reference implementation, which is loaded when the first of them is met.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["evaluate", "foldable"]

_UNBOUNDED = frozenset({"NonZero", "Compress"})


def foldable(node: ir.Node) -> bool:
    """True if `evaluate` knows the operator."""
    return node.domain == "" and (node.op_type in _FUNCTIONS or node.op_type in _REFERENCE)


def shrinks(node: ir.Node) -> bool:
    """True if the output is no larger than the rank times the input, whatever the values are."""
    return node.op_type in _UNBOUNDED


def evaluate(node: ir.Node, inputs: Sequence[np.ndarray | None], opset: int) -> list[np.ndarray]:
    """The outputs of `node`. Raises whatever NumPy raises for inputs that do not fit."""
    function = _FUNCTIONS.get(node.op_type)
    with np.errstate(all="ignore"):
        if function is None:
            return _by_reference(node, inputs, opset)
        result = function(node, inputs)
    outputs = result if isinstance(result, list) else [result]
    return [np.asarray(array) for array in outputs]


def _integers(node: ir.Node, name: str, default: Sequence[int] | None = None) -> list[int] | None:
    attribute = node.attributes.get(name)
    return (None if default is None else list(default)) if attribute is None else [int(i) for i in attribute.as_ints()]


def _integer(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else int(attribute.as_int())


def _axes(node: ir.Node, inputs: Sequence[np.ndarray | None], index: int = 1) -> list[int] | None:
    """Axes: an input in newer opsets, an attribute in older ones."""
    if len(inputs) > index and inputs[index] is not None:
        return [int(i) for i in np.asarray(inputs[index]).reshape(-1)]
    return _integers(node, "axes")


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _node, inputs: function(inputs[0], inputs[1])


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _node, inputs: np.asarray(function(inputs[0])).astype(inputs[0].dtype, copy=False)


def _variadic(function: Callable[..., Any]) -> Callable[..., Any]:
    def fold(_node: ir.Node, inputs: Sequence[Any]) -> Any:
        result = inputs[0]
        for array in inputs[1:]:
            result = function(result, array)
        return result

    return fold


def _divide(_node: ir.Node, inputs: Sequence[Any]) -> Any:
    a, b = inputs
    if not np.issubdtype(a.dtype, np.integer):
        return a / b
    if not np.all(b):
        raise ZeroDivisionError
    quotient = np.floor_divide(a, b)
    return (quotient + ((quotient < 0) & (quotient * b != a))).astype(a.dtype)


def _modulo(node: ir.Node, inputs: Sequence[Any]) -> Any:
    a, b = inputs
    if np.issubdtype(a.dtype, np.integer) and not np.all(b):
        raise ZeroDivisionError
    return np.fmod(a, b) if _integer(node, "fmod", 0) else np.mod(a, b)


def _power(_node: ir.Node, inputs: Sequence[Any]) -> Any:
    return np.power(inputs[0], inputs[1]).astype(inputs[0].dtype)


def _cast(node: ir.Node, inputs: Sequence[Any]) -> Any:
    target = ir.DataType(_integer(node, "to", 0)).numpy()
    return inputs[0].astype(target)


def _cast_like(node: ir.Node, inputs: Sequence[Any]) -> Any:
    """Only the type of the second input counts, and inference has given it to the output."""
    dtype = node.outputs[0].dtype
    if dtype is None:
        raise ValueError("the type to cast to is unknown")
    return inputs[0].astype(dtype.numpy())


def _concat(node: ir.Node, inputs: Sequence[Any]) -> Any:
    return np.concatenate(list(inputs), axis=_integer(node, "axis", 1))


def _gather(node: ir.Node, inputs: Sequence[Any]) -> Any:
    return np.take(inputs[0], inputs[1], axis=_integer(node, "axis", 0))


def _unsqueeze(node: ir.Node, inputs: Sequence[Any]) -> Any:
    return np.expand_dims(inputs[0], tuple(_axes(node, inputs) or ()))


def _squeeze(node: ir.Node, inputs: Sequence[Any]) -> Any:
    axes = _axes(node, inputs)
    return np.squeeze(inputs[0], None if axes is None else tuple(axes))


def _slice(node: ir.Node, inputs: Sequence[Any]) -> Any:
    data = inputs[0]
    if len(inputs) == 1:
        starts, ends, axes, steps = (
            _integers(node, "starts", []),
            _integers(node, "ends", []),
            _integers(node, "axes"),
            None,
        )
    else:
        starts, ends, axes, steps = (
            None if i >= len(inputs) or inputs[i] is None else [int(k) for k in inputs[i]] for i in range(1, 5)
        )
    assert starts is not None
    assert ends is not None
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    index: list[slice] = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index[axis] = _bounded_slice(start, end, step, data.shape[axis])
    return data[tuple(index)]


def _bounded_slice(start: int, end: int, step: int, size: int) -> slice:
    """ONNX clamps both ends; going backwards an end before the first element means "to the very start"."""
    start, end = start + size * (start < 0), end + size * (end < 0)
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(start, None if end < 0 else end, step)


def _reshape(node: ir.Node, inputs: Sequence[Any]) -> Any:
    data, shape = inputs[0], [int(d) for d in inputs[1]]
    if not _integer(node, "allowzero", 0):
        shape = [data.shape[i] if d == 0 else d for i, d in enumerate(shape)]
    return data.reshape(shape)


def _flatten(node: ir.Node, inputs: Sequence[Any]) -> Any:
    axis = _integer(node, "axis", 1)
    axis += inputs[0].ndim if axis < 0 else 0
    rows = int(np.prod(inputs[0].shape[:axis], dtype=np.int64))
    return inputs[0].reshape(rows, -1)


def _transpose(node: ir.Node, inputs: Sequence[Any]) -> Any:
    return np.transpose(inputs[0], _integers(node, "perm"))


def _constant_of_shape(node: ir.Node, inputs: Sequence[Any]) -> Any:
    attribute = node.attributes.get("value")
    value = np.zeros(1, np.float32) if attribute is None else attribute.as_tensor().numpy().reshape(-1)[:1]
    return np.broadcast_to(value.reshape(()), tuple(int(d) for d in inputs[0]))


def _expand(_node: ir.Node, inputs: Sequence[Any]) -> Any:
    shape = np.broadcast_shapes(inputs[0].shape, tuple(int(d) for d in inputs[1]))
    return np.broadcast_to(inputs[0], shape)


def _tile(_node: ir.Node, inputs: Sequence[Any]) -> Any:
    return np.tile(inputs[0], tuple(int(d) for d in inputs[1]))


def _range(_node: ir.Node, inputs: Sequence[Any]) -> Any:
    start, limit, delta = (array.reshape(())[()] for array in inputs)
    return np.arange(start, limit, delta, dtype=inputs[0].dtype)


def _reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    def fold(node: ir.Node, inputs: Sequence[Any]) -> Any:
        axes = _axes(node, inputs)
        if not axes and _integer(node, "noop_with_empty_axes", 0):
            return inputs[0]
        result = function(inputs[0], axis=tuple(axes) if axes else None, keepdims=bool(_integer(node, "keepdims", 1)))
        return np.asarray(result).astype(inputs[0].dtype)

    return fold


def _split(node: ir.Node, inputs: Sequence[Any]) -> Any:
    axis = _integer(node, "axis", 0)
    sizes = [int(i) for i in inputs[1]] if len(inputs) > 1 and inputs[1] is not None else _integers(node, "split")
    size = inputs[0].shape[axis]
    if sizes is None:
        part = -(-size // len(node.outputs))
        sizes = [part] * (len(node.outputs) - 1) + [size - part * (len(node.outputs) - 1)]
    if sum(sizes) != size or min(sizes) < 0:
        raise ValueError("split sizes do not add up")
    return np.split(inputs[0], np.cumsum(sizes)[:-1], axis)


_FUNCTIONS: dict[str, Callable[[ir.Node, Sequence[Any]], Any]] = {
    "Abs": _unary(np.abs),
    "Add": _binary(np.add),
    "And": _binary(np.logical_and),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Ceil": _unary(np.ceil),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Div": _divide,
    "Equal": _binary(np.equal),
    "Exp": _unary(np.exp),
    "Expand": _expand,
    "Flatten": _flatten,
    "Floor": _unary(np.floor),
    "Gather": _gather,
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "Identity": lambda _node, inputs: inputs[0],
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "Log": _unary(np.log),
    "MatMul": _binary(np.matmul),
    "Max": _variadic(np.maximum),
    "Min": _variadic(np.minimum),
    "Mod": _modulo,
    "Mul": _binary(np.multiply),
    "Neg": _unary(np.negative),
    "NonZero": lambda _node, inputs: np.array(np.nonzero(np.atleast_1d(inputs[0])), dtype=np.int64),
    "Not": lambda _node, inputs: np.logical_not(inputs[0]),
    "Or": _binary(np.logical_or),
    "Pow": _power,
    "Range": _range,
    "Reciprocal": lambda _node, inputs: (1 / inputs[0]).astype(inputs[0].dtype),
    "ReduceMax": _reduce(np.max),
    "ReduceMean": _reduce(np.mean),
    "ReduceMin": _reduce(np.min),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "Reshape": _reshape,
    "Sign": _unary(np.sign),
    "Slice": _slice,
    "Split": _split,
    "Sqrt": _unary(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _binary(np.subtract),
    "Sum": _variadic(np.add),
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": lambda _node, inputs: np.where(inputs[0], inputs[1], inputs[2]),
    "Xor": _binary(np.logical_xor),
}

_REFERENCE = frozenset(
    {
        "Clip",
        "Compress",
        "Cos",
        "CumSum",
        "Einsum",
        "Erf",
        "EyeLike",
        "GatherElements",
        "GatherND",
        "Gemm",
        "LayerNormalization",
        "OneHot",
        "Pad",
        "ReduceL2",
        "Relu",
        "Round",
        "ScatterElements",
        "ScatterND",
        "Sigmoid",
        "Sin",
        "Softmax",
        "Tanh",
        "Trilu",
    }
)
"""Operators of constant expressions that are too rare to be written out."""


def _by_reference(node: ir.Node, inputs: Sequence[np.ndarray | None], opset: int) -> list[np.ndarray]:
    from onnx.reference import ReferenceEvaluator

    proto = ir.serde.serialize_node(node)
    for index in range(len(proto.input)):
        proto.input[index] = f"i{index}" if index < len(inputs) and inputs[index] is not None else ""
    feeds = {f"i{index}": array for index, array in enumerate(inputs) if array is not None}
    for index in range(len(proto.output)):
        proto.output[index] = f"o{index}" if proto.output[index] else ""
    names = [name for name in proto.output if name]
    graph = onnx.helper.make_graph(
        [proto],
        "expression",
        [
            onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feeds.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in names],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, feeds)]
