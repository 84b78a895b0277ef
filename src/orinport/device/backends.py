"""What a network runs on: ONNX Runtime here, an engine through TensorRT's Python package, a loadable through cuDLA.

A backend takes the network's inputs as arrays and gives its outputs as arrays; what the device wants in memory is its
own affair. Only ONNX Runtime has run for real on the machines that orinport was written on.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.device.closing import Closing
from orinport.device.cuda_driver import CudaDriver
from orinport.device.cudla_session import CudlaSession, CudlaTensor
from orinport.device.tensor_layout import TensorLayout
from orinport.device.tensorrt_engine import Engine
from orinport.errors import OrinportError, first_line
from orinport.files import read_bounded
from orinport.model.layer import DType
from orinport.model.runtime import open_session
from orinport.precision.data import InputSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from orinport.targets.target import Platform

__all__ = ["Backend", "CudlaBackend", "Edge", "OnnxBackend", "TensorRTBackend"]

Arrays = dict[str, "NDArray[Any]"]

_LARGEST_FILE = 1 << 32


@dataclass(frozen=True, slots=True)
class Edge:
    """What is known of an input or output before it runs: from a bundle's report, or from the command line."""

    name: str
    """Empty: the loadable's, by its place."""
    shape: tuple[int, ...]
    """Empty: the loadable's."""
    dtype: DType
    format: str


class Backend(Closing):
    """Runs a network; a context manager. Inputs and outputs have the names and shapes of the bundle's model."""

    name: str
    """`onnxruntime`, `tensorrt` or `cudla`."""
    description: str
    """Software and device, for people."""
    spans: str
    """What a time is the time of."""

    inputs: tuple[str, ...] = ()
    """Names of the inputs."""
    outputs: tuple[str, ...] = ()
    layouts: tuple[TensorLayout, ...] = ()
    """Inputs and outputs as the device has them in memory, the inputs first."""
    specs: tuple[InputSpec, ...] = ()
    """What the inputs are fed as: real values wherever the device computes with them."""

    def __init__(self) -> None:
        self.us: list[float] = []

    @abstractmethod
    def run(self, feeds: Mapping[str, NDArray[Any]], *, warm_up: int = 0, repeat: int = 1) -> Arrays:
        """The outputs; the time of each repetition is added to `us`. Raises OrinportError."""


class OnnxBackend(Backend):
    """A model in ONNX Runtime on the CPU, in FP32 or whatever type it is written in."""

    name = "onnxruntime"
    spans = "inference on this machine's CPU, copies included"

    def __init__(self, source: bytes | str) -> None:
        super().__init__()
        import onnxruntime

        try:
            self._session: Any = open_session(source)
        except Exception as error:  # onnxruntime has no class of its own for these
            raise OrinportError(f"ONNX Runtime does not run the network: {first_line(error)}") from error
        self.description = f"ONNX Runtime {onnxruntime.__version__} on the CPU"
        self.inputs = tuple(each.name for each in self._session.get_inputs())
        self.outputs = tuple(each.name for each in self._session.get_outputs())

    def run(self, feeds: Mapping[str, NDArray[Any]], *, warm_up: int = 0, repeat: int = 1) -> Arrays:
        given = {each.name: _as_type(_fed(feeds, each.name), each.type) for each in self._session.get_inputs()}
        found: list[Any] = []
        try:
            for number in range(warm_up + max(1, repeat)):
                start = time.perf_counter()
                found = self._session.run(list(self.outputs), given)
                if number >= warm_up:
                    self.us.append((time.perf_counter() - start) * 1e6)
        except Exception as error:  # onnxruntime has no class of its own for these
            raise OrinportError(f"ONNX Runtime does not run the network: {first_line(error)}") from error
        return dict(zip(self.outputs, found, strict=True))

    def close(self) -> None:
        self._session = None


_REAL = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}


def _as_type(array: NDArray[Any], kind: str) -> NDArray[Any]:
    """Real values in the type that the network takes; everything else as it is."""
    if array.dtype.kind != "f" or kind not in _REAL:
        return array
    converted: NDArray[Any] = array.astype(_REAL[kind], copy=False)
    return converted


class TensorRTBackend(Backend):
    """An engine through TensorRT's Python package, on the GPU and the DLA of this machine."""

    name = "tensorrt"
    spans = "inference between two events of a CUDA stream, without the copies"

    def __init__(
        self,
        path: Path,
        *,
        scales: Mapping[str, float],
        platform: Platform,
        dla_core: int = 0,
        plugins: Sequence[str] = (),
        module: Any = None,
    ) -> None:
        super().__init__()
        self._engine = Engine(_content(path), path.name, dla_core=dla_core, plugins=plugins, module=module)
        self._cuda: CudaDriver | None = None
        try:
            self._cuda = CudaDriver()
            self._engine.prepare()
            self._layouts = {
                tensor.name: TensorLayout(
                    tensor.name, tensor.shape, tensor.dtype, tensor.format, scales.get(tensor.name), platform
                )
                for tensor in (*self._engine.inputs, *self._engine.outputs)
            }
            self._buffers = {name: self._cuda.allocate(layout.size) for name, layout in self._layouts.items()}
            self._engine.bind({name: buffer.address for name, buffer in self._buffers.items()})
            self._start, self._end = self._cuda.event(), self._cuda.event()
            self.specs = tuple(_spec(self._layouts[tensor.name]) for tensor in self._engine.inputs)
            self.inputs = tuple(spec.name for spec in self.specs)
            self.outputs = tuple(tensor.name for tensor in self._engine.outputs)
            self.layouts = tuple(self._layouts.values())
            self.description = f"TensorRT {self._engine.version} on {self._cuda.device_name}"
        except BaseException:
            self.close()
            raise

    def run(self, feeds: Mapping[str, NDArray[Any]], *, warm_up: int = 0, repeat: int = 1) -> Arrays:
        cuda = self._cuda
        assert cuda is not None
        packed = {
            tensor.name: self._layouts[tensor.name].pack(_fed(feeds, tensor.name)) for tensor in self._engine.inputs
        }
        for name, content in packed.items():
            cuda.upload(content, self._buffers[name])
        for _ in range(warm_up):
            self._engine.enqueue(cuda.stream)
        for _ in range(max(1, repeat)):
            cuda.record(self._start)
            self._engine.enqueue(cuda.stream)
            cuda.record(self._end)
            cuda.synchronize()
            self.us.append(cuda.elapsed_us(self._start, self._end))
        outputs = {}
        for tensor in self._engine.outputs:
            outputs[tensor.name] = np.empty(self._layouts[tensor.name].size, np.uint8)
            cuda.download(self._buffers[tensor.name], outputs[tensor.name])
        cuda.synchronize()
        return {name: self._layouts[name].unpack(content) for name, content in outputs.items()}

    def close(self) -> None:
        self._engine.close()
        if self._cuda is not None:
            self._cuda.close()
            self._cuda = None


class CudlaBackend(Backend):
    """A standalone loadable through cuDLA, without TensorRT, in hybrid mode."""

    name = "cudla"
    spans = "one DLA task between two events of a CUDA stream, without the copies"

    def __init__(
        self,
        path: Path,
        inputs: Sequence[Edge] | None,
        outputs: Sequence[Edge] | None,
        *,
        scales: Mapping[str, float],
        platform: Platform,
        dla_core: int = 0,
        statistics: bool = False,
    ) -> None:
        """Without `inputs` or `outputs` the loadable's own descriptors count, where they leave no doubt."""
        super().__init__()
        content = _content(path)
        self._cuda: CudaDriver | None = CudaDriver()
        self._session: CudlaSession | None = None
        try:
            self._session = CudlaSession(self._cuda, content, core=dla_core, statistics=statistics)
            layouts = (
                self._matched(inputs, "input", scales, platform),
                self._matched(outputs, "output", scales, platform),
            )
            self._in, self._out = layouts
            self.specs = tuple(_spec(layout) for layout in self._in.values())
            self.inputs = tuple(spec.name for spec in self.specs)
            self.outputs = tuple(layout.name for layout in self._out.values())
            self.layouts = (*self._in.values(), *self._out.values())
            self.description = f"cuDLA {self._session.version}, DLA core {dla_core} (hardware {self._session.hardware})"
        except BaseException:
            self.close()
            raise

    def run(self, feeds: Mapping[str, NDArray[Any]], *, warm_up: int = 0, repeat: int = 1) -> Arrays:
        assert self._session is not None
        packed = {own: layout.pack(_fed(feeds, layout.name)) for own, layout in self._in.items()}
        found, times = self._session.run(packed, warm_up=warm_up, repeat=repeat)
        self.us += times
        return {layout.name: layout.unpack(found[own]) for own, layout in self._out.items()}

    def statistics(self, frequency_mhz: int) -> list[str]:
        """Layer statistics of the last task as CSV."""
        assert self._session is not None
        return self._session.statistics_csv(frequency_mhz)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
        if self._cuda is not None:
            self._cuda.close()
            self._cuda = None

    def _matched(
        self, given: Sequence[Edge] | None, kind: str, scales: Mapping[str, float], platform: Platform
    ) -> dict[str, TensorLayout]:
        """Layouts by the loadable's own names: equal names, or cut to a descriptor's length, or the only one.

        Raises OrinportError where a name has no counterpart, or the bytes are not as many as the descriptor says.
        """
        assert self._session is not None
        tensors = self._session.inputs if kind == "input" else self._session.outputs
        edges = [_described(tensor) for tensor in tensors] if given is None else given
        if len(tensors) != len(edges):
            raise OrinportError(f"The loadable has {len(tensors)} {kind}s, and the network {len(edges)}.")
        layouts = {}
        for index, tensor in enumerate(tensors):
            chosen = _match(tensor.name, index, edges)
            if chosen is None:
                raise OrinportError(f"The loadable's {kind} {tensor.name!r} is none of the network's.")
            name, shape = chosen.name or tensor.name, chosen.shape or tensor.shape
            layout = TensorLayout(name, shape, chosen.dtype, chosen.format, scales.get(name), platform)
            if layout.size != tensor.size:
                asked = f"{chosen.dtype.value}:{chosen.format} of {'x'.join(map(str, shape))}"
                raise OrinportError(
                    f"The loadable has {tensor.size} bytes for {tensor.name!r}, and {asked} takes {layout.size}; it "
                    f"says {tensor.data_type}, {tensor.data_format}, {tensor.data_category}, strides {tensor.strides}.",
                    "Give its formats with --input-formats and --output-formats.",
                )
            layouts[tensor.name] = layout
        return layouts


def _spec(layout: TensorLayout) -> InputSpec:
    real = layout.dtype is DType.FP16 or (layout.dtype is DType.INT8 and layout.scale is not None)
    return InputSpec(layout.name, layout.shape, "float32" if real else layout.numpy_dtype.name)


def _match(name: str, index: int, edges: Sequence[Edge]) -> Edge | None:
    """The edge of this name, cut or not; one without a name is meant by its place; an only one is meant anyhow."""
    near = [edge for edge in edges if _cut(edge.name) == name]
    if len(near) == 1:
        return near[0]
    if len(edges) == 1 or not edges[index].name:
        return edges[index]
    return None


def _cut(name: str) -> str:
    from orinport.device.cudla_api import DESCRIPTOR_NAME_LENGTH

    return name.encode("utf-8")[:DESCRIPTOR_NAME_LENGTH].decode("utf-8", "replace")


_DESCRIBED = {("INT8", "NCXHWX"): (DType.INT8, "chw32"), ("HALF", "NCXHWX"): (DType.FP16, "chw16")}
"""Packed feature maps: the only formats that TensorRT documents for loadables with channels side by side."""


def _described(tensor: CudlaTensor) -> Edge:
    """What a descriptor says by itself. Raises OrinportError where it does not settle the format."""
    found = _DESCRIBED.get((tensor.data_type, tensor.data_format))
    if found is None or tensor.data_category != "FEATURE":
        raise OrinportError(
            f"The descriptor of {tensor.name!r} leaves its format open: {tensor.data_type}, {tensor.data_format}, "
            f"{tensor.data_category}.",
            "Give --input-formats and --output-formats, or run the bundle.",
        )
    return Edge(tensor.name, tensor.shape, *found)


def _fed(feeds: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    if name not in feeds:
        raise OrinportError(f"There is no array for the input {name!r}; there are {', '.join(feeds) or 'none'}.")
    return feeds[name]


def _content(path: Path) -> bytes:
    try:
        content = read_bounded(path, _LARGEST_FILE)
    except OSError as error:
        raise OrinportError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    if not content:
        raise OrinportError(f"{str(path)!r} is empty.", "Build it again.")
    return content
