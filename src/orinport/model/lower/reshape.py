"""Operators that move data without changing it: reshapes, transposes, expansion, copies."""

# ruff: noqa: ARG001 - all lowerings have one signature
from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.arguments import axis_of, integer, integers, need, refuse_types, text, whole_numbers
from orinport.model.lower.network import Network, Ref, Refused, Unclear, shaped
from orinport.model.lower.vector import (
    Vector,
    add_slice,
    join,
    known,
    make_shuffle,
    of_operand,
    shape_of,
    similar,
    v_max,
    v_min,
    v_mul,
    v_sub,
)

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Operand, Outputs

__all__ = [
    "depth_to_space",
    "dropout",
    "expand",
    "flatten",
    "flatten_to",
    "identity",
    "reshape",
    "space_to_depth",
    "squeeze",
    "tile",
    "transpose",
    "transpose_to",
    "unsqueeze",
]


def _shape(ref: Ref) -> tuple[int, ...]:
    if ref.shape is None:
        raise Unclear("The shape of the input is unknown.")
    return ref.shape


def reshape(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Reshape to SHUFFLE."""
    ref = net.tensor(need(inputs, 0))
    zero_copies = integer(node, "allowzero", 0) == 0
    shape = of_operand(net, need(inputs, 1)) if net.opset >= 5 else known(*(integers(node, "shape") or ()))
    return [make_shuffle(net, ref, shape, zero_copies=zero_copies)]


def flatten_to(net: Network, ref: Ref, axis: int, *, base: str | None) -> Ref:
    """SHUFFLE to a matrix: what comes before `axis`, and the rest."""
    shape = _shape(ref)
    rows = 1
    for size in shape[:axis]:
        rows *= size
    columns = 1
    for size in shape[axis:]:
        columns *= size
    return net.shuffle(ref, (rows, columns), base=base)


def flatten(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Flatten to SHUFFLE; to IDENTITY where the input is that matrix already."""
    operand = need(inputs, 0)
    ref = net.tensor(operand)
    rank = len(_shape(ref))
    axis = axis_of(integer(node, "axis", 1), rank)
    if rank == 2 and axis == 1:
        return [net.identity(operand)]
    return [flatten_to(net, ref, axis, base="")]


def _axes(net: Network, node: ir.Node, inputs: Inputs) -> tuple[int, ...] | None:
    if net.opset < 13:
        return integers(node, "axes")
    if len(inputs) < 2 or inputs[1] is None:
        return None
    axes = whole_numbers(inputs[1])
    if axes is None:
        raise Refused("The axes are not known at build time.")
    return axes


def _axes_tensor(net: Network, inputs: Inputs, axes: tuple[int, ...]) -> Ref:
    operand = inputs[1] if net.opset >= 13 and len(inputs) > 1 else None
    if operand is None:
        return net.constant(list(axes), DType.INT64)
    ref = net.tensor(operand)
    return net.unsqueeze(ref, [0]) if ref.shape == () else ref


def squeeze(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Squeeze to SHUFFLE; from 10.7 on to SQUEEZE."""
    ref = net.tensor(need(inputs, 0))
    axes = _axes(net, node, inputs)
    if axes is None:
        axes = tuple(i for i, d in enumerate(_shape(ref)) if d == 1)
    rank = None if ref.shape is None else len(ref.shape)
    places = [axis_of(axis, rank) for axis in axes]
    shape = None if ref.shape is None else tuple(d for i, d in enumerate(ref.shape) if i not in places)
    if not net.parser.has("squeeze_layer"):
        return [net.shuffle(ref, shape)]
    values = shaped(ref, shape)
    absent = net.parser.has("squeeze_all") and _axes(net, node, inputs) is None
    refs = (ref,) if absent else (ref, _axes_tensor(net, inputs, axes))
    return [net.add(LayerKind.SQUEEZE, refs, shape, ref.dtype, constant=ref.constant, values=values)]


def unsqueeze(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Unsqueeze to SHUFFLE; from 10.7 on to UNSQUEEZE."""
    ref = net.tensor(need(inputs, 0))
    axes = _axes(net, node, inputs)
    if axes is None:
        axes = integers(node, "axes")
    if axes is None:
        raise Refused("The axes are missing.")
    rank = None if ref.shape is None else len(ref.shape) + len(axes)
    places = sorted(axis_of(axis, rank) for axis in axes)
    shape: tuple[int, ...] | None = None
    if ref.shape is not None:
        dims = list(ref.shape)
        for place in places:
            dims.insert(place, 1)
        shape = tuple(dims)
    if not net.parser.has("squeeze_layer"):
        return [net.shuffle(ref, shape)]
    where = _axes_tensor(net, inputs, axes)
    values = shaped(ref, shape)
    return [net.add(LayerKind.UNSQUEEZE, (ref, where), shape, ref.dtype, constant=ref.constant, values=values)]


def _moves_data(shape: tuple[int, ...], order: tuple[int, ...]) -> bool:
    """Whether the transpose changes the order of elements in memory."""
    last = 0
    for source in order:
        if shape[source] != 1:
            if source < last:
                return True
            last = source
    return False


def transpose_to(net: Network, ref: Ref, order: tuple[int, ...]) -> Ref:
    """SHUFFLE with a transpose; before TensorRT 9 a reshape where only dimensions of size 1 move."""
    if not net.parser.has("plain_transpose") and ref.shape is not None and not _moves_data(ref.shape, order):
        return net.shuffle(ref, tuple(ref.shape[i] for i in order))
    return net.shuffle(ref, first=order)


def transpose(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Transpose to SHUFFLE."""
    operand = need(inputs, 0)
    order = integers(node, "perm")
    if order is None:
        if operand.shape is None:
            raise Unclear("The rank of the input is unknown.")
        order = tuple(reversed(range(len(operand.shape))))
    order = tuple(axis_of(axis, len(order)) for axis in order)
    rank = len(order) if operand.shape is None else len(operand.shape)
    if sorted(order) != list(range(rank)):
        raise Refused("Its permutation does not fit its input.")
    if operand.shape is not None and len(operand.shape) > 8:
        raise Refused(f"Rank {len(operand.shape)}; TensorRT has at most 8 dimensions.")
    return [transpose_to(net, net.tensor(operand), order)]


def expand(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Expand to SLICE with stride 0 in the dimensions that grow, after a SHUFFLE where the rank grows."""
    refuse_types(need(inputs, 0), DType.UINT8)
    ref = net.tensor(need(inputs, 0))
    old = shape_of(net, ref)
    shape = of_operand(net, need(inputs, 1))
    if old.size is None or shape.size is None:
        raise Unclear("The rank of the input is unknown.")
    rank = max(shape.size, old.size)
    dims = join(net, known(*([1] * (rank - old.size))), old)
    if rank != old.size:
        ref = make_shuffle(net, ref, dims, base=net.helper("ShapeShuffle"))
    target = join(net, known(*([1] * (rank - shape.size))), shape)
    sizes = _broadcast(net, dims, target)
    one = known(1)
    strides = v_min(net, one, v_sub(net, dims, one))
    if net.parser.has("pad_axes"):
        strides = v_min(net, one, v_max(net, v_sub(net, dims, one), known(0)))
    return [add_slice(net, ref, similar(net, dims, 0), sizes, strides)]


def _broadcast(net: Network, a: Vector, b: Vector) -> Vector:
    """The broadcast of two shapes, with 0 winning over everything."""
    smallest = v_min(net, a, v_min(net, b, similar(net, b, 1)))
    return v_mul(net, v_max(net, a, b), smallest)


def tile(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Tile to SLICE that wraps around."""
    refuse_types(need(inputs, 0), DType.UINT8)
    ref = net.tensor(need(inputs, 0))
    dims = shape_of(net, ref)
    repeats = of_operand(net, need(inputs, 1))
    sizes = v_mul(net, dims, repeats)
    return [add_slice(net, ref, similar(net, dims, 0), sizes, similar(net, dims, 1), mode="WRAP")]


def _blocks(net: Network, node: ir.Node, inputs: Inputs) -> tuple[Ref, int, tuple[int, ...]]:
    refuse_types(need(inputs, 0), DType.BOOL, DType.UINT8)
    ref = net.tensor(need(inputs, 0))
    shape = _shape(ref)
    if len(shape) != 4:
        raise Refused(f"An input of rank {len(shape)}; only (N, C, H, W) is taken.")
    block = integer(node, "blocksize", 1)
    if block < 1:
        raise Refused(f"blocksize = {block}.")
    return ref, block, shape


def depth_to_space(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """DepthToSpace to two SHUFFLE over six dimensions."""
    ref, block, (n, c, h, w) = _blocks(net, node, inputs)
    deep = c // (block * block)
    if text(node, "mode", "DCR") == "DCR":
        split, order = (n, block, block, deep, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, order = (n, deep, block, block, h, w), (0, 1, 4, 2, 5, 3)
    apart = net.shuffle(ref, split, second=order)
    return [net.shuffle(apart, (n, deep, h * block, w * block), base=net.helper("ShapeShuffle"))]


def space_to_depth(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """SpaceToDepth to two SHUFFLE over six dimensions."""
    if text(node, "mode", "DCR") != "DCR":
        raise Refused("The parser takes every SpaceToDepth for the mode DCR, and would build another function.")
    ref, block, (n, c, h, w) = _blocks(net, node, inputs)
    apart = net.shuffle(ref, (n, c, h // block, block, w // block, block), second=(0, 3, 5, 1, 2, 4))
    shape = (n, c * block * block, h // block, w // block)
    return [net.shuffle(apart, shape, base=net.helper("ShapeShuffle"))]


def identity(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Identity to IDENTITY."""
    ref = net.tensor(need(inputs, 0))
    return [net.add(LayerKind.IDENTITY, (ref,), ref.shape, ref.dtype, values=ref.values)]


def dropout(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Dropout to IDENTITY; a mask is EQUAL (all ones) of the input with itself, before opset 12 LESS."""
    operand = need(inputs, 0)
    if net.opset >= 12 and len(inputs) > 2 and inputs[2] is not None:
        training = whole_numbers(inputs[2])
        if training is None or any(training):
            raise Refused("Dropout in training mode.")
    if sum(1 for output in node.outputs) == 1:
        return [net.identity(operand)]
    out: Operand = net.identity(operand) if net.parser.has("dropout_identity") else operand
    ref = net.tensor(operand)
    return [out, net.elementwise(ref, ref, "EQUAL" if net.opset >= 12 else "LESS", base=None)]
