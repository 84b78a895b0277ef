"""The child process that holds NVIDIA's parser and builder: a model's path in, one line of JSON out.

A node that names a Python-registered plugin ends the whole process, so it must be a process of its own.
Requests come as JSON lines on stdin, answers go to the stdout that the process was started with; what the
libraries print goes to stderr. No GPU is needed. Run by `orinport.device.tensorrt_rtx`, never by hand.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["main"]

_DTYPES = {
    "FLOAT": "fp32",
    "HALF": "fp16",
    "BF16": "bf16",
    "FP8": "fp8",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT4": "int4",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}
_COMPUTE_CAPABILITY = "SM86"
"""The nearest to Orin's 8.7 that tensorrt-rtx builds for."""


def _dims(value: Any) -> list[int] | None:
    try:
        return [int(v) for v in value]
    except (TypeError, ValueError):
        return None


def _bits(mask: Any) -> list[int]:
    return [i for i in range(32) if int(mask) >> i & 1]


def _enum(value: Any) -> str:
    return str(value.name)


def _float(value: Any) -> float:
    return float(value)


def _scale_list(value: Any) -> list[float] | None:
    numbers = [float(v) for v in value]
    return numbers or None


def _order(value: Any) -> list[int]:
    return [int(v) for v in value]


_CONVOLUTION: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    ("kernel", "kernel_size_nd", _dims),
    ("stride", "stride_nd", _dims),
    ("dilation", "dilation_nd", _dims),
    ("pre_padding", "pre_padding", _dims),
    ("post_padding", "post_padding", _dims),
    ("padding_mode", "padding_mode", _enum),
    ("groups", "num_groups", int),
    ("output_maps", "num_output_maps", int),
)
_READERS: dict[str, tuple[str, tuple[tuple[str, str, Callable[[Any], Any]], ...]]] = {
    "CONVOLUTION": ("IConvolutionLayer", _CONVOLUTION),
    "DECONVOLUTION": ("IDeconvolutionLayer", _CONVOLUTION),
    "POOLING": (
        "IPoolingLayer",
        (
            ("type", "type", _enum),
            ("window", "window_size_nd", _dims),
            ("stride", "stride_nd", _dims),
            ("pre_padding", "pre_padding", _dims),
            ("post_padding", "post_padding", _dims),
            ("padding_mode", "padding_mode", _enum),
            ("exclusive", "average_count_excludes_padding", bool),
        ),
    ),
    "ACTIVATION": ("IActivationLayer", (("type", "type", _enum), ("alpha", "alpha", _float), ("beta", "beta", _float))),
    "ELEMENTWISE": ("IElementWiseLayer", (("op", "op", _enum),)),
    "UNARY": ("IUnaryLayer", (("op", "op", _enum),)),
    "SCALE": ("IScaleLayer", (("mode", "mode", _enum), ("channel_axis", "channel_axis", int))),
    "LRN": (
        "ILRNLayer",
        (("window", "window_size", int), ("alpha", "alpha", _float), ("beta", "beta", _float), ("k", "k", _float)),
    ),
    "CONCATENATION": ("IConcatenationLayer", (("axis", "axis", int),)),
    "SOFTMAX": ("ISoftMaxLayer", (("axis", "axes", lambda mask: _bits(mask)[0]),)),
    "REDUCE": ("IReduceLayer", (("op", "op", _enum), ("axes", "axes", _bits), ("keep_dims", "keep_dims", bool))),
    "RESIZE": (
        "IResizeLayer",
        (
            ("mode", "resize_mode", _enum),
            ("coordinate_transformation", "coordinate_transformation", _enum),
            ("selector", "selector_for_single_pixel", _enum),
            ("rounding", "nearest_rounding", _enum),
            ("scales", "scales", _scale_list),
            ("cubic_coefficient", "cubic_coeff", _float),
            ("exclude_outside", "exclude_outside", bool),
        ),
    ),
    "SLICE": (
        "ISliceLayer",
        (
            ("start", "start", _dims),
            ("size", "shape", _dims),
            ("stride", "stride", _dims),
            ("mode", "mode", _enum),
            ("axes", "axes", _dims),
        ),
    ),
    "SHUFFLE": (
        "IShuffleLayer",
        (
            ("first_transpose", "first_transpose", _order),
            ("reshape", "reshape_dims", _dims),
            ("second_transpose", "second_transpose", _order),
        ),
    ),
    "MATRIX_MULTIPLY": ("IMatrixMultiplyLayer", (("op0", "op0", _enum), ("op1", "op1", _enum))),
    "GATHER": ("IGatherLayer", (("mode", "mode", _enum), ("axis", "axis", int))),
    "SCATTER": ("IScatterLayer", (("mode", "mode", _enum), ("axis", "axis", int))),
    "TOPK": ("ITopKLayer", (("op", "op", _enum), ("axes", "axes", _bits), ("k", "k", int))),
    "NORMALIZATION": (
        "INormalizationLayer",
        (("axes", "axes", _bits), ("groups", "num_groups", int), ("epsilon", "epsilon", _float)),
    ),
    "CAST": ("ICastLayer", (("to", "to_type", lambda t: _DTYPES.get(t.name, "unknown")),)),
    "FILL": ("IFillLayer", (("op", "operation", _enum),)),
    "GRID_SAMPLE": (
        "IGridSampleLayer",
        (
            ("mode", "interpolation_mode", _enum),
            ("sample", "sample_mode", _enum),
            ("align_corners", "align_corners", bool),
        ),
    ),
    "CUMULATIVE": ("ICumulativeLayer", (("exclusive", "exclusive", bool), ("reverse", "reverse", bool))),
    "ONE_HOT": ("IOneHotLayer", (("axis", "axis", int),)),
    "EINSUM": ("IEinsumLayer", (("equation", "equation", str),)),
    "QUANTIZE": ("IQuantizeLayer", (("axis", "axis", int),)),
    "DEQUANTIZE": ("IDequantizeLayer", (("axis", "axis", int),)),
}
"""Per kind: the class of TensorRT's API, and which of its properties are which of our attributes."""


class _Holder:
    """TensorRT's objects, made once."""

    def __init__(self) -> None:
        import tensorrt_rtx as trt

        self.trt = trt
        self.messages: list[str] = []
        holder = self

        class _Logger(trt.ILogger):  # type: ignore[misc]
            def __init__(self) -> None:
                trt.ILogger.__init__(self)

            def log(self, severity: Any, text: str) -> None:
                if severity in (trt.Logger.ERROR, trt.Logger.INTERNAL_ERROR):
                    holder.messages.append(text)

        self.logger = _Logger()
        self.builder = trt.Builder(self.logger)

    def network(self) -> Any:
        flag = 1 << int(self.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        return self.builder.create_network(flag)


def _tensor(tensor: Any) -> dict[str, Any] | None:
    if tensor is None:
        return None
    return {"name": tensor.name, "shape": _dims(tensor.shape), "dtype": _DTYPES.get(tensor.dtype.name, "unknown")}


def _attributes(trt: Any, layer: Any, kind: str) -> dict[str, Any]:
    reader = _READERS.get(kind)
    if reader is None:
        return {}
    name, properties = reader
    layer.__class__ = getattr(trt, name)
    read = ((key, _read(layer, attribute, convert)) for key, attribute, convert in properties)
    return {key: value for key, value in read if value is not _ABSENT}


_ABSENT = object()


def _read(layer: Any, attribute: str, convert: Callable[[Any], Any]) -> Any:
    try:
        return convert(getattr(layer, attribute))
    except (TypeError, ValueError, IndexError, AttributeError):
        return _ABSENT


def _layers(trt: Any, network: Any) -> Iterator[dict[str, Any]]:
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        kind = layer.type.name
        entry = {
            "kind": kind,
            "name": layer.name,
            "inputs": [_tensor(layer.get_input(i)) for i in range(layer.num_inputs)],
            "outputs": [_tensor(layer.get_output(i)) for i in range(layer.num_outputs)],
        }
        entry["attributes"] = _attributes(trt, layer, kind)
        yield entry


def _errors(parser: Any) -> list[dict[str, Any]]:
    out = []
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        out.append(
            {
                "node": int(error.node()),
                "name": error.node_name(),
                "operator": error.node_operator(),
                "message": error.desc(),
            }
        )
    return out


def _handle(holder: _Holder, request: dict[str, Any]) -> dict[str, Any]:
    trt = holder.trt
    holder.messages.clear()
    network = holder.network()
    parser = trt.OnnxParser(network, holder.logger)
    parsed = parser.parse_from_file(request["path"])
    answer: dict[str, Any] = {"parsed": bool(parsed), "errors": _errors(parser), "messages": []}
    if request["do"] == "parse":
        answer["layers"] = []
        # After an error the shapes of the last layers cannot be asked for.
        with suppress(RuntimeError, ValueError, TypeError) if not parsed else nullcontext():
            answer["layers"].extend(_layers(trt, network))
    elif parsed:
        answer.update(_build(holder, network))
    answer["messages"] = holder.messages[:20]
    return answer


def _build(holder: _Holder, network: Any) -> dict[str, Any]:
    trt = holder.trt
    config = holder.builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(trt.ComputeCapability, _COMPUTE_CAPABILITY), 0)
    begin = time.perf_counter()
    engine = holder.builder.build_serialized_network(network, config)
    seconds = time.perf_counter() - begin
    return {"built": engine is not None, "seconds": seconds, "bytes": 0 if engine is None else int(engine.nbytes)}


def main() -> None:
    """Answer requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    holder = _Holder()
    answers.write(json.dumps({"ready": str(holder.trt.__version__)}) + "\n")
    answers.flush()
    for line in sys.stdin:
        try:
            answer = _handle(holder, json.loads(line))
        except Exception as error:  # whatever the libraries throw is an answer
            message = f"{type(error).__name__}: {error}"
            entry = {"node": -1, "name": "", "operator": "", "message": message}
            answer = {"parsed": False, "errors": [entry], "messages": [message], "layers": []}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
