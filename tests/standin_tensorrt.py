"""A stand-in for TensorRT's Python package that tests our plumbing and nothing else.

Its classes have the members that the real package of that version has (tests/tensorrt_surface/*.json, read off its
bindings) and no other: whoever asks for another one gets an AttributeError, as on a board. What they do is made up: a
"build" notes what was asked of it, an "engine" runs the network in ONNX Runtime on memory whose addresses it was
given. Memory layouts are spelled out here element by element, independently of ours.
"""

from __future__ import annotations

import base64
import ctypes
import json
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime

SURFACES = Path(__file__).with_name("tensorrt_surface")
VERSIONS = ("8.6.1", "10.3.0", "10.16.1", "11.4.0")
BEFORE_NAMES = "8.4.3"
"""No wheel of this version exists: it is 8.6.1 without what names tensors, which came with 8.5."""
_NAMING = ("num_io_tensors", "get_tensor_", "set_tensor_address", "execute_async_v3", "set_input_shape")
_ONNX_TYPES = {1: "FLOAT", 10: "HALF", 3: "INT8", 2: "UINT8", 6: "INT32", 7: "INT64", 9: "BOOL"}
_NUMPY = {"FLOAT": "f4", "HALF": "f2", "INT8": "i1", "UINT8": "u1", "INT32": "i4", "INT64": "i8", "BOOL": "?"}


def surface(version: str) -> dict[str, Any]:
    """The recorded names of a version."""
    if version != BEFORE_NAMES:
        return json.loads((SURFACES / f"{version}.json").read_text())
    found = surface("8.6.1")
    for members in found["classes"].values():
        members[:] = [name for name in members if not name.startswith(_NAMING)]
    return found | {"version": version}


def make(version: str, *, cores: int = 2, fail: str = "", gpu: bool = True) -> Any:
    """The module. `cores` is the number of DLA cores; `fail` makes builds fail with this line in the log."""
    recorded = surface(version)
    trt = SimpleNamespace(__version__=recorded["version"], asked=[])
    for name, members in recorded["enums"].items():
        setattr(trt, name, IntEnum(name, members))
    severity = IntEnum("Severity", {"INTERNAL_ERROR": 0, "ERROR": 1, "WARNING": 2, "INFO": 3, "VERBOSE": 4})
    classes: dict[str, type] = {}

    class Guarded:
        """Only what the real class has can be read or set."""

        _real = ""

        def __getattribute__(self, name: str) -> Any:
            _require(type(self)._real, name)
            return object.__getattribute__(self, name)

        def __setattr__(self, name: str, value: Any) -> None:
            _require(type(self)._real, name)
            object.__setattr__(self, name, value)
            if not name.startswith("_"):
                trt.asked.append((type(self)._real, name, value))

    def _require(real: str, name: str) -> None:
        if not name.startswith("_") and real and name not in recorded["classes"].get(real, ()):
            raise AttributeError(f"{real} of TensorRT {version} has no {name}")

    def known(cls: type) -> type:
        cls._real = cls.__name__  # type: ignore[attr-defined]
        if cls.__name__ in recorded["classes"]:
            classes[cls.__name__] = cls
        return cls

    def note(who: str, what: str, *values: Any) -> None:
        trt.asked.append((who, what, *values))

    class ILogger:
        Severity = severity

    for extension in ("IInt8EntropyCalibrator2", "IProgressMonitor"):
        if extension in recorded["classes"]:
            classes[extension] = type(extension, (), {})

    @known
    class ITensor(Guarded):
        def __init__(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
            object.__setattr__(self, "name", name)
            object.__setattr__(self, "shape", shape)
            object.__setattr__(self, "dtype", trt.DataType[dtype])
            object.__setattr__(self, "allowed_formats", 1)

        def set_dynamic_range(self, low: float, high: float) -> bool:
            note("ITensor", "set_dynamic_range", self.name, low, high)
            self._scale = high / 127
            return True

    @known
    class ILayer(Guarded):
        def __init__(self, name: str, kind: str) -> None:
            object.__setattr__(self, "name", name)
            object.__setattr__(self, "type", trt.LayerType[kind])

    @known
    class INetworkDefinition(Guarded):
        _model = b""
        _inputs: tuple[Any, ...] = ()
        _outputs: tuple[Any, ...] = ()
        _layers: tuple[Any, ...] = ()
        num_inputs = property(lambda self: len(self._inputs))
        num_outputs = property(lambda self: len(self._outputs))
        num_layers = property(lambda self: len(self._layers))

        def get_input(self, index: int) -> Any:
            return self._inputs[index]

        def get_output(self, index: int) -> Any:
            return self._outputs[index]

        def get_layer(self, index: int) -> Any:
            return self._layers[index]

    @known
    class ParserError(Guarded):
        def desc(self) -> str:
            return "the stand-in cannot read this file"

    @known
    class OnnxParser(Guarded):
        def __init__(self, network: Any, logger: Any) -> None:
            self._network, self._errors = network, 0

        num_errors = property(lambda self: self._errors)

        def get_error(self, _: int) -> Any:
            return ParserError()

        def set_flag(self, flag: Any) -> None:
            note("OnnxParser", "set_flag", flag.name)

        def set_builder_config(self, _: Any) -> bool:
            note("OnnxParser", "set_builder_config")
            return True

        def parse_from_file(self, path: str) -> bool:
            try:
                model = onnx.load_model_from_string(Path(path).read_bytes())
            except Exception:
                self._errors = 1
                return False
            network = self._network
            network._model = model.SerializeToString()
            initial = {each.name for each in model.graph.initializer}
            network._inputs = tuple(map(_tensor, (each for each in model.graph.input if each.name not in initial)))
            network._outputs = tuple(map(_tensor, model.graph.output))
            kinds = {"QuantizeLinear": "QUANTIZE", "DequantizeLinear": "DEQUANTIZE", "Conv": "CONVOLUTION"}
            network._layers = tuple(ILayer(node.name, kinds.get(node.op_type, "IDENTITY")) for node in model.graph.node)
            return True

    def _tensor(value: Any) -> Any:
        kind = value.type.tensor_type
        return ITensor(value.name, tuple(d.dim_value for d in kind.shape.dim), _ONNX_TYPES[kind.elem_type])

    @known
    class ITimingCache(Guarded):
        def __init__(self, content: bytes) -> None:
            self._content = content

        def serialize(self) -> bytes:
            return self._content + b"+timed"

    @known
    class IBuilderConfig(Guarded):
        _cache: Any = None

        def set_flag(self, flag: Any) -> None:
            note("IBuilderConfig", "set_flag", flag.name)

        def clear_flag(self, flag: Any) -> None:
            note("IBuilderConfig", "clear_flag", flag.name)

        def set_memory_pool_limit(self, pool: Any, size: int) -> None:
            note("IBuilderConfig", "set_memory_pool_limit", pool.name, size)

        def set_device_type(self, layer: Any, device: Any) -> None:
            note("IBuilderConfig", "set_device_type", layer.name, device.name)

        def create_timing_cache(self, content: bytes) -> Any:
            return ITimingCache(bytes(content))

        def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
            self._cache = cache
            return not ignore_mismatch

        def get_timing_cache(self) -> Any:
            return self._cache

    @known
    class Builder(Guarded):
        def __init__(self, logger: Any) -> None:
            if not gpu:
                logger.log(severity.ERROR, "CUDA initialization failure with error: 35")
                raise TypeError("pybind11::init(): factory function returned nullptr")
            self._logger = logger

        num_DLA_cores = property(lambda _: cores)

        def create_builder_config(self) -> Any:
            return IBuilderConfig()

        def create_network(self, flags: int = 0) -> Any:
            note("Builder", "create_network", flags)
            return INetworkDefinition()

        def build_serialized_network(self, network: Any, config: Any) -> Any:
            if hasattr(config, "progress_monitor"):
                config.progress_monitor.phase_start("Building", None, 2)
                assert config.progress_monitor.step_complete("Building", 0)
                config.progress_monitor.phase_finish("Building")
            calibrator = getattr(config, "int8_calibrator", None)
            if calibrator is not None:
                note("calibrator", calibrator.get_batch_size(), calibrator.get_batch([]))
                note("calibrator", "cache", bytes(calibrator.read_calibration_cache()))
            if fail:
                self._logger.log(severity.ERROR, fail)
                return None
            return serialized(network._model, network._inputs, network._outputs)

    def serialized(model: bytes, inputs: Any, outputs: Any) -> bytes:
        def entry(tensor: Any, is_input: bool) -> dict[str, Any]:
            layout = trt.TensorFormat((tensor.allowed_formats & -tensor.allowed_formats).bit_length() - 1)
            return {
                "name": tensor.name,
                "input": is_input,
                "shape": list(tensor.shape),
                "dtype": tensor.dtype.name,
                "format": layout.name,
                "scale": getattr(tensor, "_scale", 1.0),
            }

        tensors = [*(entry(each, True) for each in inputs), *(entry(each, False) for each in outputs)]
        document = {"version": version, "tensors": tensors, "model": base64.b64encode(model).decode()}
        return json.dumps(document).encode()

    @known
    class EngineInspector(Guarded):
        def get_engine_information(self, form: Any) -> str:
            assert form.name == "JSON"
            return '{"Layers": [{"Name": "stand-in"}]}'

    @known
    class ICudaEngine(Guarded):
        def __init__(self, document: dict[str, Any]) -> None:
            self._tensors = document["tensors"]
            self._model = base64.b64decode(document["model"])

        def _named(self, name: str) -> dict[str, Any]:
            return next(each for each in self._tensors if each["name"] == name)

        num_io_tensors = num_bindings = property(lambda self: len(self._tensors))

        def create_execution_context(self) -> Any:
            return IExecutionContext(self)

        def create_engine_inspector(self) -> Any:
            return EngineInspector()

        def get_tensor_name(self, index: int) -> str:
            return str(self._tensors[index]["name"])

        get_binding_name = get_tensor_name

        def get_tensor_mode(self, name: str) -> Any:
            return trt.TensorIOMode.INPUT if self._named(name)["input"] else trt.TensorIOMode.OUTPUT

        def binding_is_input(self, index: int) -> bool:
            return bool(self._tensors[index]["input"])

        def is_shape_binding(self, _: int) -> bool:
            return False

        def get_tensor_location(self, _: str) -> Any:
            return trt.TensorLocation.DEVICE

        def get_tensor_shape(self, name: str) -> tuple[int, ...]:
            return tuple(self._named(name)["shape"])

        def get_binding_shape(self, index: int) -> tuple[int, ...]:
            return tuple(self._tensors[index]["shape"])

        def get_tensor_dtype(self, name: str) -> Any:
            return trt.DataType[self._named(name)["dtype"]]

        def get_binding_dtype(self, index: int) -> Any:
            return trt.DataType[self._tensors[index]["dtype"]]

        def get_tensor_format(self, name: str) -> Any:
            return trt.TensorFormat[self._named(name)["format"]]

        def get_binding_format(self, index: int) -> Any:
            return trt.TensorFormat[self._tensors[index]["format"]]

    @known
    class IExecutionContext(Guarded):
        def __init__(self, engine: Any) -> None:
            self._engine, self._addresses = engine, {}
            self._session = onnxruntime.InferenceSession(engine._model, providers=["CPUExecutionProvider"])

        def set_tensor_address(self, name: str, address: int) -> bool:
            self._addresses[name] = address
            return True

        def execute_async_v3(self, stream: int) -> bool:
            return bool(stream) and self._run()

        def execute_async_v2(self, bindings: list[int], stream: int) -> bool:
            names = [each["name"] for each in self._engine._tensors]
            self._addresses = dict(zip(names, bindings, strict=True))
            return bool(stream) and self._run()

        def _run(self) -> bool:
            tensors = self._engine._tensors
            feeds = {each["name"]: read(each, self._addresses[each["name"]]) for each in tensors if each["input"]}
            found = self._session.run(None, {name: array.astype(self._type(name)) for name, array in feeds.items()})
            for each, array in zip((each for each in tensors if not each["input"]), found, strict=True):
                write(each, self._addresses[each["name"]], array)
            return True

        def _type(self, name: str) -> str:
            kind = next(each.type for each in self._session.get_inputs() if each.name == name)
            return {"tensor(float)": "f4", "tensor(float16)": "f2"}.get(kind, "f4")

    @known
    class Runtime(Guarded):
        def __init__(self, logger: Any) -> None:
            self._logger = logger

        num_DLA_cores = property(lambda _: cores)

        def deserialize_cuda_engine(self, content: Any) -> Any:
            try:
                document = json.loads(bytes(content))
            except ValueError:
                self._logger.log(severity.ERROR, "the stand-in does not know this engine")
                return None
            return ICudaEngine(document) if document["version"] == version else None

    trt.ILogger = ILogger
    for name, cls in classes.items():
        setattr(trt, name, cls)
    for name in recorded["functions"]:
        setattr(trt, name, lambda *arguments, _name=name: note(_name, *arguments[1:]))
    return trt


def _place(layout: str, n: int, c: int, h: int, w: int, shape: tuple[int, int, int, int], item: int) -> int:
    """The number of the element at (n, c, h, w), as NvInferRuntimeBase.h describes each format, on Orin."""
    _, channels, height, width = shape
    if layout == "LINEAR":
        return ((n * channels + c) * height + h) * width + w
    if layout in ("CHW16", "CHW32"):
        vector = int(layout[3:])
        groups = (channels + vector - 1) // vector
        return ((((n * groups) + c // vector) * height + h) * width + w) * vector + c % vector
    if layout == "DLA_LINEAR":
        row = (width * item + 63) // 64 * 64 // item
        return ((n * channels + c) * height + h) * row + w
    assert layout == "DLA_HWC4", layout
    inner = 1 if channels == 1 else 4
    row = (width * inner * item + 63) // 64 * 64 // item
    return (n * height + h) * row + w * inner + c


def _elements(tensor: dict[str, Any]) -> tuple[tuple[int, int, int, int], list[int], int]:
    dims = [1] * (4 - len(tensor["shape"])) + list(tensor["shape"])
    shape = (dims[0], dims[1], dims[2], dims[3])
    item = np.dtype(_NUMPY[tensor["dtype"]]).itemsize
    places = [_place(tensor["format"], *index, shape, item) for index in np.ndindex(*shape)]
    return shape, places, item


def read(tensor: dict[str, Any], address: int) -> np.ndarray[Any, Any]:
    """The values at an address, in the network's order."""
    _, places, item = _elements(tensor)
    content = ctypes.string_at(address, (max(places) + 1) * item)
    values = np.frombuffer(content, _NUMPY[tensor["dtype"]])[places].reshape(tensor["shape"])
    return values * np.float32(tensor["scale"]) if tensor["dtype"] == "INT8" else values


def write(tensor: dict[str, Any], address: int, array: np.ndarray[Any, Any]) -> None:
    """Values in the network's order to an address."""
    _, places, item = _elements(tensor)
    if tensor["dtype"] == "INT8":
        array = np.clip(np.rint(array / tensor["scale"]), -128, 127)
    values = array.astype(_NUMPY[tensor["dtype"]]).reshape(-1)
    for place, value in zip(places, values, strict=True):
        ctypes.memmove(address + place * item, value.tobytes(), item)
