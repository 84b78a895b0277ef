"""How fast is DCNv4 on a CPU: our operator, composing grid_sample, and the portable form in ONNX Runtime?

First every implementation is compared with the float64 reference, on the data that is measured. Then they take turns,
round after round, so that whatever else the machine does meets them all; medians and the middle 80 % are printed, and
the ratios are medians of the ratios within a round. The operators are those of FlashInternImage-T at 224x224; the
whole network follows: PyTorch with our operator and with grid_sample, and ONNX Runtime with the portable form, fused
and not. Threads that have nothing to do sleep, so that no implementation waits for another's.

    python benchmarks/dcnv4_cpu.py [--threads 2] [--rounds 30] [--operators-only] [--output FILE]
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait must not slow the next task down
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # ONNX Runtime is loaded before orinport, which would set it

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch

from orinport.dcnv4 import Geometry, dcnv4, reference
from orinport.dcnv4.cpu import kernels
from orinport.dcnv4.export import export_module
from orinport.dcnv4.flash_internimage import flash_internimage
from orinport.dcnv4.node import DOMAIN, make_node
from orinport.dcnv4.portable import portable_proto
from orinport.dcnv4.projections import fuse_projections

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx

SHAPES = ((56, 4), (28, 8), (14, 16), (7, 32))
"""Side and groups of the four levels, batch 1, 16 channels a group."""
OURS, PEER, PORTABLE = "ours (C)", "grid_sample", "ONNX Runtime, portable"
TOLERANCE = 1e-5
BAR = 3.0


def grid_sample_dcnv4(value, offset_mask, geometry):
    """DCNv4 as it is usually composed in PyTorch: one grid_sample over all taps, times masks, summed."""
    batch, height, width, channels = value.shape
    rows, columns = geometry.output_size(height, width)
    group, depth, taps = geometry.group, geometry.group_channels, geometry.taps
    images = value.permute(0, 3, 1, 2).reshape(batch * group, depth, height, width)
    numbers = offset_mask[..., : geometry.used_width].reshape(batch, rows * columns, group, 3 * taps)
    numbers = numbers.permute(0, 2, 1, 3).reshape(batch * group, rows * columns, 3 * taps)
    offsets = numbers[..., : 2 * taps].reshape(batch * group, rows * columns, taps, 2)
    grid = _normalised_grid(geometry, height, width, value) + offsets * _factors(geometry, height, width, value)
    samples = torch.nn.functional.grid_sample(images, grid, "bilinear", "zeros", align_corners=False)
    summed = (samples * numbers[:, None, :, 2 * taps :]).sum(-1)
    return summed.reshape(batch, channels, rows, columns).permute(0, 2, 3, 1).contiguous()


_GRIDS: dict[tuple[object, ...], torch.Tensor] = {}


def _normalised_grid(geometry, height, width, like):
    """The grid without offsets, made once for each size: its cost is not the peer's."""
    key = (geometry, height, width)
    if key not in _GRIDS:
        rows, columns = geometry.output_size(height, width)
        y = torch.arange(rows) * geometry.stride[0] + geometry.origin[0]
        x = torch.arange(columns) * geometry.stride[1] + geometry.origin[1]
        ty, tx = (geometry.offset_scale * torch.tensor(geometry.tap_offsets)).T
        at_y = (y[:, None, None] + ty).expand(rows, columns, -1)
        at_x = (x[None, :, None] + tx).expand(rows, columns, -1)
        grid = torch.stack([(2 * at_x + 1) / width - 1, (2 * at_y + 1) / height - 1], -1)
        _GRIDS[key] = grid.reshape(1, rows * columns, geometry.taps, 2).to(like.dtype)
    return _GRIDS[key]


def _factors(geometry, height, width, like):
    key = ("factors", geometry, height, width)
    if key not in _GRIDS:
        _GRIDS[key] = torch.tensor([2 * geometry.offset_scale / width, 2 * geometry.offset_scale / height]).to(
            like.dtype
        )
    return _GRIDS[key]


def session(proto: onnx.ModelProto, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def portable_operator(geometry: Geometry, side: int, threads: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    shapes = {"value": [1, side, side, geometry.channels], "vectors": [1, side, side, geometry.width]}
    kind = ir.TensorType(ir.DataType.FLOAT)
    inputs = [ir.Value(name=name, shape=ir.Shape(shape), type=kind) for name, shape in shapes.items()]
    node = make_node(geometry, inputs, "dcn")
    graph = ir.Graph(inputs, node.outputs, nodes=[node], name="dcn", opset_imports={"": 17, DOMAIN: 1})
    running = session(portable_proto(ir.to_proto(ir.Model(graph, ir_version=10))), threads)
    return lambda value, vectors: running.run(None, {"value": value, "vectors": vectors})[0]


def take_turns(tasks: dict[str, Callable[[], object]], rounds: int) -> dict[str, np.ndarray]:
    """Seconds of every task in every round; the order within a round moves on by one."""
    for task in tasks.values():
        for _ in range(3):
            task()
    names = list(tasks)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            start = time.perf_counter()
            tasks[name]()
            seconds[name].append(time.perf_counter() - start)
    return {name: np.array(found) for name, found in seconds.items()}


def repeated(task: Callable[[], object], times: int) -> Callable[[], object]:
    def run() -> None:
        for _ in range(times):
            task()

    return run


@dataclass
class Row:
    what: str
    seconds: dict[str, np.ndarray]
    errors: dict[str, float]

    def ratio(self, name: str) -> float:
        return float(np.median(self.seconds[name] / self.seconds[OURS]))


def measure_operator(side: int, group: int, threads: int, rounds: int) -> Row:
    geometry = Geometry(group, 16)
    generator = torch.Generator().manual_seed(side)
    value = torch.randn((1, side, side, geometry.channels), generator=generator)
    vectors = torch.randn((1, side, side, geometry.width), generator=generator)
    portable = portable_operator(geometry, side, threads)
    arrays = value.numpy(), vectors.numpy()
    tasks: dict[str, Callable[[], object]] = {
        OURS: lambda: dcnv4(value, vectors, group=group, group_channels=16),
        PEER: lambda: grid_sample_dcnv4(value, vectors, geometry),
        PORTABLE: lambda: portable(*arrays),
    }
    expected = reference(*arrays, group=group, group_channels=16)
    errors = {name: distance(np.asarray(task()), expected) for name, task in tasks.items()}
    times = max(1, (56 // side) ** 2 // 2)
    seconds = take_turns({name: repeated(task, times) for name, task in tasks.items()}, rounds)
    return Row(f"{side}x{side}x{geometry.channels}", {n: s / times for n, s in seconds.items()}, errors)


def measure_network(threads: int, rounds: int) -> Row:
    from orinport.dcnv4 import modules

    network = flash_internimage("t", seed=0)
    images = torch.randn((1, 3, 224, 224), generator=torch.Generator().manual_seed(0))
    plain = ir.to_proto(export_module(network, (images,)))
    fused = ir.to_proto(fuse_projections(plain).model.ir)
    sessions = {
        PORTABLE: session(portable_proto(plain), threads),
        "ONNX Runtime, portable, fused": session(portable_proto(fused), threads),
    }
    ours = modules.dcnv4

    def peer(value, offset_mask, *, group, group_channels, offset_scale, **_):
        return grid_sample_dcnv4(value, offset_mask, Geometry(group, group_channels, offset_scale=offset_scale))

    def with_operator(operator: Callable[..., torch.Tensor]) -> Callable[[], torch.Tensor]:
        def run() -> torch.Tensor:
            modules.dcnv4 = operator
            try:
                return network(images)
            finally:
                modules.dcnv4 = ours

        return run

    tasks: dict[str, Callable[[], object]] = {OURS: with_operator(ours), PEER: with_operator(peer)}
    for name, running in sessions.items():
        tasks[name] = lambda running=running: running.run(None, {"input": images.numpy()})[0]
    wide = flash_internimage("t", seed=0).double()
    expected = wide(images.double()).numpy()
    errors = {name: distance(np.asarray(task()), expected) for name, task in tasks.items()}
    return Row("FlashInternImage-T", take_turns(tasks, rounds), errors)


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def table(rows: Sequence[Row], unit: float, name: str) -> list[str]:
    implementations = list(rows[0].seconds)
    lines = [
        f"| {name} | "
        + " | ".join(implementations)
        + " | "
        + " | ".join(f"{n} / ours" for n in implementations[1:])
        + " |",
        "|" + "---|" * (2 * len(implementations)),
    ]
    for row in rows:
        cells = []
        for each in implementations:
            low, middle, high = np.percentile(row.seconds[each], (10, 50, 90)) * unit
            cells.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
        ratios = [f"{row.ratio(each):.1f}" for each in implementations[1:]]
        lines.append(f"| {row.what} | " + " | ".join([*cells, *ratios]) + " |")
    lines += ["", "Relative L2 error against float64: " + "; ".join(_errors(rows)) + ".", ""]
    return lines


def _errors(rows: Sequence[Row]) -> list[str]:
    return [f"{name} {max(row.errors[name] for row in rows):.1e}" for name in rows[0].errors]


def machine() -> str:
    try:
        listed = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
        found = dict(line.split(":", 1) for line in listed.splitlines() if ":" in line)
        return f"{found['Model name'].strip()}, {found['CPU(s)'].strip()} CPUs"
    except (OSError, subprocess.CalledProcessError, KeyError):
        return platform.processor() or platform.machine()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--operators-only", action="store_true")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_grad_enabled(False)
    if kernels() is None:
        return 1
    rows = [measure_operator(side, group, arguments.threads, arguments.rounds) for side, group in SHAPES]
    today, load = datetime.date.today().isoformat(), os.getloadavg()[0]
    lines = [
        f"{today}, {machine()}, {arguments.threads} threads, load average {load:.1f}; "
        f"Python {platform.python_version()}, PyTorch {torch.__version__}, ONNX Runtime {onnxruntime.__version__}.",
        "",
        f"`python benchmarks/dcnv4_cpu.py --threads {arguments.threads} --rounds {arguments.rounds}`: "
        "medians (10th to 90th percentile), batch 1, float32.",
        "",
        *table(rows, 1e3, "operator, ms"),
    ]
    networks = []
    if not arguments.operators_only:
        networks = [measure_network(arguments.threads, max(5, arguments.rounds // 3))]
        lines += table(networks, 1e3, "network, ms")
    text = "\n".join(lines)
    sys.stdout.write(text + "\n")
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text("# DCNv4 on a CPU\n\n" + text, encoding="utf-8")
    worst = max(error for row in rows for error in row.errors.values())
    slowest = min(row.ratio(PEER) for row in rows)
    good = worst <= TOLERANCE and slowest >= BAR
    sys.stdout.write(
        f"{'reached' if good else 'MISSED'}: grid_sample takes at least {slowest:.1f} times as long (bar {BAR:g}); "
        f"largest error {worst:.1e} (allowed {TOLERANCE:g})\n"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
