"""`orinport dcnv4 bench`: check and time the CUDA kernels on this machine's GPU, and remember the fastest ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from orinport.errors import MissingExtraError, OrinportError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from orinport.dcnv4.cuda_bench import Measurement, Problem
    from orinport.dcnv4.cuda_peers import LeftOut
    from orinport.dcnv4.flash_internimage import Variant

__all__ = ["bench"]

_LIMITS = {"exact": 3e-4, "fast": 5e-4}
_FLOAT32_LIMIT = 2e-6
_BFLOAT16_LIMIT = 3e-3


def bench(
    *,
    batch: Annotated[tuple[int, ...], Parameter(name=["--batch", "-b"], consume_multiple=True, help="Batch sizes.")] = (
        1,
        128,
    ),
    variant: Annotated[
        Literal["t", "s", "b", "l"], Parameter(help="The FlashInternImage whose levels are timed.")
    ] = "t",
    size: Annotated[int, Parameter(help="Height and width of the images, a multiple of 32.")] = 224,
    dtype: Annotated[Literal["float16", "bfloat16", "float32"], Parameter(help="Type of all tensors.")] = "float16",
    accuracy: Annotated[
        Literal["exact", "fast"], Parameter(help="exact: float32 arithmetic; fast: interpolation in float16 pairs.")
    ] = "exact",
    cold: Annotated[
        bool, Parameter(name="--cold", negative="", help="Rotate through inputs so that none is in the cache.")
    ] = False,
    tune: Annotated[
        bool, Parameter(name="--tune", negative="", help="Time every configuration and use the fastest from now on.")
    ] = False,
    peer: Annotated[
        tuple[Path, ...],
        Parameter(
            name="--peer", negative="", help="A folder with the package DCNv4 or deformops, where it is not installed."
        ),
    ] = (),
    peer_ptx: Annotated[
        Path | None, Parameter(help="One of NVIDIA's PTX files for DCNv4 (dcnv4_stage0_b128.ptx ...), or their folder.")
    ] = None,
) -> int:
    """Check the DCNv4 kernels against float64 and time them, with the implementations of others that are there.

    Those are the published package DCNv4 and deformops' Triton kernel, where they are installed or in a folder that
    --peer names, and NVIDIA's PTX kernels from --peer-ptx. What is not there or cannot compute a size is named with the
    reason.

    Times are medians of CUDA-graph replays; "floor" is the time to move value, offset_mask and output once at the
    measured copy bandwidth. Exit status 1 if an error of ours exceeds the accuracy's limit.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", "torch", "dcnv4 bench") from error
    if not torch.cuda.is_available():
        raise OrinportError(
            "dcnv4 bench measures on an NVIDIA GPU, and PyTorch finds none.",
            "Run it on a machine with a GPU and a PyTorch built for CUDA.",
        )
    from orinport.dcnv4 import cuda_bench, cuda_peers
    from orinport.dcnv4.cuda_compile import CudaUnavailableError, cuda_device
    from orinport.dcnv4.flash_internimage import VARIANTS, variant_name

    if size < 32 or size % 32:
        raise OrinportError(f"--size must be a multiple of 32, not {size}.")
    if tune and (peer or peer_ptx):
        raise OrinportError("--tune times our configurations alone.", "Leave --peer and --peer-ptx out.")
    try:
        device = cuda_device(torch.cuda.current_device())
    except CudaUnavailableError as error:
        raise OrinportError(f"The kernels cannot be used: {error}.") from error
    peers, missing = ([], []) if tune else cuda_peers.find_peers(peer, peer_ptx)
    bandwidth = cuda_bench.copy_bandwidth()
    print(f"{cuda_bench.describe(device)}; copies at {bandwidth / 1e12:.2f} TB/s; {accuracy}, {dtype}")
    for each in missing:
        print(_left_out(each))
    limit = {"float32": _FLOAT32_LIMIT, "bfloat16": _BFLOAT16_LIMIT}.get(dtype, _LIMITS[accuracy])
    wrong = 0
    for problem in _levels(VARIANTS[variant_name(variant)], batch, size, getattr(torch, dtype)):
        if tune:
            ours, path = cuda_bench.tune(problem, fast=accuracy == "fast")
            results = cuda_bench.Results(sorted(ours, key=lambda result: result.microseconds)[:5], [], [])
        else:
            results = cuda_bench.measure(problem, fast=accuracy == "fast", peers=peers, cold=cold)
        wrong += sum(result.error > limit for result in results.ours)
        print(_table(problem, results.peers + results.ours, bandwidth))
        for each in results.left_out:
            print("  " + _left_out(each))
    if tune:
        print(f"remembered in {path}")
    return 1 if wrong else 0


def _levels(network: Variant, batch: tuple[int, ...], size: int, dtype: torch.dtype) -> Iterator[Problem]:
    """The operators of a network's levels, for each number of images of `size` pixels a side."""
    from orinport.dcnv4.arguments import Geometry
    from orinport.dcnv4.cuda_bench import Problem

    for images in batch:
        for level, groups in enumerate(network.groups):
            channels = network.channels * 2**level
            geometry = Geometry(groups, channels // groups, offset_scale=network.offset_scale)
            side = size // (4 * 2**level)
            yield Problem(images, side, side, geometry, dtype)


def _table(problem: Problem, results: list[Measurement], bandwidth: float) -> str:
    floor = problem.bytes / bandwidth * 1e6
    lines = [f"{problem}: floor {floor:.2f} us"]
    lines += [
        f"  {result.microseconds:9.2f} us ({result.spread[0]:.2f} to {result.spread[1]:.2f})  "
        f"{100 * floor / result.microseconds:3.0f} %  error {result.error:.1e}  {result.name}"
        for result in results
    ]
    return "\n".join(lines)


def _left_out(peer: LeftOut) -> str:
    return f"{peer.name}: left out: {peer.reason}"
