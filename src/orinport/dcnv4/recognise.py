"""Find the DCNv4 operator in its portable form: by structure and constants, never by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from orinport.dcnv4.arguments import Geometry
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["Recognised", "recognise"]

_SLACK = 1e-2
"""Pixels by which a padding that is worked out from rounded constants may miss a whole number."""
_SIDES = range(1, 33)
"""Kernel heights and widths that are tried."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """An operator, its inputs (two, or one fused) and the last node of its form."""

    geometry: Geometry
    inputs: tuple[ir.Value, ...]
    last: ir.Node


class _MismatchError(Exception):
    """The nodes around a GridSample are not those of the portable form."""


def recognise(sampling: ir.Node) -> Recognised | None:
    """The operator whose GridSample this is; None if the nodes around it are not the portable form's."""
    try:
        return _recognise(sampling)
    except _MismatchError:
        return None


def _recognise(sampling: ir.Node) -> Recognised:
    attributes = sampling.attributes
    mode = attributes["mode"].as_string() if "mode" in attributes else "linear"
    padding = attributes["padding_mode"].as_string() if "padding_mode" in attributes else "zeros"
    corners = attributes["align_corners"].as_int() if "align_corners" in attributes else 0
    _require(mode in ("linear", "bilinear") and padding == "zeros" and corners == 0)
    image, grid = sampling.inputs
    _, depth, height, width = _numbers(_producer(image, "Reshape"), 4)
    transposed = _producer(_producer(image, "Reshape").inputs[0], "Transpose")
    _require(_perm(transposed) == [0, 3, 1, 2])
    value = transposed.inputs[0]
    _, pixels, taps, two = _numbers(_producer(grid, "Reshape"), 4)
    _require(two == 2)
    clip = _producer(_producer(grid, "Reshape").inputs[0], "Clip")
    add = _producer(clip.inputs[0], "Add")
    scaled, base = _with_constant(add)
    offsets, scale = _with_constant(_producer(scaled, "Mul"))
    split = _producer(offsets, "Split")
    _require(offsets is split.outputs[0] and len(split.outputs) == 2)
    turned = _producer(split.inputs[0], "Transpose")
    _require(_perm(turned) == [0, 2, 1, 3])
    _, also_pixels, group, slice_width = _numbers(_producer(turned.inputs[0], "Reshape"), 4)
    _require(also_pixels == pixels and slice_width == 3 * taps)
    vectors = _producer(turned.inputs[0], "Reshape").inputs[0]
    last, rows, columns = _tail(sampling, split.outputs[1], pixels, taps, group * depth)
    _require(scale.shape == (2 * taps,) and base.shape == (pixels, 2 * taps))
    geometry = _geometry(scale, base, (height, width), (rows, columns), (group, depth, taps))
    return _with_inputs(geometry, value, vectors, last)


def _tail(sampling: ir.Node, masks: ir.Value, pixels: int, taps: int, channels: int) -> tuple[ir.Node, int, int]:
    """The product with the masks, the sum and the way back to channels last."""
    product = _reader(sampling.outputs[0], "Mul")
    other = next((value for value in product.inputs if value is not sampling.outputs[0]), None)
    spread = _producer(other, "Reshape")
    _require(spread.inputs[0] is masks and _numbers(spread, 4)[1:] == [1, pixels, taps])
    total = _reader(product.outputs[0], "ReduceSum")
    axes = _array(total.inputs[1]) if len(total.inputs) > 1 else np.asarray([])
    _require(axes.tolist() in ([3], [-1]) and "keepdims" in total.attributes)
    _require(total.attributes["keepdims"].as_int() == 0)
    reshape = _reader(total.outputs[0], "Reshape")
    _, also_channels, rows, columns = _numbers(reshape, 4)
    _require(also_channels == channels and rows * columns == pixels)
    back = _reader(reshape.outputs[0], "Transpose")
    _require(_perm(back) == [0, 2, 3, 1])
    return back, rows, columns


def _with_inputs(geometry: Geometry, value: ir.Value | None, vectors: ir.Value | None, last: ir.Node) -> Recognised:
    """Look behind casts and slices: to half inputs, to padded vectors, to one tensor that holds both."""
    whole, start, end = _sliced(vectors)
    if whole is not None and (start, end) == (0, geometry.used_width) and _last(whole) % 8 == 0:
        vectors = whole
    casts = [_maybe(each, "Cast") for each in (value, vectors)]
    if casts[0] is not None and casts[1] is not None:
        value, vectors = casts[0].inputs[0], casts[1].inputs[0]
        last = _reader(last.outputs[0], "Cast")
    (first, a, b), (second, c, d) = _sliced(value), _sliced(vectors)
    channels = geometry.channels
    whole_tensor = first is not None and first is second and (a, b, c, d) == (0, channels, channels, _last(first))
    if first is not None and whole_tensor and geometry.keeps_size:
        return Recognised(geometry, (first,), last)
    if value is None or vectors is None or _last(vectors) < geometry.used_width or _last(vectors) % 8:
        raise _MismatchError
    return Recognised(geometry, (value, vectors), last)


def _geometry(
    scale: NDArray[Any],
    base: NDArray[Any],
    size: tuple[int, int],
    output: tuple[int, int],
    counts: tuple[int, int, int],
) -> Geometry:
    """The geometry whose grid this is."""
    from orinport.dcnv4.portable import grid_constants

    group, depth, taps = counts
    factor = _offset_scale(scale, size)
    pixels = (base.astype(np.float64).reshape(*output, taps, 2) + 1) * np.array([size[1], size[0]]) / 2 - 0.5
    for kernel, remove_center in _kernels(taps):
        candidate = _candidate(pixels, factor, kernel, remove_center, (group, depth), size)
        if candidate is None:
            continue
        try:
            if candidate.output_size(*size) != output:
                continue
        except OrinportError:
            continue
        again_scale, again_base = grid_constants(candidate, size, output, base.dtype)
        if np.array_equal(again_scale, scale) and np.array_equal(again_base, base):
            return candidate
    raise _MismatchError


def _offset_scale(scale: NDArray[Any], size: tuple[int, int]) -> float:
    """The shortest decimal, in single precision, that gives these factors."""
    estimate = float(scale[0]) * size[1] / 2
    for digits in range(1, 10):
        number = float(np.float32(f"{estimate:.{digits}g}"))
        if np.array_equal(np.asarray([2 * number / size[1], 2 * number / size[0]]).astype(scale.dtype), scale[:2]):
            return number
    raise _MismatchError


def _kernels(taps: int) -> Iterator[tuple[tuple[int, int], bool]]:
    """Kernels with that many taps, square ones first, with their centre before those without."""
    shapes = [((h, w), centre) for centre in (False, True) for h in _SIDES for w in _SIDES if h * w - centre == taps]
    yield from sorted(shapes, key=lambda item: (item[0][0] != item[0][1], item[1]))


def _candidate(
    pixels: NDArray[np.float64],
    factor: float,
    kernel: tuple[int, int],
    remove_center: bool,
    counts: tuple[int, int],
    size: tuple[int, int],
) -> Geometry | None:
    """Stride, dilation and padding along both axes from where the taps of (Ho, Wo, K, 2) lie."""
    group, depth = counts
    try:
        blank = Geometry(group, depth, kernel, remove_center=remove_center)
    except OrinportError:
        return None
    found = []
    for axis in (0, 1):
        line = pixels[:, 0, :, 1] if axis == 0 else pixels[0, :, :, 0]
        places = [position[axis] for position in blank.tap_positions]
        numbers = _along_axis(line, places, factor, kernel[axis], size[axis])
        if numbers is None:
            return None
        found.append(numbers)
    (stride_h, pad_h, dilation_h), (stride_w, pad_w, dilation_w) = found
    try:
        return Geometry(
            group,
            depth,
            kernel,
            (stride_h, stride_w),
            (pad_h, pad_w),
            (dilation_h, dilation_w),
            factor,
            remove_center,
        )
    except OrinportError:
        return None


def _along_axis(
    line: NDArray[np.float64], places: list[int], factor: float, kernel: int, size: int
) -> tuple[int, int, int] | None:
    """Stride, padding and dilation from the positions (outputs, K) of taps that lie at `places` of the kernel.

    A kernel whose taps all lie at one place leaves the dilation open, and a single output leaves the stride open:
    then any that gives as many outputs will do.
    """
    outputs = line.shape[0]
    apart = next((tap for tap, place in enumerate(places) if place != places[0]), None)
    dilations = list(range(1, size + kernel + 1)) if kernel > 1 else [1]
    if apart is not None and factor != 0:
        dilations = [round(float(line[0, apart] - line[0, 0]) / (factor * (places[apart] - places[0])))]
    for dilation in dilations:
        half = dilation * (kernel - 1) // 2
        exact = half + factor * (places[0] * dilation - half) - float(line[0, 0])
        padding = round(exact)
        room = size + 2 * padding - dilation * (kernel - 1) - 1
        stride = round(float(line[1, 0] - line[0, 0])) if outputs > 1 else max(1, room + 1)
        fits = stride > 0 and padding >= 0 and room >= 0 and room // stride + 1 == outputs
        if fits and abs(exact - padding) < _SLACK:
            return stride, padding, dilation
    return None


# Small questions to the graph


def _require(condition: bool) -> None:
    if not condition:
        raise _MismatchError


def _producer(value: ir.Value | None, op_type: str) -> ir.Node:
    node = _maybe(value, op_type)
    if node is None:
        raise _MismatchError
    return node


def _maybe(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type == op_type and node.domain == "" else None


def _reader(value: ir.Value, op_type: str) -> ir.Node:
    """The one node that reads a value."""
    readers = {use.node for use in value.uses()}
    _require(len(readers) == 1 and not value.is_graph_output())
    (node,) = readers
    _require(node.op_type == op_type and node.domain == "")
    return node


def _array(value: ir.Value | None) -> NDArray[Any]:
    """The elements of a constant."""
    tensor = None if value is None or value.is_graph_input() else value.const_value
    if tensor is None and value is not None and _maybe(value, "Constant") is not None:
        tensor = ir.convenience.get_const_tensor(value)
    if tensor is None:
        raise _MismatchError
    return tensor.numpy()


def _with_constant(node: ir.Node) -> tuple[ir.Value, NDArray[Any]]:
    """The run-time operand and the constant one."""
    for value, other in (node.inputs, reversed(node.inputs)):
        try:
            array = _array(other)
        except _MismatchError:
            continue
        if value is not None:
            return value, array
    raise _MismatchError


def _numbers(reshape: ir.Node, rank: int) -> list[int]:
    """The dimensions that a Reshape asks for, none of which but the first is left open."""
    numbers = [int(number) for number in _array(reshape.inputs[1])]
    _require(len(numbers) == rank and all(number > 0 for number in numbers[1:]))
    return numbers


def _perm(node: ir.Node) -> list[int]:
    return list(node.attributes["perm"].as_ints()) if "perm" in node.attributes else []


def _sliced(value: ir.Value | None) -> tuple[ir.Value | None, int, int]:
    """What a value is cut from along the last dimension, and where; (None, 0, 0) if it is not."""
    node = _maybe(value, "Slice")
    if node is None or len(node.inputs) not in (4, 5) or node.inputs[0] is None or node.inputs[0].shape is None:
        return None, 0, 0
    try:
        start, end, axis, *step = (_array(each).tolist() for each in node.inputs[1:])
    except _MismatchError:
        return None, 0, 0
    rank = len(node.inputs[0].shape)
    if len(start) != 1 or axis not in ([rank - 1], [-1]) or step not in ([], [[1]]):
        return None, 0, 0
    last = _last(node.inputs[0])
    return node.inputs[0], start[0], min(end[0], last)


def _last(value: ir.Value) -> int:
    dim = value.shape[-1] if value.shape is not None and len(value.shape) else None
    return dim if isinstance(dim, int) else -1
