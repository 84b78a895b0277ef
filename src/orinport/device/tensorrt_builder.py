"""The process that builds with TensorRT's Python package where there is no trtexec.

It takes a folder and trtexec's arguments, prints lines as trtexec does, so that they are kept and explained like its
log, and ends with 0 or 1. A process of its own, since the builder cannot be interrupted otherwise and may take its
process down. Run by `orinport.device.board`, never by hand. What it asks TensorRT for follows trtexec's own source
(samples/common/sampleEngines.cpp of github.com/NVIDIA/TensorRT, 8.5.2 to 11.1). No board has run it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orinport.device.tensorrt_package import import_package
from orinport.device.tensorrt_request import BuildRequest, EdgeRequest, parse_request
from orinport.errors import OrinportError, first_line
from orinport.files import read_bounded
from orinport.precision.cache import parse_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orinport.precision.scales import Scales

__all__ = ["BuildError", "build", "main", "parse_network"]

DTYPES = {
    "fp32": "FLOAT",
    "fp16": "HALF",
    "bf16": "BF16",
    "int8": "INT8",
    "uint8": "UINT8",
    "int32": "INT32",
    "int64": "INT64",
    "bool": "BOOL",
    "fp8": "FP8",
}
"""Element types in trtexec's words and in TensorRT's."""
_LONGEST_CACHE = 1 << 28
_PROGRESS_SECONDS = 1.0


class BuildError(Exception):
    """The build cannot go on; the message is the log's last error line."""


def build(trt: Any, request: BuildRequest, say: Callable[[str, str], None]) -> None:
    """Build what `request` asks for with the module `trt`, in the current folder.

    `say` gets a severity letter (E, W, I, V) and a line. Files appear whole or not at all. Raises BuildError.
    """
    logger = _logger(trt, say, verbose=request.verbose)
    _load_plugins(trt, logger, request.plugins)
    try:
        builder = trt.Builder(logger)
    except (TypeError, RuntimeError) as error:
        raise BuildError("TensorRT gives no builder on this machine: it needs an NVIDIA GPU and its driver") from error
    if request.dla_core >= builder.num_DLA_cores and request.dla_core >= 0:
        raise BuildError(f"Cannot create DLA engine, {request.dla_core} not available")
    config = configure(trt, builder, request)
    network = parse_network(trt, builder, config, logger, request, say)
    constrain(trt, network, config, request, say)
    if hasattr(trt, "IProgressMonitor"):
        config.progress_monitor = _monitor(trt, say)
    started = time.perf_counter()
    serialized = builder.build_serialized_network(network, config)
    if serialized is None:
        raise BuildError("Engine could not be created from network")
    say("I", f"Engine built in {time.perf_counter() - started:.3f} sec.")
    _write(request.engine, serialized)
    if request.timing_cache:
        cache = config.get_timing_cache()
        if cache is not None:
            _write(request.timing_cache, cache.serialize())
    if request.layer_info and not request.standalone:
        _write_layers(trt, logger, serialized, request, say)


def strongly_typed(trt: Any) -> bool:
    """Every network of this version is strongly typed (from TensorRT 11 on): types come from the network alone."""
    return not hasattr(trt.BuilderFlag, "FP16")


def configure(trt: Any, builder: Any, request: BuildRequest) -> Any:
    """The builder's configuration, but for what depends on the network."""
    config = builder.create_builder_config()
    for wanted, flag in (
        (request.fp16, "FP16"),
        (request.int8, "INT8"),
        (request.direct_io, "DIRECT_IO"),
        (request.sparse, "SPARSE_WEIGHTS"),
        (request.constraints == "prefer", "PREFER_PRECISION_CONSTRAINTS"),
        (request.constraints == "obey", "OBEY_PRECISION_CONSTRAINTS"),
    ):
        if wanted:
            config.set_flag(_member(trt, "BuilderFlag", flag))
    if not request.tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    for pool, size in request.pools.items():
        config.set_memory_pool_limit(_member(trt, "MemoryPoolType", pool), size)
    config.profiling_verbosity = _member(trt, "ProfilingVerbosity", request.verbosity)
    if request.optimization_level is not None:
        config.builder_optimization_level = request.optimization_level
    if request.average_timing is not None:
        config.avg_timing_iterations = request.average_timing
    if request.dla_core >= 0:
        _use_dla(trt, config, request)
    if request.timing_cache:
        content = _read(request.timing_cache) if Path(request.timing_cache).is_file() else b""
        config.set_timing_cache(config.create_timing_cache(content), False)
    return config


def _use_dla(trt: Any, config: Any, request: BuildRequest) -> None:
    """As trtexec does: no fallback means no reformat on the GPU either, and what is not INT8 is FP16."""
    config.default_device_type = trt.DeviceType.DLA
    config.DLA_core = request.dla_core
    if request.standalone:
        config.engine_capability = trt.EngineCapability.DLA_STANDALONE
    config.set_flag(trt.BuilderFlag.GPU_FALLBACK if request.gpu_fallback else trt.BuilderFlag.DIRECT_IO)
    if not strongly_typed(trt):
        config.set_flag(trt.BuilderFlag.PREFER_PRECISION_CONSTRAINTS)
        if not request.int8:
            config.set_flag(trt.BuilderFlag.FP16)


def parse_network(
    trt: Any, builder: Any, config: Any, logger: Any, request: BuildRequest, say: Callable[[str, str], None]
) -> Any:
    """The network as TensorRT's parser makes it of the ONNX file."""
    kinds = trt.NetworkDefinitionCreationFlag
    flags = 0
    if request.strongly_typed or strongly_typed(trt):
        flags |= 1 << int(_member(trt, "NetworkDefinitionCreationFlag", "STRONGLY_TYPED"))
    if hasattr(kinds, "EXPLICIT_BATCH"):  # TensorRT 8 needs it, 10 ignores it, 11 is without it
        flags |= 1 << int(kinds.EXPLICIT_BATCH)
    network = builder.create_network(flags)
    parser = trt.OnnxParser(network, logger)
    if request.adjust_for_dla:
        parser.set_flag(_member(trt, "OnnxParserFlag", "ADJUST_FOR_DLA"))
    if request.report_capability_dla:
        parser.set_flag(_member(trt, "OnnxParserFlag", "REPORT_CAPABILITY_DLA"))
        parser.set_builder_config(config)
    if not parser.parse_from_file(request.onnx):
        for index in range(parser.num_errors):
            say("E", f"[TRT] {parser.get_error(index).desc()}")
        raise BuildError("Failed to parse onnx file")
    return network


def constrain(trt: Any, network: Any, config: Any, request: BuildRequest, say: Callable[[str, str], None]) -> None:
    """Formats of inputs and outputs, scales, and what single layers are asked for."""
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    outputs = [network.get_output(index) for index in range(network.num_outputs)]
    of_inputs = _spread(request.inputs, len(inputs), "--inputIOFormats")
    of_outputs = _spread(request.outputs, len(outputs), "--outputIOFormats")
    edges = [*zip(inputs, of_inputs, strict=True), *zip(outputs, of_outputs, strict=True)]
    for tensor, wanted in edges:
        if wanted is None:
            tensor.allowed_formats = 1 << int(trt.TensorFormat.LINEAR)
            continue
        if wanted.dtype and not strongly_typed(trt):
            tensor.dtype = _member(trt, "DataType", DTYPES[wanted.dtype])
        names = ("LINEAR" if name == "chw" else name.upper() for name in wanted.formats)
        tensor.allowed_formats = sum(1 << int(_member(trt, "TensorFormat", name)) for name in names)
    if request.int8:
        _scales(
            trt, network, config, request, [tensor for tensor, wanted in edges if wanted and wanted.dtype == "int8"]
        )
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    if request.constraints:
        for layer, precision in _chosen(layers, request.layer_precisions, say):
            layer.precision = _member(trt, "DataType", DTYPES[precision])
    for layer, device in _chosen(layers, request.layer_devices, say):
        config.set_device_type(layer, getattr(trt.DeviceType, device))


def _scales(trt: Any, network: Any, config: Any, request: BuildRequest, int8_edges: Sequence[Any]) -> None:
    """The calibration cache, and the ranges of INT8 inputs and outputs, which no calibrator sets."""
    quantised = {trt.LayerType.QUANTIZE, trt.LayerType.DEQUANTIZE}
    explicit = any(network.get_layer(index).type in quantised for index in range(network.num_layers))
    if not request.calibration:
        if explicit:
            return
        raise BuildError("INT8 needs scales: a cache of them (--calib), or a network with Q/DQ layers")
    content = _read(request.calibration)
    if not explicit and int8_edges:
        scales = _cache(content, request.calibration)
        for tensor in int8_edges:
            scale = scales.tensors.get(tensor.name)
            if scale is None:
                raise BuildError(f"{request.calibration} has no scale for the INT8 edge {tensor.name}")
            tensor.set_dynamic_range(-127 * scale.value, 127 * scale.value)
    if not hasattr(trt, "IInt8EntropyCalibrator2"):
        raise BuildError(f"TensorRT {trt.__version__} takes no cache of scales; prepare the network for this version")
    config.int8_calibrator = _calibrator(trt, content)


def _cache(content: bytes, name: str) -> Scales:
    try:
        return parse_cache(content.decode("utf-8"), name)
    except UnicodeDecodeError as error:
        raise BuildError(f"{name} is no cache of scales: it is no text") from error
    except OrinportError as error:
        raise BuildError(f"{name} is no cache of scales: {error.message}") from error


def _spread(wanted: tuple[EdgeRequest, ...], count: int, option: str) -> list[EdgeRequest | None]:
    """One request for each tensor; a single one is for all, as in trtexec."""
    if len(wanted) == 1:
        return [wanted[0]] * count
    if wanted and len(wanted) != count:
        raise BuildError(f"{option} has {len(wanted)} entries for {count} tensors")
    return [*wanted] if wanted else [None] * count


def _chosen(
    layers: Sequence[Any], wishes: tuple[tuple[str, str], ...], say: Callable[[str, str], None]
) -> list[tuple[Any, str]]:
    """Layers with what is wished for them: by their name, or else by one with a `*` in it."""
    exact = {name: value for name, value in wishes if "*" not in name}
    wild = [(name, value) for name, value in wishes if "*" in name]
    found: list[tuple[Any, str]] = []
    missing = set(exact)
    for layer in layers:
        value = exact.get(layer.name)
        if value is None:
            pattern = next((v for name, v in wild if fnmatchcase(layer.name, name.replace("[", "[[]"))), None)
            value = pattern
        missing.discard(layer.name)
        if value is not None:
            found.append((layer, value))
    for name in sorted(missing):
        say("W", f"There is no layer {name} to set to {exact[name]}")
    return found


def _member(trt: Any, enum: str, name: str) -> Any:
    """A value of an enumeration. Raises BuildError if this version of TensorRT does not have it."""
    value = getattr(getattr(trt, enum, None), name, None)
    if value is None:
        raise BuildError(f"TensorRT {trt.__version__} has no {enum} {name}; prepare the network for this version")
    return value


def _logger(trt: Any, say: Callable[[str, str], None], *, verbose: bool) -> Any:
    """A logger that writes lines with the letters that trtexec uses."""
    severity = trt.ILogger.Severity
    letters = {severity.INTERNAL_ERROR: "E", severity.ERROR: "E", severity.WARNING: "W", severity.INFO: "I"}

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, text: str) -> None:
            letter = letters.get(severity, "V")
            if verbose or letter != "V":
                say(letter, f"[TRT] {text}")

    return Log()


def _monitor(trt: Any, say: Callable[[str, str], None]) -> Any:
    """Progress as lines, at most one a second."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.steps: dict[str, int] = {}
            self.last = time.monotonic()

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:  # noqa: ARG002
            self.steps[phase_name] = num_steps

        def step_complete(self, phase_name: str, step: int) -> bool:
            now = time.monotonic()
            if now - self.last >= _PROGRESS_SECONDS:
                self.last = now
                say("I", f"progress: {phase_name}, step {step + 1} of {self.steps.get(phase_name, 0)}")
            return True

        def phase_finish(self, phase_name: str) -> None:
            self.steps.pop(phase_name, None)

    return Monitor()


def _calibrator(trt: Any, content: bytes) -> Any:
    """A calibrator that only hands out a finished cache; the DLA wants the second entropy calibrator."""

    class Calibrator(trt.IInt8EntropyCalibrator2):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IInt8EntropyCalibrator2.__init__(self)

        def get_batch_size(self) -> int:
            return 1

        def get_batch(self, names: list[str]) -> None:  # noqa: ARG002
            return None

        def read_calibration_cache(self) -> bytes:
            return content

        def write_calibration_cache(self, cache: Any) -> None:
            """What was read is not written again."""

    return Calibrator()


def _load_plugins(trt: Any, logger: Any, libraries: Sequence[str]) -> None:
    trt.init_libnvinfer_plugins(logger, "")
    for library in libraries:
        _load_library(library)


def _load_library(library: str) -> None:
    try:
        ctypes.CDLL(str(Path(library).resolve()), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise BuildError(f"The plugin library {library} cannot be loaded: {first_line(error)}") from error


def _write_layers(
    trt: Any, logger: Any, serialized: Any, request: BuildRequest, say: Callable[[str, str], None]
) -> None:
    """What TensorRT's engine inspector says of the layers, as JSON."""
    runtime = trt.Runtime(logger)
    if request.dla_core >= 0:
        runtime.DLA_core = request.dla_core
    engine = runtime.deserialize_cuda_engine(serialized)
    if engine is None:
        say("W", "The engine cannot be loaded here, so there is no layer information")
        return
    text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    _write(request.layer_info, text.encode("utf-8"))


def _read(name: str) -> bytes:
    try:
        return read_bounded(Path(name), _LONGEST_CACHE)
    except OSError as error:
        raise BuildError(f"{name} cannot be read: {error.strerror}") from error


def _write(name: str, content: Any) -> None:
    """Write a file whole or not at all."""
    path = Path(name)
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(memoryview(content))
        partial.replace(path)
    except OSError as error:
        raise BuildError(f"{name} cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def main(arguments: Sequence[str]) -> int:
    """Build in the folder that is the first argument; the others are trtexec's."""

    def say(letter: str, text: str) -> None:
        for line in text.splitlines() or [""]:
            print(f"[{letter}] {line}", flush=True)

    def end(outcome: str) -> None:
        print(f"&&&& {outcome} TensorRT.orinport [TensorRT {version}]", flush=True)

    version = "unknown"
    try:
        trt = import_package()
        version = str(trt.__version__)
        say("I", f"TensorRT version: {version}")
        say("I", f"orinport builds through the Python package: {' '.join(arguments[1:])}")
        os.chdir(arguments[0])
        build(trt, parse_request(arguments[1:]), say)
    except (BuildError, OrinportError, OSError) as error:
        say("E", str(error))
        end("FAILED")
        return 1
    end("PASSED")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
