"""CUDA memory, a stream and events through the driver's own library, without any package.

Only what running a network needs, called with ctypes. It uses the device's primary context, which TensorRT and cuDLA
use too. Names and signatures: CUDA Driver API reference (docs.nvidia.com/cuda/cuda-driver-api).
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orinport.device.closing import Closing
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CudaDriver", "CudaError", "DeviceBuffer"]

_LIBRARY = "ORINPORT_LIBCUDA"
"""Environment variable that names another library than libcuda.so.1."""
_NON_BLOCKING = 1
_HANDLE = ctypes.c_void_p
_POINTER = ctypes.c_uint64
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGet": (ctypes.POINTER(ctypes.c_int), ctypes.c_int),
    "cuDeviceGetName": (ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(_HANDLE), ctypes.c_int),
    "cuDevicePrimaryCtxRelease_v2": (ctypes.c_int,),
    "cuCtxSetCurrent": (_HANDLE,),
    "cuMemAlloc_v2": (ctypes.POINTER(_POINTER), ctypes.c_size_t),
    "cuMemFree_v2": (_POINTER,),
    "cuMemsetD8Async": (_POINTER, ctypes.c_ubyte, ctypes.c_size_t, _HANDLE),
    "cuMemcpyHtoDAsync_v2": (_POINTER, _HANDLE, ctypes.c_size_t, _HANDLE),
    "cuMemcpyDtoHAsync_v2": (_HANDLE, _POINTER, ctypes.c_size_t, _HANDLE),
    "cuStreamCreate": (ctypes.POINTER(_HANDLE), ctypes.c_uint),
    "cuStreamSynchronize": (_HANDLE,),
    "cuStreamDestroy_v2": (_HANDLE,),
    "cuEventCreate": (ctypes.POINTER(_HANDLE), ctypes.c_uint),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuEventElapsedTime": (ctypes.POINTER(ctypes.c_float), _HANDLE, _HANDLE),
    "cuEventDestroy_v2": (_HANDLE,),
    "cuGetErrorName": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
}


class CudaError(OrinportError):
    """The driver refuses a call."""


@dataclass(frozen=True, slots=True)
class DeviceBuffer:
    """Memory of the device: its address and its size in bytes."""

    address: int
    size: int


class CudaDriver(Closing):
    """The first device's primary context with one stream; a context manager that frees all it has given.

    Raises OrinportError if there is no driver or no device.
    """

    def __init__(self) -> None:
        self._library = _load()
        self._device = ctypes.c_int()
        self._context = _HANDLE()
        self._buffers: dict[int, DeviceBuffer] = {}
        self._events: list[Any] = []
        self._stream = _HANDLE()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(self._device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        try:
            self._call("cuCtxSetCurrent", self._context)
            self._call("cuStreamCreate", ctypes.byref(self._stream), _NON_BLOCKING)
        except CudaError:
            self.close()
            raise

    @property
    def stream(self) -> int:
        """The handle of the stream, as TensorRT and cuDLA take it."""
        return int(self._stream.value or 0)

    @property
    def device_name(self) -> str:
        """What the driver calls the device."""
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, len(name), self._device)
        return name.value.decode("utf-8", "replace")

    def allocate(self, size: int) -> DeviceBuffer:
        """`size` bytes of the device, at least one; aligned by 256 bytes, as the API reference says."""
        address = _POINTER()
        self._call("cuMemAlloc_v2", ctypes.byref(address), max(1, size))
        buffer = DeviceBuffer(int(address.value), size)
        self._buffers[buffer.address] = buffer
        return buffer

    def upload(self, array: NDArray[Any], buffer: DeviceBuffer) -> None:
        """Copy a contiguous array of the buffer's size to the device, in stream order."""
        _require_size(array, buffer)
        self._call("cuMemcpyHtoDAsync_v2", buffer.address, array.ctypes.data, buffer.size, self._stream)

    def download(self, buffer: DeviceBuffer, array: NDArray[Any]) -> None:
        """Copy a buffer into a contiguous array of its size, in stream order: it is there after `synchronize`."""
        _require_size(array, buffer)
        self._call("cuMemcpyDtoHAsync_v2", array.ctypes.data, buffer.address, buffer.size, self._stream)

    def clear(self, buffer: DeviceBuffer) -> None:
        """Fill a buffer with zeros, in stream order."""
        self._call("cuMemsetD8Async", buffer.address, 0, buffer.size, self._stream)

    def synchronize(self) -> None:
        """Wait until the stream has done all that it was given."""
        self._call("cuStreamSynchronize", self._stream)

    def event(self) -> Any:
        """A new event, for `record` and `elapsed_us`."""
        event = _HANDLE()
        self._call("cuEventCreate", ctypes.byref(event), 0)
        self._events.append(event)
        return event

    def record(self, event: Any) -> None:
        """Let the event happen when the stream gets there."""
        self._call("cuEventRecord", event, self._stream)

    def elapsed_us(self, start: Any, end: Any) -> float:
        """Time between two events that have happened, in us; the API's resolution is about 0.5 us."""
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value * 1e3

    def close(self) -> None:
        """Free everything; may be called twice."""
        with suppress(CudaError):
            for event in self._events:
                self._call("cuEventDestroy_v2", event)
        with suppress(CudaError):
            for buffer in self._buffers.values():
                self._call("cuMemFree_v2", buffer.address)
        with suppress(CudaError):
            if self._stream:
                self._call("cuStreamDestroy_v2", self._stream)
        self._events, self._buffers, self._stream = [], {}, _HANDLE()
        if self._context:
            self._context = _HANDLE()
            with suppress(CudaError):
                self._call("cuDevicePrimaryCtxRelease_v2", self._device)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(text))
            meaning = (text.value or b"unknown error").decode("utf-8", "replace")
            raise CudaError(f"The CUDA driver refuses {name}: {meaning} ({status}).")


def _require_size(array: NDArray[Any], buffer: DeviceBuffer) -> None:
    assert array.flags.c_contiguous
    assert array.nbytes == buffer.size, f"{array.nbytes} bytes for a buffer of {buffer.size}"


def _load() -> Any:
    name = os.environ.get(_LIBRARY) or "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
        for function, arguments in _SIGNATURES.items():
            entry = getattr(library, function)
            entry.argtypes, entry.restype = arguments, ctypes.c_int
    except (OSError, AttributeError) as error:
        raise OrinportError(
            f"There is no CUDA driver on this machine: {name} cannot be loaded.",
            "Run it on the board; orinport verify BUNDLE --as dla-int8 emulates the DLA here.",
        ) from error
    return library
