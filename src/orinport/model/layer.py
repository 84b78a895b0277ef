"""Layers: what TensorRT's parser makes of an ONNX graph, in TensorRT's terms.

`lower()` gives these values; rules, placement and prediction read them and never look at ONNX again.
The attributes of each kind are listed in `ATTRIBUTES`; names and values are those of NvInfer.h without
the leading `k` (`MAX`, `STRICT_BOUNDS`). Spatial values are pairs `(height, width)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ATTRIBUTES", "DType", "Layer", "LayerKind", "Tensor"]


class DType(str, Enum):
    """Element type of a tensor, named as in NvInfer.h where TensorRT has it."""

    FP64 = "fp64"
    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    UINT8 = "uint8"
    INT4 = "int4"
    FP4 = "fp4"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"
    STRING = "string"
    UNKNOWN = "unknown"

    @property
    def is_float(self) -> bool:
        """True for the floating-point types."""
        return self in (DType.FP64, DType.FP32, DType.FP16, DType.BF16, DType.FP8)


class LayerKind(str, Enum):
    """`nvinfer1::LayerType`, and two kinds of our own at the end."""

    CONVOLUTION = "CONVOLUTION"
    FULLY_CONNECTED = "FULLY_CONNECTED"
    DECONVOLUTION = "DECONVOLUTION"
    POOLING = "POOLING"
    ACTIVATION = "ACTIVATION"
    ELEMENTWISE = "ELEMENTWISE"
    SCALE = "SCALE"
    LRN = "LRN"
    CONCATENATION = "CONCATENATION"
    RESIZE = "RESIZE"
    UNARY = "UNARY"
    SLICE = "SLICE"
    SOFTMAX = "SOFTMAX"
    SHUFFLE = "SHUFFLE"
    REDUCE = "REDUCE"
    PARAMETRIC_RELU = "PARAMETRIC_RELU"
    MATRIX_MULTIPLY = "MATRIX_MULTIPLY"
    GATHER = "GATHER"
    SCATTER = "SCATTER"
    TOPK = "TOPK"
    CONSTANT = "CONSTANT"
    IDENTITY = "IDENTITY"
    CAST = "CAST"
    SELECT = "SELECT"
    FILL = "FILL"
    SHAPE = "SHAPE"
    NON_ZERO = "NON_ZERO"
    EINSUM = "EINSUM"
    ONE_HOT = "ONE_HOT"
    GRID_SAMPLE = "GRID_SAMPLE"
    NMS = "NMS"
    REVERSE_SEQUENCE = "REVERSE_SEQUENCE"
    NORMALIZATION = "NORMALIZATION"
    RAGGED_SOFTMAX = "RAGGED_SOFTMAX"
    RNN_V2 = "RNN_V2"
    QUANTIZE = "QUANTIZE"
    DEQUANTIZE = "DEQUANTIZE"
    DYNAMIC_QUANTIZE = "DYNAMIC_QUANTIZE"
    CUMULATIVE = "CUMULATIVE"
    PADDING = "PADDING"
    ASSERTION = "ASSERTION"
    SQUEEZE = "SQUEEZE"
    UNSQUEEZE = "UNSQUEEZE"
    TRIP_LIMIT = "TRIP_LIMIT"
    RECURRENCE = "RECURRENCE"
    ITERATOR = "ITERATOR"
    LOOP_OUTPUT = "LOOP_OUTPUT"
    CONDITION = "CONDITION"
    CONDITIONAL_INPUT = "CONDITIONAL_INPUT"
    CONDITIONAL_OUTPUT = "CONDITIONAL_OUTPUT"
    ATTENTION_INPUT = "ATTENTION_INPUT"
    ATTENTION_OUTPUT = "ATTENTION_OUTPUT"
    ROTARY_EMBEDDING = "ROTARY_EMBEDDING"
    KV_CACHE_UPDATE = "KV_CACHE_UPDATE"
    PLUGIN = "PLUGIN"
    """An operator that only a plugin can run; attributes name it."""
    UNSUPPORTED = "UNSUPPORTED"
    """An operator that the parser of this version does not take: the network cannot be built."""


ATTRIBUTES: Mapping[LayerKind, Mapping[str, str]] = {
    LayerKind.CONVOLUTION: {
        "kernel": "(kh, kw); for 3-D three values, for 1-D (1, kw) or as TensorRT makes it",
        "stride": "(sh, sw)",
        "dilation": "(dh, dw)",
        "pre_padding": "(top, left)",
        "post_padding": "(bottom, right)",
        "padding_mode": "EXPLICIT_ROUND_DOWN | EXPLICIT_ROUND_UP | SAME_UPPER | SAME_LOWER (padding worked out)",
        "groups": "int",
        "output_maps": "int, K",
        "has_bias": "bool",
        "constant_kernel": "bool: weights are build-time constants",
        "weight_values": "int: number of kernel weights, 0 if not constant",
    },
    LayerKind.DECONVOLUTION: {
        "kernel": "(kh, kw)",
        "stride": "(sh, sw)",
        "dilation": "(dh, dw)",
        "pre_padding": "(top, left)",
        "post_padding": "(bottom, right)",
        "padding_mode": "EXPLICIT_ROUND_DOWN | EXPLICIT_ROUND_UP | SAME_UPPER | SAME_LOWER (padding worked out)",
        "groups": "int",
        "output_maps": "int, K",
        "has_bias": "bool",
        "constant_kernel": "bool",
        "weight_values": "int",
    },
    LayerKind.FULLY_CONNECTED: {"output_maps": "int", "has_bias": "bool", "weight_values": "int"},
    LayerKind.POOLING: {
        "type": "MAX | AVERAGE | MAX_AVERAGE_BLEND",
        "window": "(h, w)",
        "stride": "(h, w)",
        "pre_padding": "(top, left)",
        "post_padding": "(bottom, right)",
        "padding_mode": "as for CONVOLUTION",
        "exclusive": "bool: average_count_excludes_padding (count_include_pad = 0)",
        "round_up": "bool: ceil mode",
    },
    LayerKind.ACTIVATION: {
        "type": "RELU | SIGMOID | TANH | LEAKY_RELU | ELU | SELU | SOFTSIGN | SOFTPLUS | CLIP | HARD_SIGMOID"
        " | SCALED_TANH | THRESHOLDED_RELU | GELU_ERF | GELU_TANH",
        "alpha": "float (CLIP: lower bound)",
        "beta": "float (CLIP: upper bound)",
    },
    LayerKind.ELEMENTWISE: {
        "op": "SUM | PROD | MAX | MIN | SUB | DIV | POW | FLOOR_DIV | AND | OR | XOR | EQUAL | GREATER | LESS"
    },
    LayerKind.SCALE: {
        "mode": "UNIFORM | CHANNEL | ELEMENTWISE",
        "has_power": "bool",
        "channel_axis": "int",
        "weight_values": "int",
    },
    LayerKind.LRN: {
        "window": "int",
        "alpha": "float",
        "beta": "float",
        "k": "float",
        "across_channels": "bool",
    },
    LayerKind.CONCATENATION: {"axis": "int, from 0"},
    LayerKind.RESIZE: {
        "mode": "NEAREST | LINEAR | CUBIC",
        "coordinate_transformation": "ALIGN_CORNERS | ASYMMETRIC | HALF_PIXEL | ...",
        "selector": "FORMULA | UPPER",
        "rounding": "HALF_UP | HALF_DOWN | FLOOR | CEIL",
        "scales": "tuple of float, one per dimension, or None when given by sizes",
        "by_sizes": "bool: setOutputDimensions() was used",
        "cubic_coefficient": "float",
        "exclude_outside": "bool",
    },
    LayerKind.UNARY: {"op": "EXP | LOG | SQRT | RECIP | ABS | NEG | SIN | COS | TAN | ... | NOT | SIGN | ROUND"},
    LayerKind.SLICE: {
        "start": "tuple of int or None if not constant",
        "size": "tuple of int or None",
        "stride": "tuple of int or None",
        "mode": "STRICT_BOUNDS | WRAP | CLAMP | FILL | REFLECT",
        "fill_value": "float or None",
        "axes": "tuple of int or None",
    },
    LayerKind.SOFTMAX: {"axis": "int, from 0"},
    LayerKind.SHUFFLE: {
        "first_transpose": "permutation or None",
        "reshape": "tuple of int (result shape) or None",
        "second_transpose": "permutation or None",
    },
    LayerKind.REDUCE: {
        "op": "SUM | PROD | MAX | MIN | AVG | NONE",
        "axes": "tuple of int",
        "keep_dims": "bool",
    },
    LayerKind.PARAMETRIC_RELU: {"constant_slope": "bool"},
    LayerKind.MATRIX_MULTIPLY: {
        "op0": "NONE | TRANSPOSE | VECTOR",
        "op1": "NONE | TRANSPOSE | VECTOR",
    },
    LayerKind.GATHER: {"mode": "DEFAULT | ELEMENT | ND", "axis": "int"},
    LayerKind.SCATTER: {"mode": "ELEMENT | ND", "axis": "int"},
    LayerKind.TOPK: {"op": "MAX | MIN", "k": "int or None", "axes": "tuple of int"},
    LayerKind.CONSTANT: {
        "values": "int: number of elements",
        "scalar": "float or None: the value if uniform",
    },
    LayerKind.CAST: {"to": "DType value"},
    LayerKind.IDENTITY: {"to": "DType value or absent"},
    LayerKind.NORMALIZATION: {"axes": "tuple of int", "groups": "int", "epsilon": "float"},
    LayerKind.QUANTIZE: {
        "axis": "int or None",
        "zero_point": "bool: any non-zero zero point",
        "to": "DType value",
    },
    LayerKind.DEQUANTIZE: {"axis": "int or None", "zero_point": "bool", "to": "DType value"},
    LayerKind.CUMULATIVE: {"op": "SUM", "exclusive": "bool", "reverse": "bool"},
    LayerKind.EINSUM: {"equation": "str"},
    LayerKind.FILL: {"op": "LINSPACE | RANDOM_UNIFORM | RANDOM_NORMAL"},
    LayerKind.GRID_SAMPLE: {
        "mode": "NEAREST | LINEAR | CUBIC",
        "sample": "FILL | CLAMP | REFLECT",
        "align_corners": "bool",
    },
    LayerKind.ONE_HOT: {"axis": "int"},
    LayerKind.TRIP_LIMIT: {"limit": "COUNT | WHILE"},
    LayerKind.ITERATOR: {"axis": "int", "reverse": "bool"},
    LayerKind.LOOP_OUTPUT: {"output": "LAST_VALUE | CONCATENATE | REVERSE", "axis": "int"},
    LayerKind.ATTENTION_INPUT: {"causal": "bool"},
    LayerKind.REVERSE_SEQUENCE: {"batch_axis": "int", "sequence_axis": "int"},
    LayerKind.PLUGIN: {"op_type": "str", "domain": "str"},
    LayerKind.UNSUPPORTED: {
        "op_type": "str",
        "domain": "str",
        "reason": "str",
        "certain": "bool: False where only a shape that could not be found out stands in the way",
    },
}
"""What `Layer.attributes` holds, by kind. Kinds that are missing here carry none that rules depend on."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor between layers.

    `shape` is concrete, or None when it could not be found out (a rule then answers `unknown`).
    `constant` says that its values are known at build time.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: DType
    constant: bool = False

    @property
    def rank(self) -> int | None:
        """Number of dimensions, None if unknown."""
        return None if self.shape is None else len(self.shape)

    @property
    def volume(self) -> int | None:
        """Number of elements, None if unknown."""
        return None if self.shape is None else prod(self.shape)

    @property
    def batch(self) -> int | None:
        """TensorRT's batch on the DLA: the product of all dimensions but the last three."""
        return None if self.shape is None else prod(self.shape[:-3])

    @property
    def chw(self) -> tuple[int, int, int] | None:
        """The last three dimensions, missing ones as 1 in front; None if the shape is unknown."""
        if self.shape is None:
            return None
        c, h, w = (1, 1, 1, *self.shape)[-3:]
        return c, h, w


@dataclass(frozen=True, slots=True)
class Layer:
    """One TensorRT layer and the ONNX nodes that it came from.

    `nodes` are display names: the node's name, or `OpType:output` for an unnamed node.
    `inputs` holds runtime inputs and constants that TensorRT sees as tensors; weights that are part of
    the layer (a convolution's kernel) are attributes.
    """

    index: int
    name: str
    kind: LayerKind
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    nodes: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Any:
        """The attribute `key`; KeyError means a defect in lowering."""
        return self.attributes[key]

    @property
    def is_constant(self) -> bool:
        """Everything that it gives is known at build time: TensorRT folds it, it runs nowhere."""
        return bool(self.outputs) and all(t.constant for t in self.outputs)

    @property
    def folds(self) -> bool:
        """TensorRT computes it while building: a constant, or a layer that gives constants only."""
        for tensor in self.outputs:
            if not tensor.constant:
                return self.kind is LayerKind.CONSTANT
        return bool(self.outputs)

    @property
    def runtime_inputs(self) -> tuple[Tensor, ...]:
        """Inputs that are not build-time constants."""
        return tuple(t for t in self.inputs if not t.constant)
