"""Resize, Upsample, GridSample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.arguments import axis_of, integer, integers, need, real, reals, refuse_types, text
from orinport.model.lower.network import Network, Ref, Refused, Unclear, Weights
from orinport.model.lower.vector import interlace, of_tensor, shape_of, subscripts_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Operand, Outputs

__all__ = ["grid_sample", "resize", "upsample"]

_MODES = {"nearest": "NEAREST", "linear": "LINEAR", "bilinear": "LINEAR", "cubic": "CUBIC", "bicubic": "CUBIC"}
_COORDINATES = {
    "align_corners": "ALIGN_CORNERS",
    "tf_half_pixel_for_nn": "HALF_PIXEL",
    "pytorch_half_pixel": "HALF_PIXEL",
    "half_pixel": "HALF_PIXEL",
    "asymmetric": "ASYMMETRIC",
}
_ROUNDING = {
    "floor": "FLOOR",
    "ceil": "CEIL",
    "round_prefer_floor": "HALF_DOWN",
    "round_prefer_ceil": "HALF_UP",
}
_WINDOW = {"LINEAR": 3, "CUBIC": 2}
"""How many of the last dimensions TensorRT interpolates over."""


def _settings(net: Network, node: ir.Node) -> dict[str, Any]:
    mode = text(node, "mode", "nearest")
    out: dict[str, Any] = {
        "mode": _MODES.get(mode, "NEAREST"),
        "coordinate_transformation": "ASYMMETRIC",
        "selector": "FORMULA",
        "rounding": "FLOOR" if mode == "nearest" else "HALF_DOWN",
        "scales": None,
        "by_sizes": False,
        "cubic_coefficient": -0.75,
        "exclude_outside": False,
    }
    if net.opset < 11:
        return out
    transformation = text(node, "coordinate_transformation_mode", "half_pixel")
    if transformation not in _COORDINATES:
        raise Refused(f"The coordinate transformation {transformation!r} is not taken.")
    out["coordinate_transformation"] = _COORDINATES[transformation]
    if transformation == "pytorch_half_pixel":
        out["selector"] = "UPPER"
    if transformation == "tf_half_pixel_for_nn":
        out["rounding"] = "CEIL"
        return out
    out["rounding"] = _ROUNDING.get(text(node, "nearest_mode", "round_prefer_floor"), "HALF_DOWN")
    out["exclude_outside"] = integer(node, "exclude_outside", 0) != 0
    if out["mode"] == "CUBIC":
        out["cubic_coefficient"] = real(node, "cubic_coeff_a", -0.75)
    return out


def _numbers(operand: Operand) -> list[float] | None:
    if not isinstance(operand, Weights):
        return None
    values = operand.small()
    return None if values is None else [float(v) for v in np.asarray(values, dtype=np.float64).reshape(-1)]


def resize(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Resize to RESIZE, by scales or by sizes.

    Before TensorRT 9 sizes are an input tensor of the layer (a CONSTANT where they are known).
    """
    refuse_types(need(inputs, 0), DType.BOOL, DType.UINT8)
    ref = net.tensor(need(inputs, 0))
    if ref.shape is None:
        raise Unclear("The shape of the input is unknown.")
    rank = len(ref.shape)
    if rank == 0:
        raise Refused("A scalar cannot be resized.")
    if net.parser.has("int64"):
        if integer(node, "antialias", 0):
            raise Refused("Resize with antialiasing.")
        if (policy := text(node, "keep_aspect_ratio_policy", "stretch")) != "stretch":
            raise Refused(f"keep_aspect_ratio_policy = {policy!r}.")
    attributes = _settings(net, node)
    axes = _axes(net, node, rank)
    sizes = inputs[3] if net.opset >= 11 and len(inputs) > 3 else None
    # With tf_half_pixel_for_nn the parser reads scales only.
    if sizes is not None and text(node, "coordinate_transformation_mode", "") != "tf_half_pixel_for_nn":
        return [_by_sizes(net, ref, sizes, axes, attributes)]
    position = 2 if net.opset >= 11 else 1
    scales = inputs[position] if len(inputs) > position else None
    if scales is None:
        raise Refused("Neither sizes nor scales are given.")
    numbers = _numbers(scales)
    if numbers is not None:
        return [_by_scales(net, ref, numbers, axes, attributes)]
    if axes is not None:
        raise Refused("Resize with axes and runtime scales.")
    out = _add(net, ref, attributes, None)
    net.append_input(out, _runtime_shape(net, ref, scales))
    return [out]


def _axes(net: Network, node: ir.Node, rank: int) -> tuple[int, ...] | None:
    """The axes attribute, None where it is absent or says nothing. The parser before TensorRT 9 ignores it."""
    axes = integers(node, "axes")
    if axes is None or not axes or not net.parser.has("int64"):
        return None
    places = tuple(axis_of(axis, rank) for axis in axes)
    if len(set(places)) != len(places):
        raise Refused("An axis is given twice.")
    return None if places == tuple(range(rank)) else places


def _add(net: Network, ref: Ref, attributes: dict[str, Any], shape: tuple[int, ...] | None) -> Ref:
    return net.add(LayerKind.RESIZE, (ref,), shape, ref.dtype, attributes)


def _by_scales(
    net: Network, ref: Ref, scales: list[float], axes: tuple[int, ...] | None, attributes: dict[str, Any]
) -> Ref:
    assert ref.shape is not None
    rank = len(ref.shape)
    if axes is not None:
        spread = [1.0] * rank
        for axis, scale in zip(axes, scales, strict=False):
            spread[axis] = scale
        scales = spread
    if len(scales) != rank:
        raise Refused(f"{len(scales)} scales for an input of rank {rank}.")
    window = _WINDOW.get(attributes["mode"])
    if window is not None and any(s != 1.0 for s in scales[: max(rank - window, 0)]):
        raise Refused(f"{attributes['mode']} resizing of more than the last {window} dimensions.")
    attributes["scales"] = tuple(scales)
    return _add(net, ref, attributes, tuple(int(d * s) for d, s in zip(ref.shape, scales, strict=True)))


def _by_sizes(net: Network, ref: Ref, sizes: Operand, axes: tuple[int, ...] | None, attributes: dict[str, Any]) -> Ref:
    assert ref.shape is not None
    attributes["by_sizes"] = True
    numbers = _numbers(sizes)
    dims = None if numbers is None else _spread(ref.shape, [int(v) for v in numbers], axes)
    if dims is not None and len(dims) != len(ref.shape):
        raise Refused(f"{len(dims)} sizes for an input of rank {len(ref.shape)}.")
    out = _add(net, ref, attributes, dims)
    if dims is not None and net.parser.has("int64"):
        return out
    wanted = net.tensor(sizes)
    if axes is not None:
        vector = interlace(net, shape_of(net, ref), of_tensor(wanted), subscripts_of(axes, len(ref.shape)))
        wanted = vector.tensor(net)
    net.append_input(out, wanted)
    if dims is None and wanted.values is not None:
        out.shape = tuple(int(v) for v in wanted.values.reshape(-1))
    return out


def _spread(shape: tuple[int, ...], sizes: list[int], axes: tuple[int, ...] | None) -> tuple[int, ...]:
    if axes is None:
        return tuple(sizes)
    dims = list(shape)
    for axis, size in zip(axes, sizes, strict=False):
        dims[axis] = size
    return tuple(dims)


def _runtime_shape(net: Network, ref: Ref, scales: Operand) -> Ref:
    """Scales that are computed in the network, times the shape, rounded down."""
    if net.parser.has("strongly_typed"):
        raise Refused("Scales that are not known at build time, in a strongly typed network.")
    dims = shape_of(net, ref).tensor(net)
    to_float = _cast(net, dims, DType.FP32, "floatCast")
    factor = net.tensor(scales)
    product = net.elementwise(factor, to_float, "PROD", base=net.helper("resizeShapeTensor_prod"))
    floor = net.unary(product, "FLOOR", base=net.helper("resizeShapeTensor_floor"))
    return _cast(net, floor, DType.INT32, "intCast")


def _cast(net: Network, ref: Ref, dtype: DType, name: str) -> Ref:
    kind = LayerKind.CAST if net.parser.has("helper_cast_layer") else LayerKind.IDENTITY
    base = net.helper(f"resizeShapeTensor_{name}")
    return net.add(kind, (ref,), ref.shape, dtype, {"to": dtype.value}, base=base)


def upsample(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Upsample to RESIZE, ASYMMETRIC and FLOOR."""
    refuse_types(need(inputs, 0), DType.BOOL, DType.UINT8)
    ref = net.tensor(need(inputs, 0))
    if ref.shape is None or not ref.shape:
        raise Unclear("The shape of the input is unknown or that of a scalar.")
    attributes: dict[str, Any] = {
        "mode": "LINEAR" if text(node, "mode", "nearest") in {"linear", "bilinear"} else "NEAREST",
        "coordinate_transformation": "ASYMMETRIC",
        "selector": "FORMULA",
        "rounding": "FLOOR",
        "scales": None,
        "by_sizes": False,
        "cubic_coefficient": -0.75,
        "exclude_outside": False,
    }
    if net.opset < 9:
        scales = reals(node, "scales")
        if scales is None:
            raise Refused("The scales are missing.")
        return [_by_scales(net, ref, list(scales), None, attributes)]
    operand = need(inputs, 1)
    numbers = _numbers(operand)
    if numbers is not None:
        return [_by_scales(net, ref, numbers, None, attributes)]
    out = _add(net, ref, attributes, None)
    net.append_input(out, _runtime_shape(net, ref, operand))
    return [out]


def grid_sample(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """GridSample to GRID_SAMPLE."""
    for index in (0, 1):
        refuse_types(need(inputs, index), DType.BOOL, DType.UINT8)
    ref, grid = net.tensor(need(inputs, 0)), net.tensor(need(inputs, 1))
    if ref.shape is not None and grid.shape is not None and len(ref.shape) != len(grid.shape):
        raise Refused("Input and grid have different ranks.")
    samples = {"zeros": "FILL", "border": "CLAMP", "reflection": "REFLECT"}
    attributes = {
        "mode": _MODES.get(text(node, "mode", "bilinear"), "NEAREST"),
        "sample": samples.get(text(node, "padding_mode", "zeros"), "FILL"),
        "align_corners": integer(node, "align_corners", 0) == 1,
    }
    shape = None
    if ref.shape is not None and grid.shape is not None:
        shape = (*ref.shape[:2], *grid.shape[1:-1])
    return [net.add(LayerKind.GRID_SAMPLE, (ref, grid), shape, ref.dtype, attributes)]
