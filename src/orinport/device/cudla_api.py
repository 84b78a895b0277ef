"""The C interface of cuDLA for ctypes: constants, structures and functions, and nothing more.

Written after NVIDIA's cuDLA API reference and after `cudla.h` and `cudlaExternalEtbl.hpp` of the PyPI package
nvidia-cudla 13.5 (cuDLA 1.5); the tests compile a probe against that header. Layer statistics are there from CUDA 12.2
on. Functions that take NvSci objects (standalone mode) are left out.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char, c_int, c_uint8, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from typing import Any

from orinport.errors import OrinportError

__all__ = [
    "DESCRIPTOR_NAME_LENGTH",
    "FUNCTIONS",
    "TASK_STATISTICS",
    "CudlaDeviceAttribute",
    "CudlaError",
    "CudlaExportTable",
    "CudlaFence",
    "CudlaModuleAttribute",
    "CudlaSignalEvents",
    "CudlaTask",
    "CudlaTensorDescriptor",
    "CudlaTranslateAttribute",
    "CudlaWaitEvents",
    "DataCategory",
    "DataFormat",
    "DataType",
    "DeviceAttribute",
    "Mode",
    "ModuleAttribute",
    "TranslateAttribute",
    "call",
    "load_cudla",
    "status_name",
]

DESCRIPTOR_NAME_LENGTH = 80
"""Bytes of a tensor's name in its descriptor, without the closing zero."""
_STRIDES = 8
TASK_STATISTICS = 2
"""Flag of cudlaMemRegister for a buffer that takes layer statistics."""
_LIBRARY = "ORINPORT_LIBCUDLA"
"""Environment variable that names another library than libcudla.so.1."""

_STATUS = {
    0: "cudlaSuccess",
    1: "cudlaErrorInvalidParam",
    2: "cudlaErrorOutOfResources",
    3: "cudlaErrorCreationFailed",
    4: "cudlaErrorInvalidAddress",
    5: "cudlaErrorOs",
    6: "cudlaErrorCuda",
    7: "cudlaErrorUmd",
    8: "cudlaErrorInvalidDevice",
    9: "cudlaErrorInvalidAttribute",
    10: "cudlaErrorIncompatibleDlaSWVersion",
    11: "cudlaErrorMemoryRegistered",
    12: "cudlaErrorInvalidModule",
    13: "cudlaErrorUnsupportedOperation",
    14: "cudlaErrorNvSci",
    15: "cudlaErrorDriverNotFound",
    0x40000001: "cudlaErrorDlaErrInvalidInput",
    0x40000002: "cudlaErrorDlaErrInvalidPreAction",
    0x40000003: "cudlaErrorDlaErrNoMem",
    0x40000004: "cudlaErrorDlaErrProcessorBusy",
    0x40000005: "cudlaErrorDlaErrTaskStatusMismatch",
    0x40000006: "cudlaErrorDlaErrEngineTimeout",
    0x40000007: "cudlaErrorDlaErrDataMismatch",
    0x7FFFFFFF: "cudlaErrorUnknown",
}


class Mode(IntEnum):
    """How a device handle is created: with CUDA (hybrid), or alone."""

    HYBRID = 0
    STANDALONE = 1


class ModuleAttribute(IntEnum):
    """What cudlaModuleGetAttributes is asked for."""

    NUM_INPUT_TENSORS = 0
    NUM_OUTPUT_TENSORS = 1
    INPUT_TENSOR_DESCRIPTORS = 2
    OUTPUT_TENSOR_DESCRIPTORS = 3
    NUM_OUTPUT_TASK_STATISTICS = 4
    OUTPUT_TASK_STATISTICS_DESCRIPTORS = 5


class DeviceAttribute(IntEnum):
    """What cudlaDeviceGetAttribute is asked for."""

    UNIFIED_ADDRESSING = 0
    DEVICE_VERSION = 1


class DataFormat(IntEnum):
    """Order of a tensor's dimensions in memory."""

    UNKNOWN = 0
    NCHW = 1
    NHWC = 2
    NCXHWX = 3


class DataType(IntEnum):
    """Element type of a tensor."""

    UNKNOWN = 0
    FLOAT = 1
    HALF = 2
    INT16 = 3
    INT8 = 4
    UINT8 = 5
    UINT16 = 6


class DataCategory(IntEnum):
    """What a tensor is to the DLA."""

    IMAGE = 0
    WEIGHT = 1
    FEATURE = 2
    PLANAR = 3
    BIAS = 4


class TranslateAttribute(IntEnum):
    """What the translation of statistics is asked for: first the length of the CSV text, then the text."""

    CSV_LENGTH = 0
    CSV_STATISTICS = 1


class CudlaTensorDescriptor(ctypes.Structure):
    """A tensor of a loadable: name, size in bytes, dimensions, format, strides."""

    _fields_ = (
        ("name", c_char * (DESCRIPTOR_NAME_LENGTH + 1)),
        ("size", c_uint64),
        ("n", c_uint64),
        ("c", c_uint64),
        ("h", c_uint64),
        ("w", c_uint64),
        ("dataFormat", c_uint8),
        ("dataType", c_uint8),
        ("dataCategory", c_uint8),
        ("pixelFormat", c_uint8),
        ("pixelMapping", c_uint8),
        ("stride", c_uint32 * _STRIDES),
    )


class CudlaModuleAttribute(ctypes.Union):
    """The answer of cudlaModuleGetAttributes; for descriptors the caller gives the array."""

    _fields_ = (
        ("numInputTensors", c_uint32),
        ("numOutputTensors", c_uint32),
        ("inputTensorDesc", POINTER(CudlaTensorDescriptor)),
        ("outputTensorDesc", POINTER(CudlaTensorDescriptor)),
    )


class CudlaDeviceAttribute(ctypes.Union):
    """The answer of cudlaDeviceGetAttribute."""

    _fields_ = (("unifiedAddressingSupported", c_uint8), ("deviceVersion", c_uint32))


class CudlaFence(ctypes.Structure):
    """A fence that a task waits for or signals; standalone mode only."""

    _fields_ = (("fence", c_void_p), ("type", c_int))


class CudlaWaitEvents(ctypes.Structure):
    """What a task waits for; standalone mode only."""

    _fields_ = (("preFences", POINTER(CudlaFence)), ("numEvents", c_uint32))


class CudlaSignalEvents(ctypes.Structure):
    """What a task signals; standalone mode only."""

    _fields_ = (("devPtrs", POINTER(c_void_p)), ("eofFences", POINTER(CudlaFence)), ("numEvents", c_uint32))


class CudlaTask(ctypes.Structure):
    """One inference: registered inputs and outputs. In hybrid mode both kinds of events have to be NULL."""

    _fields_ = (
        ("moduleHandle", c_void_p),
        ("outputTensor", POINTER(c_void_p)),
        ("numOutputTensors", c_uint32),
        ("numInputTensors", c_uint32),
        ("inputTensor", POINTER(c_void_p)),
        ("waitEvents", POINTER(CudlaWaitEvents)),
        ("signalEvents", POINTER(CudlaSignalEvents)),
    )


class CudlaTranslateAttribute(ctypes.Union):
    """The length of the CSV text, or where it is to be written."""

    _fields_ = (("csvStreamLength", c_uint64), ("csvStreamStats", c_void_p))


_TRANSLATE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_uint32, c_uint32, c_int, POINTER(CudlaTranslateAttribute))


class CudlaExportTable(ctypes.Structure):
    """The first entry of the table of further functions: raw statistics to CSV."""

    _fields_ = (("etiTranslateStats", _TRANSLATE),)


FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cudlaGetVersion": (POINTER(c_uint64),),
    "cudlaDeviceGetCount": (POINTER(c_uint64),),
    "cudlaCreateDevice": (c_uint64, POINTER(c_void_p), c_uint32),
    "cudlaDestroyDevice": (c_void_p,),
    "cudlaDeviceGetAttribute": (c_void_p, c_int, POINTER(CudlaDeviceAttribute)),
    "cudlaModuleLoadFromMemory": (c_void_p, c_void_p, ctypes.c_size_t, POINTER(c_void_p), c_uint32),
    "cudlaModuleGetAttributes": (c_void_p, c_int, POINTER(CudlaModuleAttribute)),
    "cudlaModuleUnload": (c_void_p, c_uint32),
    "cudlaMemRegister": (c_void_p, c_void_p, ctypes.c_size_t, POINTER(c_void_p), c_uint32),
    "cudlaMemUnregister": (c_void_p, c_void_p),
    "cudlaSubmitTask": (c_void_p, POINTER(CudlaTask), c_uint32, c_void_p, c_uint32),
    "cudlaGetLastError": (c_void_p,),
}
"""Functions and their arguments; all return a status. Those that came later are looked for when they are needed."""


class CudlaError(OrinportError):
    """cuDLA refuses a call."""


def status_name(status: int) -> str:
    """The name of a status."""
    return _STATUS.get(status, f"status {status}")


def load_cudla() -> Any:
    """libcudla with its signatures. Raises OrinportError with what can be done instead."""
    name = os.environ.get(_LIBRARY) or "libcudla.so.1"
    try:
        library = ctypes.CDLL(name)
        for function, arguments in FUNCTIONS.items():
            entry = getattr(library, function)
            entry.argtypes, entry.restype = arguments, c_int
    except (OSError, AttributeError) as error:
        raise OrinportError(
            f"There is no cuDLA on this machine: {name} cannot be loaded.",
            "Run it on an Orin (JetPack: apt-get install libcudla-dev); orinport verify BUNDLE --as dla-int8 emulates "
            "the DLA here.",
        ) from error
    return library


def call(library: Any, name: str, *arguments: Any) -> None:
    """Call a function of cuDLA. Raises CudlaError if it does not succeed."""
    status = getattr(library, name)(*arguments)
    if status != 0:
        raise CudlaError(f"cuDLA refuses {name}: {status_name(status)}.", _HINTS.get(status_name(status), ""))


_HINTS = {
    "cudlaErrorIncompatibleDlaSWVersion": "The loadable was built by another release; build it on this board.",
    "cudlaErrorUnsupportedOperation": "A discrete GPU has no DLA; the first CUDA device has to be the Orin's own.",
    "cudlaErrorInvalidModule": "Is it a loadable that trtexec --buildDLAStandalone wrote, for this DLA?",
    "cudlaErrorUmd": "Is it a loadable for this DLA? dmesg may say more.",
    "cudlaErrorDriverNotFound": "The DLA's driver is missing; orinport doctor looks for it.",
}
