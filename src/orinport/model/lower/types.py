"""ONNX element types in TensorRT's terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from orinport.model.layer import DType

if TYPE_CHECKING:
    from orinport.model.lower.version import Parser

__all__ = ["known_type", "trt_type", "trt_type_of_code"]

_TYPES = {
    ir.DataType.FLOAT: DType.FP32,
    ir.DataType.DOUBLE: DType.FP32,
    ir.DataType.FLOAT16: DType.FP16,
    ir.DataType.BFLOAT16: DType.BF16,
    ir.DataType.FLOAT8E4M3FN: DType.FP8,
    ir.DataType.INT8: DType.INT8,
    ir.DataType.UINT8: DType.UINT8,
    ir.DataType.INT4: DType.INT4,
    ir.DataType.FLOAT4E2M1: DType.FP4,
    ir.DataType.INT16: DType.INT16,
    ir.DataType.INT32: DType.INT32,
    ir.DataType.INT64: DType.INT64,
    ir.DataType.BOOL: DType.BOOL,
    ir.DataType.STRING: DType.STRING,
}
_NEW = frozenset({DType.BF16, DType.FP8, DType.INT4, DType.FP4})
"""Types that came with TensorRT 9 and 10."""


def trt_type(dtype: ir.DataType | None, parser: Parser) -> DType:
    """What the parser makes of an element type: doubles become FP32, INT64 becomes INT32 before TensorRT 9."""
    if dtype is None:
        return DType.UNKNOWN
    made = _TYPES.get(dtype, DType.UNKNOWN)
    return DType.INT32 if made is DType.INT64 and not parser.has("int64") else made


def known_type(dtype: ir.DataType | None, parser: Parser) -> bool:
    """Whether a tensor of that element type can be in a network. What is not known counts as yes."""
    if dtype is None or dtype is ir.DataType.UNDEFINED:
        return True
    return trt_type_of_code(int(dtype), parser) is not None


def trt_type_of_code(code: int, parser: Parser) -> DType | None:
    """The type with ONNX's number `code`, or None if TensorRT has none for it."""
    try:
        made = trt_type(ir.DataType(code), parser)
    except ValueError:
        return None
    if made in {DType.UNKNOWN, DType.STRING, DType.INT16} or (made in _NEW and not parser.has("int64")):
        return None
    return made
