"""Other implementations of DCNv4, to be timed beside ours: the user installs or points to them, none is shipped.

The published package DCNv4, the PTX kernels that NVIDIA publishes with its TensorRT plugins, and the Triton kernel of
deformops. All compute the same operator; what differs is the packing of offset_mask in deformops, and which sizes and
types each can compute.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from orinport.dcnv4.arguments import Geometry
from orinport.dcnv4.cuda_compile import CudaDevice, Loaded, cuda_device
from orinport.errors import OrinportError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orinport.dcnv4.cuda_bench import Tensors

__all__ = ["LeftOut", "Peer", "PeerUnfitError", "PtxKernel", "find_peers", "interleave", "ptx_kernels"]

PUBLISHED, PTX, DEFORMOPS = "published DCNv4", "NVIDIA's PTX", "deformops (Triton)"
_PTX_TABLE = Path(__file__).parent / "data" / "published_ptx.toml"
_LARGEST_PTX = 1 << 20


class PeerUnfitError(Exception):
    """Another implementation cannot compute a problem; the text says why."""


@dataclass(frozen=True)
class LeftOut:
    """An implementation that was not timed, and why."""

    name: str
    reason: str

    @classmethod
    def because(cls, name: str, error: Exception) -> LeftOut:
        """With what an exception says; its class too, unless the exception is ours."""
        said = first_line(error)
        kind = type(error).__name__
        return cls(name, said if isinstance(error, PeerUnfitError) or said == kind else f"{kind}: {said}")


@dataclass(frozen=True)
class Peer:
    """Another implementation."""

    name: str
    prepare: Callable[[Tensors, Geometry], Callable[[], object]]
    """For tensors on the current GPU, a function that fills their output on the current stream.

    Raises PeerUnfitError if it cannot compute them.
    """


def find_peers(folders: Sequence[Path] = (), ptx: Path | None = None) -> tuple[list[Peer], list[LeftOut]]:
    """What can be timed beside ours, and what is missing.

    `folders` are added to the end of the import path, for packages that are not installed, so that nothing in them can
    take the place of what is. `ptx` is one of NVIDIA's PTX files or a folder of them. Raises OrinportError if there is
    no such folder, or no known PTX in `ptx`.
    """
    for folder in folders:
        if not folder.is_dir():
            raise OrinportError(f"There is no folder {folder} to import other implementations from.")
        sys.path.append(str(folder.resolve()))
    found = [
        _attempt(PUBLISHED, _published),
        LeftOut(PTX, "no files were given") if ptx is None else _ptx_peer(read_ptx(ptx)),
        _attempt(DEFORMOPS, _deformops),
    ]
    return [each for each in found if isinstance(each, Peer)], [each for each in found if isinstance(each, LeftOut)]


def _attempt(name: str, find: Callable[[], Peer]) -> Peer | LeftOut:
    try:
        return find()
    except Exception as error:  # whatever another package's import raises: it is not there, in its own words
        return LeftOut.because(name, error)


def _published() -> Peer:
    """The package DCNv4 of OpenGVLab; its zero-filled output is part of its time."""
    function = import_module("DCNv4.functions").DCNv4Function

    def prepare(tensors: Tensors, geometry: Geometry) -> Callable[[], object]:
        arguments = (
            *geometry.window,
            geometry.group,
            geometry.group_channels,
            geometry.offset_scale,
            256,
            geometry.remove_center,
        )

        def run() -> None:
            tensors.output.data = function.apply(tensors.value, tensors.offset_mask, *arguments)

        return run

    return Peer(PUBLISHED, prepare)


def _deformops() -> Peer:
    """The single-scale sampling of deformops 3, on Triton; its allocated output is part of its time.

    It means the same by every argument and walks the taps in the same order. Its offset_mask is packed otherwise
    (`interleave`), for which a network would permute the rows of a projection once; the packing is not timed.
    """
    import_module("triton")
    registry = import_module("deformops.registry")
    operator, backend = registry.attn, registry.Backend.TRITON
    if not operator.is_registered(backend):
        raise PeerUnfitError(f"its Triton kernel is not available: {operator.unavailable_reason(backend)}")

    def prepare(tensors: Tensors, geometry: Geometry) -> Callable[[], object]:
        packed = interleave(tensors.offset_mask, geometry)

        def run() -> None:
            tensors.output.data = operator(
                tensors.value,
                packed,
                kernel_size=geometry.kernel,
                stride=geometry.stride,
                padding=geometry.padding,
                dilation=geometry.dilation,
                groups=geometry.group,
                group_dims=geometry.group_channels,
                spread=geometry.offset_scale,
                method="linear",
                drop_center=geometry.remove_center,
                backend=backend,
            )

        return run

    return Peer(f"{DEFORMOPS} {_version('deformops')}".rstrip(), prepare)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def interleave(offset_mask: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    """`offset_mask` (N, Ho, Wo, P) with (x, y, mask) of every tap side by side, as deformops reads it; same shape.

    In DCNv4 a group's numbers are the (x, y) of all taps, then the masks of all taps.
    """
    leading, taps = offset_mask.shape[:3], geometry.taps
    slices = offset_mask[..., : geometry.used_width].reshape(*leading, geometry.group, 3 * taps)
    offsets = slices[..., : 2 * taps].reshape(*leading, geometry.group, taps, 2)
    packed = offset_mask.clone()
    packed[..., : geometry.used_width] = torch.cat([offsets, slices[..., 2 * taps :, None]], -1).flatten(3)
    return packed


@dataclass(frozen=True)
class PtxKernel:
    """One of NVIDIA's PTX files: the only problem that it computes, and its launch."""

    file: str
    sha256: str
    batch: int
    size: int
    """Height and width."""
    group: int
    grid: tuple[int, int]
    threads: int
    architecture: tuple[int, int]
    """The least compute capability."""
    entry: str


@lru_cache(maxsize=1)
def ptx_kernels() -> tuple[PtxKernel, ...]:
    """All that NVIDIA publishes."""
    from orinport.toml import read_toml  # here, so that measuring without PTX needs PyTorch and CUDA alone

    table = read_toml(_PTX_TABLE)
    return tuple(
        PtxKernel(
            file=row["file"],
            sha256=row["sha256"],
            batch=row["batch"],
            size=row["size"],
            group=row["group"],
            grid=tuple(row["grid"]),
            threads=table["threads"],
            architecture=tuple(row["architecture"]),
            entry=table["entry"],
        )
        for row in table["kernel"]
    )


def read_ptx(path: Path) -> dict[PtxKernel, bytes]:
    """The known PTX texts in a file, or in the *.ptx of a folder. Raises OrinportError if there is none."""
    from orinport.files import read_bounded

    texts: dict[PtxKernel, bytes] = {}
    try:
        for file in sorted(path.glob("*.ptx")) if path.is_dir() else [path]:
            text = read_bounded(file, _LARGEST_PTX).split(b"\0")[0]
            digest = hashlib.sha256(text).hexdigest()
            texts.update({kernel: text for kernel in ptx_kernels() if kernel.sha256 == digest})
    except OSError as error:
        raise OrinportError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not texts:
        raise OrinportError(
            f"{path} holds none of the PTX files that NVIDIA publishes for DCNv4.",
            "They are in AV-Solutions/dcnv4-trt/plugins/dcnv4PtxPlugin of github.com/NVIDIA/DL4AGX, commit 482b3f53.",
        )
    return texts


def _ptx_peer(texts: Mapping[PtxKernel, bytes], device: Callable[[int], CudaDevice] = cuda_device) -> Peer:
    """NVIDIA's PTX kernels, assembled by the driver when first needed."""

    @cache
    def load(kernel: PtxKernel, ordinal: int) -> Loaded:
        architecture = device(ordinal).architecture
        if architecture < kernel.architecture:
            needed, present = (f"sm_{major}{minor}" for major, minor in (kernel.architecture, architecture))
            raise PeerUnfitError(f"{kernel.file} is for {needed} and later, this GPU is {present}")
        return device(ordinal).load_ptx(texts[kernel], kernel.entry)

    def prepare(tensors: Tensors, geometry: Geometry) -> Callable[[], object]:
        kernel = _kernel_for(tensors, geometry)
        if kernel not in texts:
            raise PeerUnfitError(f"{kernel.file}, which is for this size, was not given")
        loaded = load(kernel, tensors.value.device.index or 0)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (tensors.value, tensors.offset_mask, tensors.output)]

        def run() -> None:
            stream = torch.cuda.current_stream().cuda_stream
            loaded.launch_plain((*kernel.grid, 1), (kernel.threads, 1), 0, stream, *pointers)

        return run

    return Peer(PTX, prepare)


def _kernel_for(tensors: Tensors, geometry: Geometry) -> PtxKernel:
    """The kernel for a problem. Its sizes are part of its code, so anything else would lie outside of the tensors."""
    types = {t.dtype for t in (tensors.value, tensors.offset_mask, tensors.output)}
    if types != {torch.float16}:
        raise PeerUnfitError("its kernels are for float16")
    if geometry != Geometry(geometry.group, 16):
        raise PeerUnfitError(
            "its kernels are for 3x3, stride 1, padding 1, dilation 1, offset scale 1 and groups of 16 channels"
        )
    batch, height, width, channels = tensors.value.shape
    for kernel in ptx_kernels():
        if (kernel.batch, kernel.size, kernel.size, kernel.group) == (batch, height, width, geometry.group):
            break
    else:
        raise PeerUnfitError(f"it has no kernel for {batch}x{height}x{width}x{channels}")
    if tensors.offset_mask.shape[3] != geometry.width or not all(
        t.is_contiguous() for t in (tensors.value, tensors.offset_mask, tensors.output)
    ):
        raise PeerUnfitError(f"it reads dense tensors with offset_mask rows of {geometry.width} numbers")
    return kernel
