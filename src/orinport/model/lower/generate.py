"""Operators that make tensors out of little: constants, shapes, ranges, random numbers, masks."""

# ruff: noqa: ARG001 - all lowerings have one signature
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.arguments import axis_of, has, integer, integers, need, real, refuse_types, whole_numbers
from orinport.model.lower.elementwise import chain, or_equal, zeros_like
from orinport.model.lower.network import Network, Ref, Refused, Unclear, Weights
from orinport.model.lower.reduction import axis_length, to_scalar
from orinport.model.lower.reshape import transpose_to
from orinport.model.lower.types import trt_type_of_code
from orinport.model.lower.vector import (
    Vector,
    add_slice,
    constant_of_shape,
    gather,
    join,
    known,
    of_operand,
    of_tensor,
    shape_of,
    v_floor_div,
    v_max,
    v_sub,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Outputs

    Lowering = Callable[[Network, ir.Node, Inputs], Outputs]

__all__ = [
    "constant_of_shape_op",
    "eye_like",
    "non_max_suppression",
    "non_zero",
    "one_hot",
    "random",
    "random_like",
    "range_op",
    "reverse_sequence",
    "shape",
    "size",
    "trilu",
]


def constant_of_shape_op(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """ConstantOfShape to a SLICE of stride 0 of one value."""
    wanted = net.tensor(need(inputs, 0))
    attribute = node.attributes.get("value")
    tensor = None if attribute is None else attribute.value
    values = np.zeros(1, dtype=np.float32) if tensor is None else np.asarray(tensor.numpy()).reshape(-1)
    dtype = DType.FP32
    if tensor is not None:
        from orinport.model.lower.types import trt_type

        dtype = trt_type(tensor.dtype, net.parser)
    base = f"{net.node_name}_weight" if net.parser.has("int64") else None
    value = net.constant(values, dtype, (1,), base=base)
    if wanted.shape is None:
        raise Unclear("The rank of the result is unknown.")
    return [constant_of_shape(net, value, of_tensor(wanted))]


def shape(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Shape to SHAPE and, from TensorRT 9 on, CAST; a part of it by SLICE."""
    ref = net.tensor(need(inputs, 0))
    if ref.shape is None:
        out = net.add(LayerKind.SHAPE, (ref,), None, net.int64, constant=False)
        if net.parser.has("int64"):
            out = net.add(LayerKind.CAST, (out,), None, DType.INT64, {"to": "int64"}, base=None)
        return [out]
    rank = len(ref.shape)
    dims = np.asarray(ref.shape, dtype=np.int64)
    out = net.add(LayerKind.SHAPE, (ref,), (rank,), net.int64, constant=True, values=dims)
    if not net.parser.has("int64"):
        return [out]
    base = "" if net.parser.has("strongly_typed") else None
    out = net.add(LayerKind.CAST, (out,), (rank,), DType.INT64, {"to": "int64"}, base=base, values=dims)
    first, last, _ = slice(integer(node, "start", 0), integer(node, "end", rank)).indices(rank)
    if (first, last) == (0, rank):
        return [out]
    return [net.slice(out, [first], [max(last - first, 0)], [1], base=base)]


def size(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Size to the product of the shape: a CONSTANT where that is static."""
    operand = need(inputs, 0)
    if operand.shape is None:
        raise Unclear("The shape of the input is unknown.")
    total = 1
    for dim in operand.shape:
        total *= dim
    return [known(total, rank=0).tensor(net)]


def range_op(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Range to FILL of evenly spaced numbers, after the arithmetic that gives their count."""
    operands = [need(inputs, i) for i in range(3)]
    dtype = operands[0].dtype
    if dtype not in {DType.INT32, DType.INT64, DType.FP32}:
        raise Refused(f"A range of {dtype.value}.")
    if dtype is not DType.FP32 and net.parser.has("int64"):
        refs = [net.cast(net.tensor(o), DType.INT64) for o in operands]
        if net.parser.has("range_of_vectors"):
            refs = [net.squeeze(ref, [0]) if ref.shape == (1,) else ref for ref in refs]
        vectors = [of_tensor(ref) for ref in refs]
    else:
        vectors = [of_operand(net, o) for o in operands]
    start, limit, delta = vectors
    zero = known(0, rank=0)
    quotient = v_floor_div(net, v_sub(net, start, limit), delta)
    if net.parser.has("int64"):
        if dtype is not DType.INT64:
            quotient = _cast_vector(net, quotient, DType.INT64, "ShapeCastToInt64")
    elif dtype is DType.FP32:
        quotient = _cast_vector(net, quotient, DType.INT32, "ShapeCastToInt32")
    count = v_max(net, v_sub(net, zero, quotient), zero)
    wanted = _vector_of_scalar(net, count)
    sizes = wanted.values
    attributes = {"op": "LINSPACE"}
    extra = [] if wanted.known is not None else [wanted.tensor(net)]
    out = net.add(LayerKind.FILL, extra, sizes, dtype, attributes, constant=_all_constant(operands))
    _range_inputs(net, out, start, delta, operands, dtype)
    return [out]


def _all_constant(operands: list[Ref | Weights]) -> bool:
    return all(not isinstance(o, Ref) or o.constant for o in operands)


def _range_inputs(
    net: Network, out: Ref, start: Vector, delta: Vector, operands: list[Ref | Weights], dtype: DType
) -> None:
    if start.known is not None and delta.known is not None:
        return
    if dtype is DType.INT32 and operands[0].is_weights and operands[2].is_weights and net.parser.has("int64"):
        return
    net.append_input(out, start.tensor(net))
    net.append_input(out, _vector_of_scalar(net, delta).tensor(net))


def _vector_of_scalar(net: Network, scalar: Vector) -> Vector:
    if scalar.size not in {None, 1}:
        raise Refused("A scalar is wanted.")
    if scalar.known is not None:
        return known(scalar.known[0])
    return of_tensor(net.shuffle(scalar.tensor(net), (1,), base=net.helper("ShapeShuffle")))


def _cast_vector(net: Network, vector: Vector, dtype: DType, name: str) -> Vector:
    ref = vector.tensor(net)
    kind = LayerKind.CAST if net.parser.has("helper_cast_layer") else LayerKind.IDENTITY
    attributes = {"to": dtype.value}
    return of_tensor(net.add(kind, (ref,), ref.shape, dtype, attributes, base=net.helper(name), values=ref.values))


def _random(net: Network, node: ir.Node, op: str, dims: Vector, dtype: DType) -> Ref:
    if has(node, "dtype"):
        made = {1: DType.FP32, 10: DType.FP16}.get(integer(node, "dtype", 1))
        if made is None:
            raise Refused("Random numbers of another type than fp32 and fp16.")
        dtype = made
    low, high = ("low", "high") if op == "RANDOM_UNIFORM" else ("mean", "scale")
    attributes = {"op": op, "alpha": real(node, low, 0.0), "beta": real(node, high, 1.0)}
    return net.add(LayerKind.FILL, (), dims.values, dtype, attributes, constant=False)


def random(op: str) -> Lowering:
    """RandomNormal and RandomUniform to FILL."""

    def lower(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
        return [_random(net, node, op, known(*(integers(node, "shape") or ())), DType.FP32)]

    return lower


def random_like(op: str) -> Lowering:
    """RandomNormalLike and RandomUniformLike to FILL."""

    def lower(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
        operand = need(inputs, 0)
        if operand.is_weights:
            raise Refused("The input is an initializer.")
        ref = net.tensor(operand)
        return [_random(net, node, op, shape_of(net, ref), ref.dtype)]

    return lower


def eye_like(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """EyeLike to CONSTANT and, unless it is INT32, a cast."""
    ref = net.tensor(need(inputs, 0))
    if ref.shape is None or len(ref.shape) != 2:
        raise Refused("Only matrices of known shape are taken.")
    dtype: DType | None = ref.dtype
    if has(node, "dtype"):
        dtype = trt_type_of_code(integer(node, "dtype", 1), net.parser)
        if dtype is None:
            raise Refused("A type that TensorRT does not have.")
    assert dtype is not None
    rows, columns = ref.shape
    out = net.constant(np.eye(rows, columns, integer(node, "k", 0), dtype=np.int32), DType.INT32, base="")
    return [out if dtype is DType.INT32 else net.cast(out, dtype)]


def one_hot(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """OneHot to ONE_HOT, with indices and depth as INT32."""
    for index in range(3):
        refuse_types(need(inputs, index), DType.UINT8)
    values = net.tensor(need(inputs, 2))
    indices = net.tensor(need(inputs, 0))
    if indices.dtype is not DType.INT32:
        indices = net.cast(indices, DType.INT32)
    depth = net.tensor(need(inputs, 1))
    depth_values = whole_numbers(depth)
    if depth.dtype is not DType.INT32:
        depth = net.cast(depth, DType.INT32)
    depth = to_scalar(net, depth)
    if indices.shape is None:
        raise Unclear("The rank of the indices is unknown.")
    axis = axis_of(integer(node, "axis", -1), len(indices.shape) + 1)
    out: tuple[int, ...] | None = None
    if depth_values:
        out = (*indices.shape[:axis], depth_values[0], *indices.shape[axis:])
    return [net.add(LayerKind.ONE_HOT, (indices, values, depth), out, values.dtype, {"axis": axis})]


def non_zero(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """NonZero to NON_ZERO; the number of columns depends on the data."""
    ref = net.tensor(need(inputs, 0))
    out = net.add(LayerKind.NON_ZERO, (ref,), None, DType.INT32)
    return [net.cast(out, DType.INT64) if net.parser.has("int64") else out]


def _iota(net: Network, dims: Vector, axis: int) -> Ref:
    """Row or column numbers."""
    assert dims.size is not None
    step = [0] * dims.size
    step[axis] = 1
    base = net.helper("iota")
    # FILL is created before its inputs; its place among the layers is that of its creation.
    out = net.add(LayerKind.FILL, (), dims.values, DType.INT32, {"op": "LINSPACE"}, base=base, constant=True)
    start = net.constant(0, DType.INT32, ())
    delta = net.constant(step, DType.INT32)
    for extra in (dims.copy().tensor(net), start, delta):
        net.append_input(out, extra)
    return net.cast(out, DType.INT64) if net.parser.has("int64") else out


def trilu(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Trilu to a comparison of row and column numbers and SELECT."""
    refuse_types(need(inputs, 0), DType.UINT8)
    ref = net.tensor(need(inputs, 0))
    if ref.shape is None or len(ref.shape) < 2:
        raise Refused("An input of fewer than two dimensions.")
    rank = len(ref.shape)
    if rank > 3 and not net.parser.has("topk_runtime_k"):
        raise Refused("Trilu of more than three dimensions.")
    dims = gather(net, shape_of(net, ref), known(rank - 2, rank - 1))
    rows, columns = _iota(net, dims, 0), _iota(net, dims, 1)
    zero = zeros_like(net, ref)
    offset = inputs[1] if len(inputs) > 1 else None
    if offset is not None:
        columns = net.tensor(chain(net, [columns, net.tensor(offset)], "SUB"))
    if rank > 2:
        batch = list(range(rank - 2))
        rows, columns = net.unsqueeze(rows, batch), net.unsqueeze(columns, batch)
    condition = or_equal(net, rows, columns, "LESS" if integer(node, "upper", 0) else "GREATER")
    return [net.select(condition, ref, zero, base=None)]


def reverse_sequence(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """ReverseSequence to REVERSE_SEQUENCE; before TensorRT 8.6 to slices and concatenations per element."""
    refuse_types(need(inputs, 0), DType.UINT8)
    ref, lengths = net.tensor(need(inputs, 0)), net.tensor(need(inputs, 1))
    if not net.parser.has("reverse_sequence_layer"):
        return [_reversed_by_slices(net, ref, lengths, integer(node, "batch_axis", 1))]
    attributes = {
        "batch_axis": integer(node, "batch_axis", 1),
        "sequence_axis": integer(node, "time_axis", 0),
    }
    return [net.add(LayerKind.REVERSE_SEQUENCE, (ref, lengths), ref.shape, ref.dtype, attributes)]


def _reversed_by_slices(net: Network, ref: Ref, lengths: Ref, batch: int) -> Ref:
    """Each element of the batch in two parts: the reversed one and the rest, one behind the other."""
    if ref.shape is None or lengths.shape is None:
        raise Unclear("The shape of an input is unknown.")
    rank = len(ref.shape)
    if rank < 2 or len(lengths.shape) != 1 or batch not in {0, 1}:
        raise Refused("Its inputs do not fit.")
    parts = []
    for index in range(lengths.shape[0]):
        item = _element(net, ref, batch, index)
        length = of_tensor(net.slice(lengths, [index], [1], [1], base=None))
        zeros, ones = known(*([0] * (rank - 2))), known(*([1] * (rank - 2)))
        starts = join(net, v_sub(net, length, known(1)), zeros)
        sizes = _with_lengths(net, length, item, range(1, rank - 1))
        first = add_slice(net, item, starts, sizes, join(net, known(-1), ones), base=None)
        starts = join(net, length, zeros)
        rest = v_sub(net, of_tensor(axis_length(net, item, 0, (1,))), length)
        sizes = _with_lengths(net, rest, item, range(1, rank - 1))
        second = add_slice(net, item, starts, sizes, known(*([1] * (rank - 1))), base=None)
        whole = net.concat([first, second], 0, base=None)
        whole.shape = item.shape
        parts.append(net.unsqueeze(whole, [batch]))
    if not parts:
        raise Refused("An empty batch.")
    return net.concat(parts, batch)


def _element(net: Network, ref: Ref, batch: int, index: int) -> Ref:
    """One element of the batch."""
    assert ref.shape is not None
    rank = len(ref.shape)
    other = of_tensor(axis_length(net, ref, 1 - batch, (1,)))
    sizes = join(net, known(1), other) if batch == 0 else join(net, other, known(1))
    sizes = _with_lengths(net, sizes, ref, range(2, rank))
    starts = [0] * rank
    starts[batch] = index
    return net.squeeze(add_slice(net, ref, known(*starts), sizes, known(*([1] * rank)), base=None), [batch])


def _with_lengths(net: Network, sizes: Vector, ref: Ref, axes: range) -> Vector:
    for axis in axes:
        sizes = join(net, sizes, of_tensor(axis_length(net, ref, axis, (1,))))
    return sizes


def non_max_suppression(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """NonMaxSuppression to NMS, with the scores transposed."""
    boxes, scores = net.tensor(need(inputs, 0)), net.tensor(need(inputs, 1))
    for ref in (boxes, scores):
        if ref.shape is not None and len(ref.shape) != 3:
            raise Refused("Boxes and scores are of rank 3.")
    limit = inputs[2] if len(inputs) > 2 else None
    if limit is None:
        most = net.constant(0, DType.INT32, ())
    else:
        most = _scalar(net, limit)
        if net.parser.has("int64"):
            largest = net.constant(2**31 - 1, DType.INT64, ())
            most = net.cast(net.elementwise(most, largest, "MIN", base=None), DType.INT32)
    thresholds = [_scalar(net, o) for o in inputs[3:5] if o is not None]
    turned = transpose_to(net, scores, (0, 2, 1))
    attributes = {"center_point_box": integer(node, "center_point_box", 0)}
    index = DType.INT64 if net.parser.has("int64_indices") else DType.INT32
    out, _ = net.add_layer(
        LayerKind.NMS, (boxes, turned, most, *thresholds), ((None, index), ((), DType.INT32)), attributes
    )
    return [net.cast(out, DType.INT64) if net.parser.has("int64") and index is DType.INT32 else out]


def _scalar(net: Network, operand: Ref | Weights) -> Ref:
    """Weights as a scalar CONSTANT of their own; a tensor by SHUFFLE."""
    if not isinstance(operand, Weights):
        return to_scalar(net, operand)
    values = operand.small()
    if values is None or values.size != 1:
        raise Refused("A scalar is wanted.")
    return net.constant(values.reshape(-1)[0], operand.dtype, ())
