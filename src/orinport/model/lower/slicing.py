"""Operators that pick or put parts of tensors: Slice, Split, Pad, Concat, Gather, Scatter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.arguments import (
    axis_of,
    has,
    integer,
    integers,
    need,
    real,
    refuse_types,
    text,
    whole_numbers,
)
from orinport.model.lower.network import Network, Ref, Refused, Unclear, Weights, pick, slice_attributes
from orinport.model.lower.vector import (
    Vector,
    add_slice,
    gather,
    interlace,
    known,
    of_operand,
    of_tensor,
    shape_of,
    similar,
    subscripts_of,
    v_add,
    v_floor_div,
    v_max,
    v_min,
    v_mul,
    v_sub,
)

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Operand, Outputs

__all__ = [
    "concat",
    "decode_bounds",
    "gather_elements",
    "gather_nd",
    "gather_op",
    "pad",
    "scatter_elements",
    "scatter_nd",
    "slice_op",
    "slice_sizes",
    "split",
]


def concat(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Concat to CONCATENATION."""
    refuse_types(need(inputs, 0), DType.UINT8)
    refs = [net.tensor(need(inputs, i)) for i in range(len(inputs))]
    rank = None if refs[0].shape is None else len(refs[0].shape)
    return [net.concat(refs, axis_of(integer(node, "axis", 0), rank))]


# --- Slice ---------------------------------------------------------------------------------------------------


def _clamp(net: Network, x: Vector, low: Vector, high: Vector) -> Vector:
    return v_min(net, v_max(net, x, low), high)


def _from_the_end(net: Network, dims: Vector, indices: Vector) -> Vector:
    signs = _clamp(net, indices, known(-1), known(0))
    return v_sub(net, indices, v_mul(net, signs, dims))


def decode_bounds(net: Network, dims: Vector, steps: Vector, starts: Vector, ends: Vector) -> tuple[Vector, Vector]:
    """Starts and ends of ONNX, negative or out of range, as positions inside `dims`."""
    sign = _clamp(net, steps, known(-1), known(0))
    starts = _from_the_end(net, dims, starts)
    starts = _clamp(net, starts, known(0), v_add(net, dims, sign))
    ends = _from_the_end(net, dims, ends)
    return starts, _clamp(net, ends, sign, dims)


def slice_sizes(net: Network, starts: Vector, ends: Vector, steps: Vector, dims: Vector) -> Vector:
    """How many elements lie between starts and ends."""
    if steps.known is not None and all(step == 1 for step in steps.known):
        return v_sub(net, ends, starts)
    zeros = similar(net, dims, 0)
    return v_sub(net, zeros, v_floor_div(net, v_sub(net, starts, ends), steps))


def slice_op(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Slice to SLICE.

    Before TensorRT 9, and for INT32 parameters after it, constant parameters become numbers of the layer.
    INT64 parameters are cast first from then on; the parser does not look through that cast and adds the
    layers that compute start and size.
    """
    refuse_types(need(inputs, 0), DType.UINT8)
    ref = net.tensor(need(inputs, 0))
    dims = shape_of(net, ref)
    if dims.size is None:
        raise Unclear("The rank of the input is unknown.")
    if net.opset < 10:
        starts, ends = (known(*(integers(node, name) or ())) for name in ("starts", "ends"))
        axes = known(*(integers(node, "axes") or range(starts.size or 0)))
        steps = similar(net, starts, 1)
    else:
        if net.parser.has("int64") and _static_int32(inputs) and ref.shape is not None:
            return [_static_slice(net, ref, inputs)]
        if net.parser.has("int64"):
            starts, ends = (of_tensor(net.cast(net.tensor(need(inputs, i)), DType.INT64)) for i in (1, 2))
        else:
            starts, ends = (of_operand(net, need(inputs, i)) for i in (1, 2))
        axes_operand = inputs[3] if len(inputs) > 3 else None
        axes = known(*range(dims.size)) if axes_operand is None else of_operand(net, axes_operand)
        steps_operand = inputs[4] if len(inputs) > 4 else None
        steps = similar(net, starts, 1) if steps_operand is None else of_operand(net, steps_operand)
    if any(v.size not in {None, axes.size} for v in (starts, ends, steps)):
        raise Refused("Starts, ends, axes and steps have different lengths.")
    if any(axis_of(axis, dims.size) == dims.size for axis in axes.values or ()):
        raise Refused(f"An axis is out of range for rank {dims.size}.")
    places = axes.known
    if places is None:
        if not net.parser.has("slice_axes"):
            raise Refused("The axes of Slice are not known at build time.")
        return [_slice_with_axes(net, ref, dims, axes, starts, ends, steps)]
    places = tuple(axis_of(axis, dims.size) for axis in places)
    if len(set(places)) != len(places):
        raise Refused("An axis is given twice.")
    if net.parser.has("slice_axes"):
        return [_slice_with_axes(net, ref, dims, known(*places), starts, ends, steps)]
    if places != tuple(range(dims.size)):
        subscripts = subscripts_of(places, dims.size)
        starts = interlace(net, similar(net, dims, 0), starts, subscripts)
        ends = interlace(net, dims, ends, subscripts)
        steps = interlace(net, similar(net, dims, 1), steps, subscripts)
    starts, ends = decode_bounds(net, dims, steps, starts, ends)
    sizes = slice_sizes(net, starts, ends, steps, dims)
    sizes = v_max(net, similar(net, dims, 0), sizes)
    return [add_slice(net, ref, starts, sizes, steps)]


def _slice_with_axes(
    net: Network, ref: Ref, dims: Vector, axes: Vector, starts: Vector, ends: Vector, steps: Vector
) -> Ref:
    part = gather(net, dims, axes)
    starts, ends = decode_bounds(net, part, steps, starts, ends)
    sizes = slice_sizes(net, starts, ends, steps, part)
    zeros = similar(net, part, 0)
    sizes = v_max(net, zeros, sizes)
    places = axes.values
    if places is not None:
        places = tuple(axis_of(axis, dims.size) for axis in places)
    out = add_slice(net, ref, starts, sizes, steps, axes=places)
    if axes.known is None:
        net.append_input(out, axes.tensor(net))
        if places is None:
            out.shape = None
    return out


def _static_int32(inputs: Inputs) -> bool:
    return need(inputs, 1).dtype is DType.INT32 and all(o is not None and o.is_weights for o in inputs[1:5])


def _static_slice(net: Network, ref: Ref, inputs: Inputs) -> Ref:
    """SLICE with all parameters as numbers."""
    assert ref.shape is not None
    rank = len(ref.shape)
    starts, ends = (whole_numbers(need(inputs, i)) or () for i in (1, 2))
    axes = whole_numbers(inputs[3]) if len(inputs) > 3 else None
    steps = whole_numbers(inputs[4]) if len(inputs) > 4 else None
    start, size, stride = [0] * rank, list(ref.shape), [1] * rank
    places = tuple(axis_of(axis, rank) for axis in axes or range(len(starts)))
    if not len(starts) == len(ends) == len(places) == len(steps or starts) or rank in places:
        raise Refused("Starts, ends, axes and steps do not fit.")
    for axis, first, last, step in zip(places, starts, ends, steps or (1,) * len(starts), strict=True):
        if step == 0:
            raise Refused("A step of 0.")
        span = range(*slice(first, last, step).indices(ref.shape[axis]))
        start[axis], size[axis], stride[axis] = span.start, len(span), step
    return net.slice(ref, start, size, stride)


# --- Split ---------------------------------------------------------------------------------------------------


def split(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Split to one SLICE per output."""
    refuse_types(need(inputs, 0), DType.UINT8)
    ref = net.tensor(need(inputs, 0))
    if ref.shape is None:
        raise Unclear("The shape of the input is unknown.")
    rank = len(ref.shape)
    axis = axis_of(integer(node, "axis", 0), rank)
    if axis >= rank:
        raise Refused(f"Axis {axis} is out of range for rank {rank}.")
    count = len(node.outputs)
    if net.opset >= 13 and len(inputs) > 1 and inputs[1] is not None and not inputs[1].is_weights:
        return _runtime_split(net, ref, axis, of_tensor(net.tensor(inputs[1])), count)
    sizes = _split_sizes(net, node, inputs, ref.shape[axis], count)
    if len(sizes) != count:
        raise Refused(f"{len(sizes)} sizes for {count} outputs.")
    outputs: Outputs = []
    start = 0
    for size in sizes:
        if size < 0:
            raise Refused("The last part would have a negative size.")
        begin, extent = [0] * rank, list(ref.shape)
        begin[axis], extent[axis] = start, size
        outputs.append(net.slice(ref, begin, extent, [1] * rank))
        start += size
    return outputs


def _runtime_split(net: Network, ref: Ref, axis: int, sizes: Vector, count: int) -> Outputs:
    """SLICE with sizes, and starts but the first, that are computed in the network."""
    dims = shape_of(net, ref)
    assert dims.size is not None
    subscripts = subscripts_of([axis], dims.size)
    zeros, ones = similar(net, dims, 0), similar(net, dims, 1)
    starts, start = zeros, known(0)
    part = known()
    outputs: Outputs = []
    for index in range(count):
        if index:
            start = v_add(net, start, part)
            starts = interlace(net, zeros, start, subscripts)
        part = gather(net, sizes, known(index))
        extent = interlace(net, dims, part, subscripts)
        outputs.append(add_slice(net, ref, starts, extent, ones))
    return outputs


def _split_sizes(net: Network, node: ir.Node, inputs: Inputs, total: int, count: int) -> tuple[int, ...]:
    given = inputs[1] if net.opset >= 13 and len(inputs) > 1 else None
    if net.opset < 13 and has(node, "split"):
        return integers(node, "split") or ()
    if given is not None:
        sizes = whole_numbers(given)
        if sizes is None:
            raise Refused("The sizes of Split are not known at build time.")
        return sizes
    if not net.parser.has("int64"):
        return (total // count,) * count
    each = -(-total // count)
    return (*([each] * (count - 1)), total - each * (count - 1))


# --- Pad -----------------------------------------------------------------------------------------------------

_PAD_MODES = {"constant": "FILL", "reflect": "REFLECT", "edge": "CLAMP", "wrap": "WRAP"}


def pad(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Pad to SLICE that reads out of bounds: FILL, REFLECT, CLAMP or WRAP."""
    operand = need(inputs, 0)
    refuse_types(operand, DType.UINT8)
    ref = net.tensor(operand)
    if ref.shape is None:
        raise Unclear("The shape of the input is unknown.")
    mode = _PAD_MODES.get(text(node, "mode", "constant"))
    if mode is None or (mode == "WRAP" and not net.parser.has("int64")):
        raise Refused(f"The mode {text(node, 'mode', 'constant')!r} is not taken.")
    rank = len(ref.shape)
    value, value_ref = _pad_value(net, node, inputs)
    axes = _pad_axes(net, inputs, rank)
    pads = _pads(net, node, inputs)
    if pads is None:
        return [_runtime_pad(net, ref, need(inputs, 1), mode, axes)]
    if not any(pads):
        return [net.identity(operand)]
    places = tuple(range(rank)) if axes is None else axes
    if len(pads) != 2 * len(places):
        raise Refused(f"{len(pads)} pads for {len(places)} axes.")
    half = len(places)
    if net.parser.has("pad_axes"):
        out = _pad_by_axes(net, ref, pads[:half], pads[half:], places, mode)
    else:
        before, after = [0] * rank, [0] * rank
        for place, first, last in zip(places, pads[:half], pads[half:], strict=True):
            before[place], after[place] = first, last
        out = _pad_by_tensors(net, ref, before, after, mode)
    if mode == "FILL":
        _fill(net, out, value, value_ref)
    return [out]


def _pads(net: Network, node: ir.Node, inputs: Inputs) -> tuple[int, ...] | None:
    if net.opset < 11:
        return integers(node, "pads") or ()
    operand = need(inputs, 1)
    return whole_numbers(operand) if operand.is_weights else None


def _pad_value(net: Network, node: ir.Node, inputs: Inputs) -> tuple[float, Ref | None]:
    """The fill value: a number, or a tensor that holds it."""
    if net.opset < 11:
        return real(node, "value", 0.0), None
    operand = inputs[2] if len(inputs) > 2 else None
    if operand is None:
        return 0.0, None
    if isinstance(operand, Weights) and operand.dtype in {DType.FP32, DType.FP16, DType.BF16}:
        values = operand.small()
        if values is None or values.size != 1:
            raise Refused("The fill value is not one value.")
        return float(np.asarray(values, dtype=np.float64).reshape(-1)[0]), None
    return 0.0, net.tensor(operand)


def _pad_axes(net: Network, inputs: Inputs, rank: int) -> tuple[int, ...] | None:
    operand = inputs[3] if len(inputs) > 3 else None
    if operand is None:
        return None
    if not net.parser.has("int64"):
        raise Refused("Pad with axes.")
    axes = whole_numbers(operand) if operand.is_weights else None
    if axes is None:
        raise Refused("The axes of Pad are not known at build time.")
    return tuple(axis_of(axis, rank) for axis in axes)


def _pad_by_tensors(net: Network, ref: Ref, before: list[int], after: list[int], mode: str) -> Ref:
    if min(*before, *after) < 0:
        raise Refused("Negative pads.")
    assert ref.shape is not None
    start = net.constant([-b for b in before], net.int64)
    total = net.constant([b + a for b, a in zip(before, after, strict=True)], net.int64)
    size = net.elementwise(shape_of(net, ref).tensor(net), total, "SUM", base=None)
    shape = tuple(d + b + a for d, b, a in zip(ref.shape, before, after, strict=True))
    attributes = slice_attributes(tuple(-b for b in before), shape, (1,) * len(shape), mode)
    return net.add(LayerKind.SLICE, (ref, start, size), shape, ref.dtype, attributes, constant=ref.constant)


def _pad_by_axes(
    net: Network, ref: Ref, before: tuple[int, ...], after: tuple[int, ...], places: tuple[int, ...], mode: str
) -> Ref:
    assert ref.shape is not None
    sizes = tuple(ref.shape[p] + b + a for p, b, a in zip(places, before, after, strict=True))
    start = known(*(-b for b in before))
    return add_slice(net, ref, start, known(*sizes), known(*([1] * len(places))), mode=mode, axes=places)


def _runtime_pad(net: Network, ref: Ref, pads: Operand, mode: str, axes: tuple[int, ...] | None) -> Ref:
    """Pads that are computed in the network: their halves by SLICE, start and size by ELEMENTWISE."""
    assert ref.shape is not None
    rank = len(ref.shape)
    tensor = net.tensor(pads)
    half = rank if axes is None else len(axes)
    named = net.parser.has("pad_axes")
    if axes is not None and not named:
        raise Refused("Pad with axes and runtime pads.")
    before = net.slice(tensor, [0], [half], [1], base="" if named else None)
    after = net.slice(tensor, [half], [half], [1], base="" if named else None)
    if named:
        places = tuple(range(rank)) if axes is None else axes
        part = gather(net, shape_of(net, ref), known(*places))
        start = v_sub(net, similar(net, of_tensor(before), 0), of_tensor(before))
        size = v_add(net, part, v_add(net, of_tensor(before), of_tensor(after)))
        return add_slice(net, ref, start, size, similar(net, start, 1), mode=mode, axes=places)
    zeros = net.constant([0] * rank, net.int64)
    first = net.elementwise(zeros, before, "SUB", base=None)
    total = net.elementwise(before, after, "SUM", base=None)
    size_ref = net.elementwise(shape_of(net, ref).tensor(net), total, "SUM", base=None)
    sizes = None if size_ref.values is None else tuple(int(v) for v in size_ref.values)
    starts = None if first.values is None else tuple(int(v) for v in first.values)
    attributes = slice_attributes(starts, sizes, (1,) * rank, mode)
    return net.add(LayerKind.SLICE, (ref, first, size_ref), sizes, ref.dtype, attributes)


def _fill(net: Network, out: Ref, value: float, value_ref: Ref | None) -> None:
    attributes = net.attributes_of(out)
    if value_ref is not None:
        values = value_ref.values
        attributes["fill_value"] = float(values.reshape(-1)[0]) if values is not None and values.size == 1 else None
        net.append_input(out, value_ref)
        return
    attributes["fill_value"] = value
    if value != 0.0:
        dtype = out.dtype if out.dtype.is_float else DType.FP32 if out.dtype is DType.INT8 else DType.INT32
        net.append_input(out, net.constant(value, dtype, ()))


# --- Gather and Scatter --------------------------------------------------------------------------------------


def _indices(net: Network, data: Operand, operand: Operand, *, always: bool) -> Ref:
    """Indices as the layer wants them: INT32, unless data and indices are INT64 (TensorRT 9 and later)."""
    ref = net.tensor(operand)
    if not net.parser.has("int64") or data.dtype is DType.INT64:
        return ref
    return net.cast(ref, DType.INT32) if always or operand.dtype is DType.INT64 else ref


def gather_op(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Gather to GATHER, mode DEFAULT."""
    operand = need(inputs, 0)
    refuse_types(operand, DType.UINT8)
    data = net.tensor(operand)
    raw = net.tensor(need(inputs, 1))
    rank = None if data.shape is None else len(data.shape)
    axis = axis_of(integer(node, "axis", 0), rank)
    indices = _indices(net, operand, need(inputs, 1), always=False)
    shape = None
    if data.shape is not None and indices.shape is not None:
        shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    values = None
    if data.values is not None and data.values.ndim == 1 and raw.values is not None:
        values = pick(data.values, raw.values)
    attributes = {"mode": "DEFAULT", "axis": axis}
    return [net.add(LayerKind.GATHER, (data, indices), shape, data.dtype, attributes, values=values)]


def gather_elements(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """GatherElements to GATHER, mode ELEMENT."""
    operand = need(inputs, 0)
    refuse_types(operand, DType.UINT8)
    data = net.tensor(operand)
    net.tensor(need(inputs, 1))
    rank = None if data.shape is None else len(data.shape)
    axis = axis_of(integer(node, "axis", 0), rank)
    indices = _indices(net, operand, need(inputs, 1), always=True)
    attributes = {"mode": "ELEMENT", "axis": axis}
    return [net.add(LayerKind.GATHER, (data, indices), indices.shape, data.dtype, attributes)]


def gather_nd(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """GatherND to GATHER, mode ND."""
    operand = need(inputs, 0)
    refuse_types(operand, DType.UINT8)
    data = net.tensor(operand)
    net.tensor(need(inputs, 1))
    indices = _indices(net, operand, need(inputs, 1), always=True)
    attributes = {"mode": "ND", "axis": 0, "batch_dims": integer(node, "batch_dims", 0)}
    return [net.add(LayerKind.GATHER, (data, indices), None, data.dtype, attributes)]


def _add_scatter(net: Network, inputs: Inputs, mode: str, axis: int) -> Ref:
    refuse_types(need(inputs, 0), DType.UINT8)
    data, indices, updates = (net.tensor(need(inputs, i)) for i in range(3))
    if mode == "ELEMENT":
        for part in (indices, updates):
            if part.shape is not None and data.shape is not None and len(part.shape) != len(data.shape):
                raise Refused("Data, indices and updates have different ranks.")
    if net.parser.has("int64") and not net.parser.has("scatter_any_index"):
        kind = {"to": DType.INT32.value}
        indices = net.add(LayerKind.CAST, (indices,), indices.shape, DType.INT32, kind, base=None)
    return net.add(LayerKind.SCATTER, (data, indices, updates), data.shape, data.dtype, {"mode": mode, "axis": axis})


def scatter_elements(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """ScatterElements and Scatter to SCATTER, mode ELEMENT; with a reduction to a plugin (TensorRT 10)."""
    data = need(inputs, 0)
    rank = None if data.shape is None else len(data.shape)
    axis = axis_of(integer(node, "axis", 0), rank)
    reduction = text(node, "reduction", "none")
    if reduction != "none" and net.parser.has("native_instance_norm"):
        refs = [net.tensor(need(inputs, i)) for i in range(3)]
        attributes = {"op_type": "ScatterElements", "domain": ""}
        return [net.add(LayerKind.PLUGIN, refs, refs[0].shape, refs[0].dtype, attributes)]
    if reduction != "none":
        raise Refused("ScatterElements with a reduction.")
    return [_add_scatter(net, inputs, "ELEMENT", axis)]


def scatter_nd(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """ScatterND to SCATTER, mode ND."""
    if text(node, "reduction", "none") != "none":
        raise Refused("ScatterND with a reduction.")
    return [_add_scatter(net, inputs, "ND", 0)]
