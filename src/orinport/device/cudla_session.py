"""A DLA loadable run through cuDLA in hybrid mode: memory from CUDA, tasks on a CUDA stream.

The order of calls is the one that NVIDIA's API reference prescribes: create the device, load the module, ask for its
tensors, register memory, submit, wait for the stream, ask for errors, and undo everything backwards. Wait and signal
events have to be NULL in hybrid mode: the stream orders the tasks. No DLA has run this code; the tests run it against a
library that checks the calls and computes nothing.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.device import cudla_api as api
from orinport.device.closing import Closing
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from orinport.device.cuda_driver import CudaDriver, DeviceBuffer

__all__ = ["CudlaSession", "CudlaTensor"]

_ALIGNMENT = 32
"""Of registered memory, in bytes: cudla.h, cudlaMemRegister."""
_MOST_TENSORS = 1024
_LONGEST_CSV = 1 << 28


@dataclass(frozen=True, slots=True)
class CudlaTensor:
    """An input or output of a loadable, as its descriptor says."""

    name: str
    size: int
    """Bytes."""
    shape: tuple[int, int, int, int]
    """(N, C, H, W)."""
    data_format: str
    data_type: str
    data_category: str
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Registered:
    buffer: DeviceBuffer
    mapped: ctypes.c_void_p
    """What the DLA calls this memory."""


class CudlaSession(Closing):
    """One loadable on one DLA core; a context manager.

    `statistics` asks for layer statistics. Raises OrinportError if there is no cuDLA, and what cuDLA refuses.
    """

    def __init__(self, cuda: CudaDriver, loadable: bytes, *, core: int = 0, statistics: bool = False) -> None:
        self._cuda = cuda
        self._library = api.load_cudla()
        self._device = ctypes.c_void_p()
        self._module = ctypes.c_void_p()
        self._registered: list[_Registered] = []
        # cuDLA reads the module from here for as long as it is loaded.
        self._loadable = (ctypes.c_uint8 * max(1, len(loadable))).from_buffer_copy(loadable or b"\0")
        self._require_core(core)
        self._call("cudlaCreateDevice", core, ctypes.byref(self._device), api.Mode.HYBRID)
        try:
            self._load(len(loadable))
            self.inputs = self._tensors(
                api.ModuleAttribute.NUM_INPUT_TENSORS, api.ModuleAttribute.INPUT_TENSOR_DESCRIPTORS
            )
            self.outputs = self._tensors(
                api.ModuleAttribute.NUM_OUTPUT_TENSORS, api.ModuleAttribute.OUTPUT_TENSOR_DESCRIPTORS
            )
            self.statistics = self._statistics() if statistics else ()
            self._in = [self._register(tensor.size) for tensor in self.inputs]
            self._out = [self._register(tensor.size) for tensor in self.outputs]
            self._stat = [self._register(tensor.size, api.TASK_STATISTICS) for tensor in self.statistics]
            self._start, self._end = cuda.event(), cuda.event()
        except BaseException:
            self.close()
            raise

    @property
    def version(self) -> str:
        """Of cuDLA: major.minor.patch."""
        number = ctypes.c_uint64()
        self._call("cudlaGetVersion", ctypes.byref(number))
        return f"{number.value // 1_000_000}.{number.value // 1000 % 1000}.{number.value % 1000}"

    @property
    def hardware(self) -> str:
        """Version of the DLA: 1 on Xavier, 2 on Orin."""
        attribute = api.CudlaDeviceAttribute()
        self._call("cudlaDeviceGetAttribute", self._device, api.DeviceAttribute.DEVICE_VERSION, ctypes.byref(attribute))
        return str(attribute.deviceVersion)

    def run(
        self, feeds: Mapping[str, NDArray[np.uint8]], *, warm_up: int = 0, repeat: int = 1
    ) -> tuple[dict[str, NDArray[np.uint8]], list[float]]:
        """Run on the bytes of every input; gives those of every output, and the time of each repetition in us.

        A time is that between two events of the stream around one task, without the copies.
        """
        for tensor, place in zip(self.inputs, self._in, strict=True):
            content = feeds[tensor.name]
            if content.nbytes != tensor.size:
                raise OrinportError(
                    f"The loadable takes {tensor.size} bytes for {tensor.name!r}, and there are {content.nbytes}.",
                    "Its memory format is another one than the bundle asks for.",
                )
            self._cuda.upload(content, place.buffer)
        for place in (*self._out, *self._stat):
            self._cuda.clear(place.buffer)
        task = self._task()
        for _ in range(warm_up):
            self._submit(task)
        times = []
        for _ in range(max(1, repeat)):
            self._cuda.record(self._start)
            self._submit(task)
            self._cuda.record(self._end)
            self._cuda.synchronize()
            self._require_success()
            times.append(self._cuda.elapsed_us(self._start, self._end))
        outputs = {}
        for tensor, place in zip(self.outputs, self._out, strict=True):
            outputs[tensor.name] = np.empty(tensor.size, np.uint8)
            self._cuda.download(place.buffer, outputs[tensor.name])
        self._cuda.synchronize()
        return outputs, times

    def statistics_csv(self, frequency_mhz: int) -> list[str]:
        """Layer statistics of the last run as CSV, one text for each statistics tensor.

        The DLA counts cycles; `frequency_mhz` is the clock that makes them times.
        """
        table = self._export_table()
        texts = []
        for index, (tensor, place) in enumerate(zip(self.statistics, self._stat, strict=True)):
            raw = np.empty(tensor.size, np.uint8)
            self._cuda.download(place.buffer, raw)
            self._cuda.synchronize()
            texts.append(self._translate(table, raw, frequency_mhz, index))
        return texts

    def close(self) -> None:
        """Unregister, unload, destroy: backwards, whatever has failed before; may be called twice."""
        with suppress(OrinportError):
            self._cuda.synchronize()  # cuDLA wants all tasks done before the device goes
        for place in reversed(self._registered):
            with suppress(api.CudlaError):
                self._call("cudlaMemUnregister", self._device, place.mapped)
        self._registered = []
        if self._module:
            with suppress(api.CudlaError):
                self._call("cudlaModuleUnload", self._module, 0)
            self._module = ctypes.c_void_p()
        if self._device:
            with suppress(api.CudlaError):
                self._call("cudlaDestroyDevice", self._device)
            self._device = ctypes.c_void_p()

    def _call(self, name: str, *arguments: Any) -> None:
        api.call(self._library, name, *arguments)

    def _require_core(self, core: int) -> None:
        count = ctypes.c_uint64()
        self._call("cudlaDeviceGetCount", ctypes.byref(count))
        if core >= count.value:
            raise OrinportError(
                f"There is no DLA core {core}: cuDLA finds {count.value}.", "Use a board with a DLA, or --dla-core 0."
            )

    def _load(self, size: int) -> None:
        self._call(
            "cudlaModuleLoadFromMemory", self._device, ctypes.byref(self._loadable), size, ctypes.byref(self._module), 0
        )

    def _number(self, attribute: api.ModuleAttribute) -> int:
        answer = api.CudlaModuleAttribute()
        self._call("cudlaModuleGetAttributes", self._module, attribute, ctypes.byref(answer))
        return int(answer.numOutputTensors)

    def _tensors(self, number: api.ModuleAttribute, descriptors: api.ModuleAttribute) -> tuple[CudlaTensor, ...]:
        count = self._number(number)
        if count == 0:
            return ()
        if count > _MOST_TENSORS:
            raise OrinportError(f"The loadable claims {count} tensors.", "Is it damaged?")
        array = (api.CudlaTensorDescriptor * count)()
        answer = api.CudlaModuleAttribute()
        answer.inputTensorDesc = array
        self._call("cudlaModuleGetAttributes", self._module, descriptors, ctypes.byref(answer))
        return tuple(_tensor(entry) for entry in array)

    def _statistics(self) -> tuple[CudlaTensor, ...]:
        try:
            found = self._tensors(
                api.ModuleAttribute.NUM_OUTPUT_TASK_STATISTICS,
                api.ModuleAttribute.OUTPUT_TASK_STATISTICS_DESCRIPTORS,
            )
        except api.CudlaError:
            found = ()
        if not found:
            raise OrinportError(
                "This loadable or this cuDLA gives no layer statistics.",
                "They need DLA software 3.14 (JetPack 6.0, DRIVE OS 6.0.8) and a loadable that was built with it.",
            )
        return found

    def _register(self, size: int, flags: int = 0) -> _Registered:
        buffer = self._cuda.allocate(size)
        assert buffer.address % _ALIGNMENT == 0
        mapped = ctypes.c_void_p()
        self._call("cudlaMemRegister", self._device, buffer.address, size, ctypes.byref(mapped), flags)
        place = _Registered(buffer, mapped)
        self._registered.append(place)
        return place

    def _task(self) -> api.CudlaTask:
        outputs = [*self._out, *self._stat]
        task = api.CudlaTask()
        task.moduleHandle = self._module
        task.numInputTensors, task.numOutputTensors = len(self._in), len(outputs)
        task.inputTensor = _pointers(self._in)
        task.outputTensor = _pointers(outputs)
        return task

    def _submit(self, task: api.CudlaTask) -> None:
        self._call("cudlaSubmitTask", self._device, ctypes.byref(task), 1, self._cuda.stream, 0)

    def _require_success(self) -> None:
        self._call("cudlaGetLastError", self._device)

    def _export_table(self) -> Any:
        table = ctypes.POINTER(api.CudlaExportTable)()
        try:
            function = self._library.cudlaGetExternalExportTable
        except AttributeError:
            raise OrinportError("This cuDLA does not translate layer statistics.", "It needs CUDA 12.2.") from None
        function.argtypes = (ctypes.POINTER(ctypes.POINTER(api.CudlaExportTable)), ctypes.c_uint32)
        function.restype = ctypes.c_int
        self._call("cudlaGetExternalExportTable", ctypes.byref(table), 0)
        return table.contents

    def _translate(self, table: Any, raw: NDArray[np.uint8], frequency_mhz: int, index: int) -> str:
        def ask(what: api.TranslateAttribute, answer: api.CudlaTranslateAttribute) -> None:
            status = table.etiTranslateStats(
                self._device, raw.ctypes.data, frequency_mhz, index, what, ctypes.byref(answer)
            )
            if status != 0:
                raise api.CudlaError(f"cuDLA cannot translate the layer statistics: {api.status_name(status)}.")

        length = api.CudlaTranslateAttribute()
        ask(api.TranslateAttribute.CSV_LENGTH, length)
        size = int(length.csvStreamLength)
        if not 0 < size <= _LONGEST_CSV:
            raise api.CudlaError(f"cuDLA announces layer statistics of {size} bytes.")
        text = ctypes.create_string_buffer(size + 1)
        target = api.CudlaTranslateAttribute()
        target.csvStreamStats = ctypes.addressof(text)
        ask(api.TranslateAttribute.CSV_STATISTICS, target)
        return text.value.decode("utf-8", "replace")


def _pointers(places: Sequence[_Registered]) -> Any:
    return (ctypes.c_void_p * len(places))(*(place.mapped.value for place in places))


def _tensor(entry: api.CudlaTensorDescriptor) -> CudlaTensor:
    return CudlaTensor(
        entry.name.decode("utf-8", "replace"),
        int(entry.size),
        (int(entry.n), int(entry.c), int(entry.h), int(entry.w)),
        _named(api.DataFormat, entry.dataFormat),
        _named(api.DataType, entry.dataType),
        _named(api.DataCategory, entry.dataCategory),
        tuple(int(stride) for stride in entry.stride),
    )


def _named(enumeration: Any, value: int) -> str:
    try:
        return str(enumeration(value).name)
    except ValueError:
        return f"unknown {value}"
