"""Measure the CUDA kernels on this machine's GPU: correct first, then timed as replays of a CUDA graph."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from orinport.dcnv4.arguments import Geometry
from orinport.dcnv4.composed import dcnv4_composed
from orinport.dcnv4.cuda import ELEMENT_TYPES, Prepared, prepare_forward
from orinport.dcnv4.cuda_compile import CudaDevice, CudaUnavailableError, cuda_device
from orinport.dcnv4.cuda_peers import LeftOut, Peer
from orinport.dcnv4.cuda_plan import CONFIGURATIONS, candidates, kernel_name
from orinport.dcnv4.cuda_timing import time_us
from orinport.dcnv4.cuda_tune import problem_key, remember
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = [
    "Measurement",
    "Problem",
    "Results",
    "Tensors",
    "copy_bandwidth",
    "float64_output",
    "measure",
    "time_us",
    "tune",
]

_CHUNK = 16
_COLD_BYTES = 300_000_000
"""Working sets larger than any GPU's cache, when inputs are rotated."""


@dataclass(frozen=True)
class Problem:
    """A DCNv4 operator with its sizes; value is (batch, height, width, C) of `dtype`, as is offset_mask."""

    batch: int
    height: int
    width: int
    geometry: Geometry
    dtype: torch.dtype = torch.float16

    def __str__(self) -> str:
        size = f"{self.batch}x{self.height}x{self.width}x{self.geometry.channels}"
        return f"{size} G{self.geometry.group} {str(self.dtype).removeprefix('torch.')}"

    @property
    def bytes(self) -> int:
        """Bytes of value, offset_mask and output, each moved once."""
        rows, columns = self.geometry.output_size(self.height, self.width)
        numbers = self.height * self.width * self.geometry.channels
        numbers += rows * columns * (self.geometry.width + self.geometry.channels)
        return int(self.batch * numbers * self.dtype.itemsize)


@dataclass(frozen=True)
class Tensors:
    """Random inputs of a problem, standard normal, and room for its output."""

    value: torch.Tensor
    offset_mask: torch.Tensor
    output: torch.Tensor

    @classmethod
    def draw(cls, problem: Problem, seed: int = 0) -> Tensors:
        """Inputs on the current GPU."""
        generator = torch.Generator("cuda").manual_seed(seed)
        rows, columns = problem.geometry.output_size(problem.height, problem.width)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device="cuda", generator=generator).to(problem.dtype)

        value = normal(problem.batch, problem.height, problem.width, problem.geometry.channels)
        vectors = normal(problem.batch, rows, columns, problem.geometry.width)
        return cls(value, vectors, value.new_empty((problem.batch, rows, columns, problem.geometry.channels)))


@dataclass(frozen=True)
class Measurement:
    """What was measured of one way to compute a problem."""

    name: str
    microseconds: float
    spread: tuple[float, float]
    """Fastest and slowest replay."""
    error: float
    """Relative L2 error against float64."""
    configuration: int = field(default=0)


@dataclass(frozen=True)
class Results:
    """What was measured of a problem."""

    ours: list[Measurement]
    """One for each configuration that can compute it."""
    peers: list[Measurement]
    left_out: list[LeftOut]
    """Peers that could not compute it."""


def float64_output(tensors: Tensors, geometry: Geometry) -> torch.Tensor:
    """The output in float64, computed on the GPU a few images at a time."""
    pairs = zip(tensors.value.split(_CHUNK), tensors.offset_mask.split(_CHUNK), strict=True)
    return torch.cat([dcnv4_composed(value.double(), vectors.double(), geometry) for value, vectors in pairs])


def relative_error(output: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative L2 error; infinite if the output is not finite everywhere."""
    difference = output.double() - expected
    return float(difference.norm() / expected.norm()) if bool(torch.isfinite(difference).all()) else float("inf")


def copies(problem: Problem, cold: bool) -> int:
    """Input sets to rotate through: one, or as many as exceed the caches."""
    return max(2, min(16, -(-_COLD_BYTES // problem.bytes))) if cold else 1


def measure(
    problem: Problem,
    *,
    fast: bool = False,
    configurations: Sequence[int] = (0,),
    peers: Sequence[Peer] = (),
    cold: bool = False,
) -> Results:
    """Check and time configurations (0: the plan's choice) and peers on the same inputs.

    `cold` rotates through enough input sets that none is in the cache. A peer that fails, in whatever way, is left out
    with the reason; our configurations that cannot compute the problem are left out silently.
    """
    sets = [Tensors.draw(problem, seed) for seed in range(copies(problem, cold))]
    expected = float64_output(sets[0], problem.geometry)
    launches = 24 if problem.bytes > 10_000_000 else 200
    results = Results([], [], [])
    for peer in peers:
        own = [replace(tensors, output=torch.empty_like(tensors.output)) for tensors in sets]
        try:
            theirs = [peer.prepare(tensors, problem.geometry) for tensors in own]
            results.peers.append(_measure_one(peer.name, 0, theirs, own, expected, launches))
        except Exception as error:  # other people's code: it is left out, in its own words
            results.left_out.append(LeftOut.because(peer.name, error))
    for number in configurations:
        try:
            prepared = [
                prepare_forward(t.value, t.offset_mask, t.output, problem.geometry, fast=fast, configuration=number)
                for t in sets
            ]
        except CudaUnavailableError:
            continue
        chosen = prepared[0].configuration
        runs = [_launcher(launch) for launch in prepared]
        name = str(CONFIGURATIONS[chosen - 1])
        results.ours.append(_measure_one(name, chosen, runs, sets, expected, launches))
    return results


def _launcher(prepared: Prepared) -> Callable[[], object]:
    return lambda: prepared.run(torch.cuda.current_stream().cuda_stream)


def _measure_one(
    name: str,
    number: int,
    runs: Sequence[Callable[[], object]],
    sets: Sequence[Tensors],
    expected: torch.Tensor,
    launches: int,
) -> Measurement:
    sets[0].output.fill_(float("nan"))
    runs[0]()
    error = relative_error(sets[0].output, expected)
    median, spread = time_us(runs, launches)
    return Measurement(name, median, spread, error, number)


def tune(problem: Problem, *, fast: bool = False) -> tuple[list[Measurement], Path]:
    """Time every configuration, remember the fastest one for this GPU, and return all of them and the file."""
    device = cuda_device(torch.cuda.current_device())
    tensors = Tensors.draw(problem)
    params = prepare_forward(tensors.value, tensors.offset_mask, tensors.output, problem.geometry, fast=fast).params
    kind = ELEMENT_TYPES[problem.dtype]
    numbers = candidates(params, kind, kind, device.limits)
    names = {kernel_name(params, kind, kind, fast, CONFIGURATIONS[number - 1]) for number in numbers}
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: device.kernel("forward.cuh", name), sorted(names)))
    results = measure(problem, fast=fast, configurations=numbers).ours
    right = [result for result in results if result.error < 1e-2]
    if not right:
        raise OrinportError(f"No configuration of {kernel_name(params, kind, kind, fast, CONFIGURATIONS[0])} is right.")
    best = min(right, key=lambda result: result.microseconds)
    return results, remember(device, {problem_key(params, kind, kind, fast): best.configuration})


def copy_bandwidth() -> float:
    """Bytes per second, read plus written, of an elementwise kernel over 2 GiB."""
    source = torch.ones(1 << 29, device="cuda")
    target = torch.empty_like(source)
    microseconds, _ = time_us([lambda: torch.neg(source, out=target)], 4)
    return float(2 * source.numel() * source.element_size() / microseconds * 1e6)


def describe(device: CudaDevice) -> str:
    """The GPU, driver, compiler and PyTorch in one line."""
    return f"{device.identity}, PyTorch {torch.__version__}"
