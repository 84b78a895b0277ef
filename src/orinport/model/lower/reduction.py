"""Reductions, searches and sums along axes: Reduce*, Softmax, ArgMax, TopK, CumSum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.arguments import (
    axis_of,
    has,
    integer,
    integers,
    need,
    refuse_types,
    whole_numbers,
)
from orinport.model.lower.elementwise import chain, unary, zeros_like
from orinport.model.lower.network import Network, Ref, Refused, Unclear, Weights
from orinport.model.lower.reshape import flatten_to
from orinport.model.lower.slicing import decode_bounds, slice_sizes
from orinport.model.lower.vector import (
    add_slice,
    constant_of_shape,
    gather,
    interlace,
    known,
    of_tensor,
    shape_of,
    similar,
    subscripts_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Operand, Outputs

    Lowering = Callable[[Network, ir.Node, Inputs], Outputs]

__all__ = [
    "arg",
    "axis_length",
    "cumsum",
    "hardmax",
    "log_softmax",
    "reduce",
    "reduce_l1",
    "reduce_l2",
    "reduce_log_sum",
    "reduce_log_sum_exp",
    "reduce_sum_square",
    "softmax",
    "to_scalar",
    "topk",
]


def _rank(ref: Ref) -> int:
    if ref.shape is None:
        raise Unclear("The rank of the input is unknown.")
    return len(ref.shape)


# --- Reduce --------------------------------------------------------------------------------------------------


def _axes_operand(net: Network, node: ir.Node, inputs: Inputs) -> Operand | None:
    """The axes input; the parser before TensorRT 9 reads it for ReduceSum only."""
    if len(inputs) < 2:
        return None
    if net.parser.has("int64") or (node.op_type == "ReduceSum" and net.opset >= 13):
        return inputs[1]
    return None


def _add_reduce(net: Network, node: ir.Node, operand: Operand, op: str, axes_operand: Operand | None) -> Operand:
    refuse_types(operand, DType.BOOL, DType.UINT8)
    ref = net.tensor(operand)
    rank = _rank(ref)
    axes = integers(node, "axes") or ()
    if not has(node, "axes") and axes_operand is not None:
        if not isinstance(axes_operand, Weights):
            raise Refused("The axes are not known at build time.")
        axes = whole_numbers(axes_operand) or ()
    if not axes:
        if integer(node, "noop_with_empty_axes", 0) == 1 and net.parser.has("int64"):
            return net.identity(operand)
        axes = tuple(range(rank))
    keep = integer(node, "keepdims", 1) != 0
    return net.reduce(ref, op, [axis_of(axis, rank) for axis in axes], keep)


def _is_copy(net: Network, node: ir.Node, inputs: Inputs) -> bool:
    if not net.parser.has("int64") or integer(node, "noop_with_empty_axes", 0) != 1:
        return False
    return not has(node, "axes") and len(inputs) == 1


def reduce(op: str) -> Lowering:
    """ReduceMax, ReduceMean, ReduceMin, ReduceProd and ReduceSum to REDUCE."""

    def lower(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
        return [_add_reduce(net, node, need(inputs, 0), op, _axes_operand(net, node, inputs))]

    return lower


def reduce_l1(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """ReduceL1 to ABS and REDUCE."""
    if _is_copy(net, node, inputs):
        return [net.identity(need(inputs, 0))]
    (absolute,) = unary("ABS")(net, node, inputs)
    return [_add_reduce(net, node, absolute, "SUM", _axes_operand(net, node, inputs))]


def reduce_sum_square(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """ReduceSumSquare to PROD and REDUCE."""
    if _is_copy(net, node, inputs):
        return [net.identity(need(inputs, 0))]
    ref = net.tensor(need(inputs, 0))
    square = net.elementwise(ref, ref, "PROD", base=None)
    return [_add_reduce(net, node, square, "SUM", _axes_operand(net, node, inputs))]


def reduce_l2(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """ReduceL2 to PROD, REDUCE and SQRT."""
    if _is_copy(net, node, inputs):
        return [net.identity(need(inputs, 0))]
    return unary("SQRT")(net, node, reduce_sum_square(net, node, inputs))


def reduce_log_sum(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """ReduceLogSum to REDUCE and LOG."""
    if _is_copy(net, node, inputs):
        return [net.identity(need(inputs, 0))]
    total = _add_reduce(net, node, need(inputs, 0), "SUM", _axes_operand(net, node, inputs))
    return unary("LOG")(net, node, [total])


def _stable_log_sum_exp(net: Network, node: ir.Node, inputs: Inputs) -> Ref:
    """The maximum, made 0 where it is infinite, is taken off before EXP and put back after LOG."""
    refuse_types(need(inputs, 0), DType.BOOL, DType.UINT8, DType.INT32, DType.INT64)
    ref = net.tensor(need(inputs, 0))
    rank = _rank(ref)
    axes_operand = inputs[1] if len(inputs) > 1 and not has(node, "axes") else None
    if axes_operand is not None and not axes_operand.is_weights:
        raise Refused("The axes are not known at build time.")
    axes = integers(node, "axes") or whole_numbers(axes_operand) or tuple(range(rank))
    axes = tuple(axis_of(axis, rank) for axis in axes)
    keep = integer(node, "keepdims", 1) != 0
    largest = net.reduce(ref, "MAX", axes, True)
    infinite = net.unary(largest, "ISINF")
    zero = net.broadcast(net.constant(0.0, ref.dtype, (), base="tmp_weight"), rank)
    finite = net.select(infinite, zero, largest)
    powers = net.unary(net.elementwise(ref, finite, "SUB"), "EXP")
    total = net.unary(net.reduce(powers, "SUM", axes, keep), "LOG")
    return net.elementwise(total, largest if keep else net.squeeze(largest, sorted(axes)), "SUM")


def reduce_log_sum_exp(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """ReduceLogSumExp to EXP, REDUCE and LOG. The axes input is lost on the way, as in the parser."""
    if _is_copy(net, node, inputs):
        return [net.identity(need(inputs, 0))]
    if net.parser.has("stable_log_sum_exp"):
        return [_stable_log_sum_exp(net, node, inputs)]
    return reduce_log_sum(net, node, list(unary("EXP")(net, node, inputs)))


# --- Softmax -------------------------------------------------------------------------------------------------


def _add_softmax(net: Network, node: ir.Node, ref: Ref) -> Ref:
    rank = _rank(ref)
    axis = axis_of(integer(node, "axis", -1 if net.opset >= 13 else 1), rank)
    if net.opset >= 13:
        return net.add(LayerKind.SOFTMAX, (ref,), ref.shape, ref.dtype, {"axis": axis})
    flat = flatten_to(net, ref, axis, base=net.helper("flattenTensor"))
    return net.add(LayerKind.SOFTMAX, (flat,), flat.shape, flat.dtype, {"axis": 1})


def softmax(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Softmax to SOFTMAX and a SHUFFLE to the input's shape; before opset 13 on a matrix."""
    ref = net.tensor(need(inputs, 0))
    out = _add_softmax(net, node, ref)
    return [net.shuffle(out, ref.shape, base=net.helper("ShapeShuffle"))]


def log_softmax(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """LogSoftmax to SOFTMAX, LOG and a SHUFFLE to the input's shape."""
    ref = net.tensor(need(inputs, 0))
    out = net.unary(_add_softmax(net, node, ref), "LOG", base=None)
    return [net.shuffle(out, ref.shape, base=net.helper("ShapeShuffle"))]


def axis_length(net: Network, ref: Ref, axis: int, shape: tuple[int, ...] = (), *, native: bool = False) -> Ref:
    """The length of an axis as a tensor of the given shape: a scalar, or one element."""
    if not net.parser.has("axis_length_shape"):
        if ref.shape is None:
            raise Unclear("The shape of the input is unknown.")
        return net.constant(ref.shape[axis], DType.INT32, shape)
    rank = _rank(ref)
    import numpy as np

    dims = np.asarray(ref.shape, dtype=np.int64)
    whole = net.add(LayerKind.SHAPE, (ref,), (rank,), DType.INT64, base=None, constant=True, values=dims)
    if not native:
        to = {"to": DType.INT32.value}
        whole = net.add(LayerKind.CAST, (whole,), (rank,), DType.INT32, to, base=None, values=dims)
    part = net.slice(whole, [axis], [1], [1], base=net.helper("extractDimension"))
    if shape == (1,):
        return part
    return net.shuffle(part, shape, base=net.helper("extractDimensionReshape"))


def hardmax(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Hardmax to TOPK and ONE_HOT."""
    source = net.tensor(need(inputs, 0))
    refuse_types(source, DType.INT64, DType.INT32, DType.INT8, DType.UINT8, DType.BOOL)
    rank = _rank(source)
    axis = axis_of(integer(node, "axis", 1 if net.opset < 13 else -1), rank)
    ref = source
    if net.opset < 13:
        ref, axis = flatten_to(net, source, axis, base=""), 1
    assert ref.shape is not None
    kept = (*ref.shape[:axis], 1, *ref.shape[axis + 1 :])
    attributes = {"op": "MAX", "k": 1, "axes": (axis,)}
    _, index = net.add_layer(LayerKind.TOPK, (ref,), ((kept, ref.dtype), (kept, DType.INT32)), attributes, base=None)
    index = net.squeeze(index, [axis])
    values = net.constant([0, 1], DType.INT32)
    depth = axis_length(net, ref, axis)
    hot = net.add(LayerKind.ONE_HOT, (index, values, depth), ref.shape, DType.INT32, {"axis": axis}, base=None)
    if net.opset < 13 and hot.shape != source.shape:
        hot = net.shuffle(hot, source.shape, base=net.helper("reshapeTensor"))
    return [net.cast(hot, source.dtype)]


# --- ArgMax, TopK --------------------------------------------------------------------------------------------


def to_scalar(net: Network, operand: Operand) -> Ref:
    """The one element of `operand` as a scalar."""
    ref = net.tensor(operand)
    if ref.shape == ():
        return ref
    if ref.shape is not None and any(d != 1 for d in ref.shape):
        raise Refused("A scalar is wanted.")
    return net.shuffle(ref, (), base=net.helper("convertToScalar"))


def arg(op: str) -> Lowering:
    """ArgMax or ArgMin to TOPK with k = 1."""

    def lower(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
        operand = need(inputs, 0)
        refuse_types(operand, DType.UINT8)
        ref = net.tensor(operand)
        if ref.dtype is DType.INT32 and not net.parser.has("int64"):
            if not net.parser.has("topk_runtime_k"):
                raise Refused("ArgMax and ArgMin do not take INT32.")
            ref = net.cast(ref, DType.FP32)
        rank = _rank(ref)
        axis = axis_of(integer(node, "axis", 0), rank)
        last = integer(node, "select_last_index", 0) != 0
        searched = _flipped(net, ref, axis) if last else ref
        assert searched.shape is not None
        kept = (*searched.shape[:axis], 1, *searched.shape[axis + 1 :])
        attributes = {"op": op, "k": 1, "axes": (axis,)}
        _, index = net.add_layer(LayerKind.TOPK, (searched,), ((kept, ref.dtype), (kept, DType.INT32)), attributes)
        if net.parser.has("int64"):
            index = net.cast(index, DType.INT64)
        if last:
            index = _counted_from_front(net, ref, index, axis)
        if not integer(node, "keepdims", 1):
            index = net.squeeze(index, [axis])
        return [net.cast(index, DType.INT64) if net.parser.has("int64") else index]

    return lower


def _flipped(net: Network, ref: Ref, axis: int) -> Ref:
    dims = shape_of(net, ref)
    rank = _rank(ref)
    starts, ends, steps = known(-1), known(-(2**31)), known(-1)
    if rank > 1:
        subscripts = subscripts_of([axis], rank)
        starts = interlace(net, similar(net, dims, 0), starts, subscripts)
        ends = interlace(net, dims, ends, subscripts)
        steps = interlace(net, similar(net, dims, 1), steps, subscripts)
    starts, ends = decode_bounds(net, dims, steps, starts, ends)
    sizes = slice_sizes(net, starts, ends, steps, dims)
    return add_slice(net, ref, starts, sizes, steps, base=net.helper("ShapeSlice"))


def _counted_from_front(net: Network, ref: Ref, index: Ref, axis: int) -> Ref:
    dims, index_dims = shape_of(net, ref), shape_of(net, index)
    length = gather(net, dims, known(axis)).tensor(net)
    total = constant_of_shape(net, length, of_tensor(index_dims.tensor(net)))
    one = known(1).tensor(net)
    ones = constant_of_shape(net, one, of_tensor(index_dims.tensor(net)))
    return net.tensor(chain(net, [total, index, ones], "SUB"))


def topk(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """TopK to TOPK; vectors get a second dimension, indices become INT64 from TensorRT 9 on."""
    operand = need(inputs, 0)
    refuse_types(operand, DType.UINT8)
    ref = net.tensor(operand)
    rank = _rank(ref)
    axis = axis_of(integer(node, "axis", -1), rank)
    flat = rank == 1
    if flat:
        ref = net.unsqueeze(ref, [1])
    whole = ref.dtype is DType.INT32 and not net.parser.has("int64")
    if whole:
        if not net.parser.has("topk_runtime_k"):
            raise Refused("TopK does not take INT32.")
        ref = net.cast(ref, DType.FP32)
    largest = net.opset < 11 or integer(node, "largest", 1) != 0
    k_operand = inputs[1] if net.opset >= 10 and len(inputs) > 1 else None
    numbers = whole_numbers(k_operand) if k_operand is not None else (integer(node, "k", 1),)
    k = numbers[0] if numbers else None
    if k is None and not net.parser.has("topk_runtime_k"):
        raise Refused("K is not known at build time.")
    assert ref.shape is not None
    shape = None if k is None else (*ref.shape[:axis], k, *ref.shape[axis + 1 :])
    attributes = {"op": "MAX" if largest else "MIN", "k": k, "axes": (axis,)}
    # The layer comes first, the scalar K after it.
    index_type = DType.INT64 if net.parser.has("int64_indices") else DType.INT32
    values, indices = net.add_layer(
        LayerKind.TOPK, (ref,), ((shape, ref.dtype), (shape, index_type)), attributes, constant=ref.constant
    )
    if k_operand is not None and net.parser.has("topk_runtime_k"):
        net.append_input(values, to_scalar(net, k_operand))
    if flat:
        values, indices = net.squeeze(values, [1]), net.squeeze(indices, [1])
    if whole:
        values = net.cast(values, DType.INT32)
    if net.parser.has("int64") and not net.parser.has("int64_indices"):
        indices = net.cast(indices, DType.INT64)
    return [values, indices]


# --- CumSum --------------------------------------------------------------------------------------------------


def cumsum(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """CumSum to CUMULATIVE; before 10.8 to a loop that adds slices."""
    ref = net.tensor(need(inputs, 0))
    exclusive = integer(node, "exclusive", 0) != 0
    reverse = integer(node, "reverse", 0) != 0
    operand = need(inputs, 1)
    if net.parser.has("cumulative_layer"):
        axis_ref = net.tensor(operand)
        if axis_ref.shape is not None and len(axis_ref.shape) == 1:
            axis_ref = net.squeeze(axis_ref, [0])
        attributes = {"op": "SUM", "exclusive": exclusive, "reverse": reverse}
        return [net.add(LayerKind.CUMULATIVE, (ref, axis_ref), ref.shape, ref.dtype, attributes, constant=ref.constant)]
    axes = whole_numbers(operand) if isinstance(operand, Weights) else None
    if not axes:
        raise Refused("The axis of CumSum is not known at build time.")
    axis = axis_of(axes[0], _rank(ref))
    if axis >= _rank(ref):
        raise Refused(f"Axis {axis} is out of range for rank {_rank(ref)}.")
    return [_cumsum_loop(net, ref, axis, exclusive, reverse)]


def _cumsum_loop(net: Network, ref: Ref, axis: int, exclusive: bool, reverse: bool) -> Ref:
    part = _first_slice(net, ref, axis)
    shape = ref.shape
    assert shape is not None
    if exclusive:
        zero = zeros_like(net, part)
        ref = net.concat([ref, zero] if reverse else [zero, ref], axis, base=None)
        start = [0] * len(shape)
        start[axis] = 1 if reverse else 0
        ref = net.slice(ref, start, shape, [1] * len(shape), base=net.helper("ShapeSlice"))
    limit = axis_length(net, ref, axis)
    net.add_layer(LayerKind.TRIP_LIMIT, (limit,), (), {"limit": "COUNT"}, base=None)
    rest = (*shape[:axis], *shape[axis + 1 :])
    item = net.add(LayerKind.ITERATOR, (ref,), rest, ref.dtype, {"axis": axis, "reverse": reverse}, base=None)
    part = net.squeeze(part, [axis])
    zero = zeros_like(net, part)
    state = net.add(LayerKind.RECURRENCE, (zero,), rest, ref.dtype, base=None, constant=ref.constant)
    total = net.elementwise(item, state, "SUM", base=None)
    net.append_input(state, total)
    attributes = {"output": "REVERSE" if reverse else "CONCATENATE", "axis": axis}
    return net.add(LayerKind.LOOP_OUTPUT, (total, limit), shape, ref.dtype, attributes, base=None)


def _first_slice(net: Network, ref: Ref, axis: int) -> Ref:
    """The first element along `axis`; the lengths of the axes are taken as the parser takes them."""
    rank = _rank(ref)
    from orinport.model.lower.vector import Vector, join

    def length(index: int) -> Vector:
        tensor = axis_length(net, ref, index, (1,), native=True)
        return of_tensor(tensor)

    axis_size = length(axis)
    sizes = known(1) if axis == 0 else length(0)
    strides = axis_size if axis == 0 else known(1)
    for index in range(1, rank):
        if index == axis:
            strides, sizes = join(net, strides, axis_size), join(net, sizes, known(1))
        else:
            other = length(index)
            strides, sizes = join(net, strides, known(1)), join(net, sizes, other)
    return add_slice(net, ref, known(*([0] * rank)), sizes, strides, base=net.helper("ShapeSlice"))
