"""Compile the CUDA kernels at first use with NVRTC, keep them in the user's cache, and launch them.

A kernel is identified by the hash of the sources, its name, the compiler's version and flags, the GPU's architecture
and the driver's version. It lives in `$ORINPORT_CACHE/cuda`, else `$XDG_CACHE_HOME/orinport/cuda`, else
`~/.cache/orinport/cuda`, in a folder that only the user may write.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import threading
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from orinport.compiled import CacheFolderError, private_folder
from orinport.dcnv4.cuda_plan import Launch, Limits
from orinport.files import write_whole

__all__ = ["CudaDevice", "CudaUnavailableError", "Loaded", "cache_folder", "cuda_device", "source_digest"]

_SOURCES = Path(__file__).parent / "kernels"
_FLAGS = ("-std=c++17",)
_MINIMUM_ARCHITECTURE = (8, 0)
_OVERLAP_ARCHITECTURE, _OVERLAP_DRIVER = (9, 0), 12030
"""From where on a launch may overlap the end of the kernel before it, in CUDA graphs too."""
_OVERLAPPING = "forward.cuh"
"""The kernels that wait for the previous one themselves."""
_SEPARATOR = b"\n"


class CudaUnavailableError(Exception):
    """The kernels cannot be had on this machine or GPU; the text says why."""


def cache_folder() -> Path:
    """The folder for compiled kernels, made if need be. Raises CudaUnavailableError if others may write to it."""
    try:
        return private_folder("cuda")
    except CacheFolderError as error:
        raise CudaUnavailableError(str(error)) from error


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Hash of all kernel sources."""
    digest = hashlib.sha256()
    for path in sorted(_SOURCES.glob("*.*h")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@dataclass(frozen=True)
class Loaded:
    """A kernel on a device, ready to launch."""

    name: str
    function: Any
    driver: Any
    overlaps: bool = False
    """Whether a launch may begin before the previous kernel of the stream ends, for which the kernel then waits."""

    def launch(self, launch: Launch, stream: int, *structs: ctypes.Structure) -> None:
        """Launch on a stream (its address) with structs passed by value. Raises RuntimeError if the driver refuses."""
        if not self.overlaps:
            self.launch_plain(launch.grid, launch.block, launch.shared_bytes, stream, *structs)
            return
        config = _overlapping(self.driver, launch.grid, launch.block, launch.shared_bytes, stream)
        addresses = _addresses(structs)
        (error,) = self.driver.cuLaunchKernelEx(config, self.function, ctypes.addressof(addresses), 0)
        self._check(error)

    def launch_plain(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int],
        shared_bytes: int,
        stream: int,
        *arguments: ctypes.Structure | ctypes.c_void_p,
    ) -> None:
        """Launch after the stream's previous kernel has ended, with arguments passed by value, as `launch` raises."""
        addresses = _addresses(arguments)
        (error,) = self.driver.cuLaunchKernel(
            self.function, *grid, *block, 1, shared_bytes, stream, ctypes.addressof(addresses), 0
        )
        self._check(error)

    def _check(self, error: Any) -> None:
        if error:
            raise RuntimeError(f"{self.name} could not be launched: {error.name}")


def _addresses(arguments: tuple[ctypes.Structure | ctypes.c_void_p, ...]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))


@lru_cache(maxsize=256)
def _overlapping(
    driver: Any, grid: tuple[int, int, int], block: tuple[int, int], shared_bytes: int, stream: int
) -> Any:
    """The driver's description of a launch that may begin before the previous kernel of the stream ends."""
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = *block, 1
    config.sharedMemBytes, config.hStream = shared_bytes, driver.CUstream(stream)
    config.attrs, config.numAttrs = [attribute], 1
    return config


class CudaDevice:
    """One GPU: its limits, and the kernels loaded on it. Thread-safe."""

    def __init__(self, ordinal: int) -> None:
        try:
            from cuda.bindings import driver, nvrtc
        except ImportError as error:
            raise CudaUnavailableError(
                "the package cuda-bindings is not installed: pip install 'orinport[cuda]'"
            ) from error
        self._driver = driver
        self._call(driver.cuInit, 0)
        self._handle = self._call(driver.cuDeviceGet, ordinal)
        attribute = driver.CUdevice_attribute
        self.architecture = (
            self._read(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            self._read(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        )
        if self.architecture < _MINIMUM_ARCHITECTURE:
            raise CudaUnavailableError(
                f"the kernels need compute capability 8.0, this GPU has {self.architecture[0]}.{self.architecture[1]}"
            )
        self.limits = Limits(
            self._read(attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
            self._read(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        )
        self.name = bytes(self._call(driver.cuDeviceGetName, 128, self._handle)).split(b"\0")[0].decode()
        self.driver_version = int(self._call(driver.cuDriverGetVersion))
        self.compiler_version = ".".join(map(str, self._call(nvrtc.nvrtcVersion)))
        self._kernels: dict[str, Loaded] = {}
        self._lock = threading.Lock()

    def _call(self, function: Any, *arguments: Any) -> Any:
        error, *results = function(*arguments)
        if error:
            raise CudaUnavailableError(f"{function.__name__} failed: {error.name}")
        return results[0] if len(results) == 1 else results

    def _read(self, attribute: Any) -> int:
        return int(self._call(self._driver.cuDeviceGetAttribute, attribute, self._handle))

    @property
    def identity(self) -> str:
        """GPU, driver and compiler in one line."""
        architecture = "".join(map(str, self.architecture))
        return f"{self.name}, sm_{architecture}, driver {self.driver_version}, NVRTC {self.compiler_version}"

    def kernel(self, header: str, name: str) -> Loaded:
        """The template instance `name` of a header, compiled unless it is in the cache."""
        loaded = self._kernels.get(name)
        if loaded is not None:
            return loaded
        cubin = self._cubin(header, name)  # outside of the lock: several threads may compile at once
        with self._lock:
            if name not in self._kernels:
                self._kernels[name] = self._load(header, name, *cubin)
            return self._kernels[name]

    def _cubin(self, header: str, name: str) -> tuple[str, bytes]:
        digest = hashlib.sha256("\0".join((source_digest(), name, self.identity, *_FLAGS)).encode()).hexdigest()[:32]
        path = cache_folder() / f"{digest}.cubin"
        try:
            symbol, _, code = path.read_bytes().partition(_SEPARATOR)
            if code:
                return symbol.decode(), code
        except OSError:
            pass
        symbol_name, code = compile_kernel(header, name, self.architecture)
        with contextlib.suppress(OSError):  # a folder that is read-only or full: compiled again next time
            write_whole(path, symbol_name.encode() + _SEPARATOR + code)
        return symbol_name, code

    def _load(self, header: str, name: str, symbol: str, code: bytes) -> Loaded:
        driver = self._driver
        kernel = self._load_code(code, symbol)
        self._call(
            driver.cuKernelSetAttribute,
            driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            self.limits.shared_bytes,
            kernel,
            self._handle,
        )
        able = self.architecture >= _OVERLAP_ARCHITECTURE and self.driver_version >= _OVERLAP_DRIVER
        return Loaded(name, driver.CUfunction(int(kernel)), driver, able and header == _OVERLAPPING)

    def load_ptx(self, text: bytes, symbol: str) -> Loaded:
        """The kernel `symbol` of PTX text, which the driver assembles for this GPU. Raises CudaUnavailableError."""
        kernel = self._load_code(text + b"\0", symbol)
        return Loaded(symbol, self._driver.CUfunction(int(kernel)), self._driver)

    def _load_code(self, code: bytes, symbol: str) -> Any:
        library = self._call(self._driver.cuLibraryLoadData, code, [], [], 0, [], [], 0)
        return self._call(self._driver.cuLibraryGetKernel, library, symbol.encode())


_IMPORT = threading.Lock()
"""cuda.core's modules import each other: threads that import it at once may find one of them half done."""


def _compiler() -> tuple[Any, Any]:
    """cuda.core's classes Program and ProgramOptions. Raises CudaUnavailableError if they cannot be imported."""
    with _IMPORT:
        try:
            from cuda.core import Program, ProgramOptions
        except ImportError as error:
            try:
                from cuda.core.experimental import Program, ProgramOptions
            except ImportError:
                reason = f"the package cuda-core cannot be imported ({error}): pip install 'orinport[cuda]'"
                raise CudaUnavailableError(reason) from error
    return Program, ProgramOptions


def compile_kernel(header: str, name: str, architecture: tuple[int, int]) -> tuple[str, bytes]:
    """Mangled name and machine code of a template instance. Needs NVRTC, no GPU."""
    Program, ProgramOptions = _compiler()  # noqa: N806
    options = ProgramOptions(arch=f"sm_{architecture[0]}{architecture[1]}", std="c++17", include_path=[str(_SOURCES)])
    try:
        code = Program(f'#include "{header}"\n', "c++", options).compile("cubin", name_expressions=(name,))
    except Exception as error:  # NVRTC's own exception types differ between releases of cuda.core
        raise CudaUnavailableError(f"NVRTC does not compile {name}: {error}") from error
    symbol = code.symbol_mapping[name]
    return symbol.decode() if isinstance(symbol, bytes) else str(symbol), bytes(code.code)


@cache
def cuda_device(ordinal: int) -> CudaDevice:
    """The device of this number. Raises CudaUnavailableError with the reason if its kernels cannot be had."""
    return CudaDevice(ordinal)
