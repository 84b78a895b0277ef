"""QuantizeLinear and DequantizeLinear, and NVIDIA's own forms of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.arguments import axis_of, integer, need, refuse_types
from orinport.model.lower.network import Network, Ref, Refused, Unclear, Weights
from orinport.model.lower.types import trt_type_of_code

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Operand, Outputs

    Lowering = Callable[[Network, ir.Node, Inputs], Outputs]

__all__ = ["dequantize", "quantize"]

_QUANTIZED = frozenset({DType.INT8, DType.FP8, DType.INT4, DType.FP4})
_ASYMMETRIC = (
    "The zero point is not zero; the parser takes only symmetric quantization"
    " (asymmetric UINT8 needs its flag kENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA of TensorRT 10.11 and later)."
)


def quantize(custom: DType | None = None) -> Lowering:
    """QuantizeLinear to QUANTIZE; `custom` is the type that NVIDIA's own operators give."""

    def lower(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
        return [_add(net, node, inputs, LayerKind.QUANTIZE, custom)]

    return lower


def dequantize(custom: DType | None = None) -> Lowering:
    """DequantizeLinear to DEQUANTIZE."""

    def lower(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
        return [_add(net, node, inputs, LayerKind.DEQUANTIZE, custom)]

    return lower


def _add(net: Network, node: ir.Node, inputs: Inputs, kind: LayerKind, custom: DType | None) -> Ref:
    back = kind is LayerKind.DEQUANTIZE
    refuse_types(need(inputs, 0), DType.UINT8)
    zero_operand = inputs[2] if len(inputs) > 2 else None
    if zero_operand is None and not net.parser.has("int64") and custom is None:
        raise Refused("The zero point is missing.")
    if zero_operand is not None and not net.parser.has("int64") and not back:
        refuse_types(zero_operand, DType.UINT8)
    data = net.tensor(need(inputs, 0))
    if data.shape is None:
        raise Unclear("The shape of the input is unknown.")
    scale_operand = need(inputs, 1)
    _check_scale(scale_operand)
    scale = net.tensor(scale_operand)
    to = _quantized_type(net, node, zero_operand, custom, back)
    zero, other_than_zero = _zero_point(net, zero_operand, to)
    count = None if scale.shape is None else int(np.prod(scale.shape, dtype=np.int64))
    if zero is not None and zero.shape is not None and count is not None:
        _same_size(zero.shape, count)
    default = 1 if net.parser.has("quantize_axis") and len(data.shape) > 1 else len(data.shape)
    axis = _axis(integer(node, "axis", default), data.shape, scale.shape, count)
    if not data.shape and net.parser.has("int64"):
        data = net.shuffle(data, (1,), base=net.helper("reshapeTensor"))
    out = _output_type(net, node, scale.dtype) if back else to
    if not back and net.parser.has("strongly_typed") and net.opset < 19 and scale.dtype is not data.dtype:
        cast = {"to": data.dtype.value}
        scale = net.add(LayerKind.CAST, (scale,), scale.shape, data.dtype, cast, base=None)
    attributes = {"axis": axis, "zero_point": other_than_zero, "to": out.value}
    refs = (data, scale) if zero is None else (data, scale, zero)
    return net.add(kind, refs, data.shape, out, attributes, constant=data.constant)


def _check_scale(operand: Operand) -> None:
    if not isinstance(operand, Weights) or not operand.dtype.is_float:
        return
    values = operand.read()
    if values is not None and not (np.asarray(values).astype(np.float32) > 0).all():
        raise Refused("Scales must be positive.")


def _quantized_type(
    net: Network, node: ir.Node, zero_operand: Operand | None, custom: DType | None, back: bool
) -> DType:
    """INT8, unless the zero point, `output_dtype` or the operator itself say otherwise."""
    if not net.parser.has("int64"):
        return custom or DType.INT8
    if zero_operand is not None:
        return zero_operand.dtype if zero_operand.dtype in _QUANTIZED else DType.INT8
    code = integer(node, "output_dtype", 0)
    if code and not back:
        wanted = trt_type_of_code(code, net.parser)
        if wanted not in _QUANTIZED:
            raise Refused("TensorRT quantizes to INT8, FP8, INT4 and FP4 only.")
        return wanted
    return custom or DType.INT8


def _output_type(net: Network, node: ir.Node, scale: DType) -> DType:
    code = integer(node, "output_dtype", 0)
    if not code or not net.parser.has("int64"):
        return scale
    wanted = trt_type_of_code(code, net.parser)
    if wanted not in {DType.FP32, DType.FP16, DType.BF16}:
        raise Refused("TensorRT dequantizes to FP32, FP16 and BF16 only.")
    return wanted


def _zero_point(net: Network, operand: Operand | None, to: DType) -> tuple[Ref | None, bool]:
    """The zero point as the layer's third input, and whether it may be other than zero."""
    if operand is None or to is DType.FP8:
        return None, False
    values = operand.read() if isinstance(operand, Weights) else operand.values
    if values is None:
        return net.tensor(operand), True
    if np.asarray(values).astype(np.float32).any():
        raise Refused(_ASYMMETRIC)
    assert operand.shape is not None
    if net.parser.has("int64"):
        return net.constant(0.0, DType.FP32, operand.shape, base="tmp_weight"), False
    zeros = np.zeros(operand.shape, dtype=np.float32)
    return net.tensor(Weights(operand.name, operand.shape, DType.FP32, lambda: zeros)), False


def _same_size(zero: tuple[int, ...], count: int) -> None:
    if int(np.prod(zero, dtype=np.int64)) != count:
        raise Refused("Scale and zero point have different sizes.")


def _axis(axis: int, data: tuple[int, ...], scale: tuple[int, ...] | None, count: int | None) -> int:
    rank = len(data)
    axis = axis_of(axis, rank)
    if count == 1:
        return 0 if rank <= 1 else 1
    if axis == rank:
        axis = 0
    if not data:
        raise Refused("Scales per channel of a scalar.")
    if scale is not None and len(scale) == 1 and count != data[axis]:
        raise Refused(f"{count} scales for {data[axis]} channels.")
    if scale is not None and len(scale) not in {1, rank}:
        raise Refused(f"Scales of rank {len(scale)} for an input of rank {rank}.")
    return axis
