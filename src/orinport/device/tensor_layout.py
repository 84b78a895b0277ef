"""A network's input or output as the device has it in memory, and the way there and back.

The layouts are TensorRT's (`targets/data/tensor_formats.toml`). An INT8 tensor has a scale: `real = scale * integer`.
Real values become integers as the DLA rounds, to the nearest, ties away from zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.errors import OrinportError
from orinport.model.layer import DType
from orinport.precision.nvdla_arithmetic import quantize
from orinport.targets.target import Platform
from orinport.toml import read_toml

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TensorLayout", "known_formats"]

_NUMPY: dict[DType, type[np.generic]] = {
    DType.FP32: np.float32,
    DType.FP16: np.float16,
    DType.INT8: np.int8,
    DType.UINT8: np.uint8,
    DType.INT32: np.int32,
    DType.INT64: np.int64,
    DType.BOOL: np.bool_,
}


@cache
def _formats() -> dict[str, dict[str, Any]]:
    return read_toml(resources.files("orinport.targets") / "data" / "tensor_formats.toml")


def known_formats() -> tuple[str, ...]:
    """The formats whose layout is known, under trtexec's names."""
    return tuple(_formats())


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """One input or output. `shape` is the network's, (N, C, H, W) or any other for `chw`.

    Raises OrinportError for types and formats whose layout is unknown, and shapes that do not go with the format.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    format: str = "chw"
    scale: float | None = None
    """Of an INT8 tensor; None if it is not known."""
    platform: Platform = Platform.ORIN

    def __post_init__(self) -> None:
        if self.dtype not in _NUMPY:
            raise OrinportError(f"The tensor {self.name!r} is {self.dtype.value}, which is not read or written here.")
        if self.format not in _formats():
            raise OrinportError(
                f"The layout of {self.name!r} is {self.format!r}, which is not read or written here.",
                f"Build with one of {', '.join(known_formats())}.",
            )
        if any(dim < 0 for dim in self.shape):
            raise OrinportError(f"The tensor {self.name!r} has a dynamic shape.", "Build with fixed shapes.")
        if self.format != "chw" and len(self.shape) not in (3, 4):
            raise OrinportError(f"The tensor {self.name!r} of rank {len(self.shape)} cannot be {self.format}.")
        channels = self._entry.get("channels")
        if channels is not None and str(self.shape[-3]) not in channels:
            raise OrinportError(f"The tensor {self.name!r} of {self.shape[-3]} channels cannot be {self.format}.")

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """Element type in memory."""
        return np.dtype(_NUMPY[self.dtype])

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """The C array that the layout is equivalent to, padding included."""
        entry = self._entry
        if entry["order"] == "chw" and "row_bytes" not in entry:
            return self.shape
        batch, channels, height, width = self._nchw
        vector = int(entry.get("vector", 1))
        if entry["order"] == "chwv":
            return (batch, -(-channels // vector), height, width, vector)
        if entry["order"] == "chw":
            return (batch, channels, height, self._padded(width, 1))
        inner = int(entry["channels"][str(channels)]) if "channels" in entry else -(-channels // vector) * vector
        return (batch, height, self._padded(width, inner), inner)

    @property
    def size(self) -> int:
        """Bytes in memory, padding included."""
        return prod(self.memory_shape) * self.numpy_dtype.itemsize

    def pack(self, array: NDArray[Any]) -> NDArray[np.uint8]:
        """Values of the network's tensor as bytes for the device; padding is zero.

        Raises OrinportError for another shape, and for real values of an INT8 tensor without scale.
        """
        if array.shape != self.shape:
            raise OrinportError(
                f"The tensor {self.name!r} has the shape {array.shape}, and the device takes {self.shape}."
            )
        values = self._to_device(array)
        if self.memory_shape == self.shape and self._entry["order"] == "chw":
            return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        memory = np.zeros(self.memory_shape, self.numpy_dtype)
        batch, channels, height, width = self._nchw
        source = values.reshape(self._nchw)
        if self._entry["order"] == "chwv":
            vector = self.memory_shape[-1]
            whole = np.zeros((batch, self.memory_shape[1] * vector, height, width), self.numpy_dtype)
            whole[:, :channels] = source
            memory[...] = whole.reshape(batch, -1, vector, height, width).transpose(0, 1, 3, 4, 2)
        elif self._entry["order"] == "chw":
            memory[..., :width] = source
        else:
            memory[:, :, :width, :channels] = source.transpose(0, 2, 3, 1)
        return memory.reshape(-1).view(np.uint8)

    def unpack(self, content: NDArray[np.uint8]) -> NDArray[Any]:
        """Bytes of the device as the network's tensor; INT8 with a scale as float32."""
        memory = content.view(self.numpy_dtype).reshape(self.memory_shape)
        if self.memory_shape == self.shape and self._entry["order"] == "chw":
            return self._from_device(memory)
        batch, channels, height, width = self._nchw
        if self._entry["order"] == "chwv":
            values = memory.transpose(0, 1, 4, 2, 3).reshape(batch, -1, height, width)[:, :channels]
        elif self._entry["order"] == "chw":
            values = memory[..., :width]
        else:
            values = memory[:, :, :width, :channels].transpose(0, 3, 1, 2)
        return self._from_device(np.ascontiguousarray(values).reshape(self.shape))

    @property
    def _entry(self) -> dict[str, Any]:
        return _formats()[self.format]

    @property
    def _nchw(self) -> tuple[int, int, int, int]:
        batch = self.shape[0] if len(self.shape) == 4 else 1
        channels, height, width = self.shape[-3:]
        return batch, channels, height, width

    def _padded(self, width: int, inner: int) -> int:
        rows = self._entry.get("row_bytes")
        if rows is None:
            return width
        step = max(1, int(rows[self.platform.value]) // (inner * self.numpy_dtype.itemsize))
        return -(-width // step) * step

    def _to_device(self, array: NDArray[Any]) -> NDArray[Any]:
        if self.dtype is not DType.INT8 or array.dtype == np.int8:
            same: NDArray[Any] = array.astype(self.numpy_dtype, copy=False)
            return same
        return quantize(array.astype(np.float32), self._known_scale()).astype(np.int8)

    def _from_device(self, values: NDArray[Any]) -> NDArray[Any]:
        if self.dtype is not DType.INT8:
            same: NDArray[Any] = values.copy()
            return same
        real: NDArray[Any] = values.astype(np.float32) * np.float32(self._known_scale())
        return real

    def _known_scale(self) -> float:
        if self.scale is None:
            raise OrinportError(
                f"The tensor {self.name!r} is INT8 on the device, and its scale is not known.",
                "Give --scales FILE: a calibration cache, or the JSON that quantize writes.",
            )
        return self.scale
