"""An engine in TensorRT's Python package: its tensors, where they are bound, and one inference.

TensorRT 8.5 and newer name tensors (`num_io_tensors`, `set_tensor_address`, `execute_async_v3`); older ones number
bindings (`num_bindings`, `execute_async_v2`). Names and signatures are those of the packages 8.6.1, 10.3, 10.16, 11.4.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orinport.device.tensorrt_package import import_package
from orinport.errors import OrinportError, first_line
from orinport.model.layer import DType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Engine", "EngineTensor"]

_DTYPES = {
    "FLOAT": DType.FP32,
    "HALF": DType.FP16,
    "BF16": DType.BF16,
    "FP8": DType.FP8,
    "INT8": DType.INT8,
    "UINT8": DType.UINT8,
    "INT32": DType.INT32,
    "INT64": DType.INT64,
    "BOOL": DType.BOOL,
}


@dataclass(frozen=True, slots=True)
class EngineTensor:
    """An input or output of an engine. `format` is trtexec's name for the memory layout."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    format: str


class Engine:
    """A serialized engine, loaded. `name` is what errors call it; `module` is TensorRT's package if it is not its own.

    Raises OrinportError if there is no package, and if TensorRT does not load the engine.
    """

    def __init__(
        self, content: bytes, name: str, *, dla_core: int = 0, plugins: Sequence[str] = (), module: Any = None
    ) -> None:
        self._trt = import_package() if module is None else module
        self._content, self._name, self._core, self._plugins = content, name, dla_core, tuple(plugins)
        self._messages: list[str] = []
        self._engine: Any = None
        self._context: Any = None
        self._addresses: list[int] = []
        self.version = str(self._trt.__version__)
        self.inputs: tuple[EngineTensor, ...] = ()
        self.outputs: tuple[EngineTensor, ...] = ()

    def prepare(self) -> None:
        """Load the engine, with the CUDA context that is current."""
        self._logger = _logger(self._trt, self._messages)
        self._trt.init_libnvinfer_plugins(self._logger, "")
        for library in self._plugins:
            _load(library)
        try:
            self._runtime = self._trt.Runtime(self._logger)
        except (TypeError, RuntimeError) as error:
            raise self._refused("gives no runtime on this machine") from error
        if self._core and self._runtime.num_DLA_cores <= self._core:
            raise OrinportError(f"There is no DLA core {self._core}: TensorRT finds {self._runtime.num_DLA_cores}.")
        if self._runtime.num_DLA_cores:
            self._runtime.DLA_core = self._core
        self._engine = self._runtime.deserialize_cuda_engine(self._content)
        if self._engine is None:
            raise self._refused(f"does not load {self._name!r}")
        self._context = self._engine.create_execution_context()
        if self._context is None:
            raise self._refused(f"gives no execution context for {self._name!r}")
        tensors = list(self._named() if hasattr(self._engine, "num_io_tensors") else self._numbered())
        self.inputs = tuple(tensor for tensor, is_input in tensors if is_input)
        self.outputs = tuple(tensor for tensor, is_input in tensors if not is_input)

    def bind(self, addresses: Mapping[str, int]) -> None:
        """Say where each tensor is in the device's memory."""
        if hasattr(self._engine, "num_io_tensors"):
            for name, address in addresses.items():
                if not self._context.set_tensor_address(name, address):
                    raise self._refused(f"does not take the address of {name!r}")
        else:
            engine = self._engine
            self._addresses = [addresses[engine.get_binding_name(index)] for index in range(engine.num_bindings)]

    def enqueue(self, stream: int) -> None:
        """One inference in stream order."""
        if self._addresses:
            done = self._context.execute_async_v2(self._addresses, stream)
        else:
            done = self._context.execute_async_v3(stream)
        if not done:
            raise self._refused(f"does not run {self._name!r}")

    def close(self) -> None:
        """Let TensorRT's objects go, the newest first; may be called twice."""
        self._context = None
        self._engine = None
        self._runtime = None

    def _named(self) -> list[tuple[EngineTensor, bool]]:
        engine, trt = self._engine, self._trt
        found = []
        for index in range(engine.num_io_tensors):
            name = engine.get_tensor_name(index)
            if engine.get_tensor_location(name) != trt.TensorLocation.DEVICE:
                raise OrinportError(f"The engine's {name!r} is a shape tensor, which is not fed here.")
            tensor = self._tensor(
                name, engine.get_tensor_shape(name), engine.get_tensor_dtype(name), engine.get_tensor_format(name)
            )
            found.append((tensor, engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT))
        return found

    def _numbered(self) -> list[tuple[EngineTensor, bool]]:
        engine = self._engine
        found = []
        for index in range(engine.num_bindings):
            name = engine.get_binding_name(index)
            if engine.is_shape_binding(index):
                raise OrinportError(f"The engine's {name!r} is a shape tensor, which is not fed here.")
            tensor = self._tensor(
                name, engine.get_binding_shape(index), engine.get_binding_dtype(index), engine.get_binding_format(index)
            )
            found.append((tensor, bool(engine.binding_is_input(index))))
        return found

    def _tensor(self, name: str, shape: Any, dtype: Any, layout: Any) -> EngineTensor:
        kind = _DTYPES.get(str(dtype.name), DType.UNKNOWN)
        spelled = "chw" if layout == self._trt.TensorFormat.LINEAR else str(layout.name).lower()
        return EngineTensor(name, tuple(int(dim) for dim in shape), kind, spelled)

    def _refused(self, what: str) -> OrinportError:
        last = f": {self._messages[-1]}" if self._messages else ""
        return OrinportError(
            f"TensorRT {self.version} {what}{last}.".replace("..", "."),
            "An engine runs only with the TensorRT, and on the kind of device, that built it.",
        )


def _load(library: str) -> None:
    try:
        ctypes.CDLL(str(Path(library).resolve()), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise OrinportError(f"The plugin library {library!r} cannot be loaded: {first_line(error)}.") from error


def _logger(trt: Any, messages: list[str]) -> Any:
    severity = trt.ILogger.Severity
    errors = (severity.INTERNAL_ERROR, severity.ERROR)

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, text: str) -> None:
            if severity in errors:
                messages.append(" ".join(text.split())[:300])

    return Log()
