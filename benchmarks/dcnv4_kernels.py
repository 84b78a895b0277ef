"""How fast are the DCNv4 kernels, and how far from float64? Tables for one NVIDIA GPU.

FlashInternImage-T's levels at batch 1 and 128 (float16 in both accuracies, float32), detection sizes, and gradients,
beside the published package DCNv4 and deformops' Triton kernel where they can be imported (--peer FOLDER adds a folder
to the import path) and NVIDIA's PTX kernels (--peer-ptx FOLDER). Every output is compared with float64 before it is
timed; times are medians of CUDA-graph replays. What could not be timed beside ours is listed last, with the reason.

    python benchmarks/dcnv4_kernels.py [--tune] [--peer FOLDER ...] [--peer-ptx FOLDER] [--only REGEX] [--json FILE]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from pathlib import Path

import torch

from orinport.dcnv4 import cuda, cuda_bench, cuda_peers
from orinport.dcnv4.arguments import Geometry
from orinport.dcnv4.composed import dcnv4_composed
from orinport.dcnv4.cuda_bench import Problem
from orinport.dcnv4.cuda_compile import cuda_device

T_LEVELS = [(56, 4), (28, 8), (14, 16), (7, 32)]
DETECTION = [(200, 320), (100, 160), (50, 80), (25, 40)]
DETECTION_GROUPS = [(8, 16), (4, 32), (4, 64)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tune", action="store_true", help="time every configuration first and use the fastest")
    parser.add_argument(
        "--peer", type=Path, nargs="*", default=[], help="folders from which DCNv4 and deformops can be imported"
    )
    parser.add_argument("--peer-ptx", type=Path, help="folder with NVIDIA's PTX files, or one of them")
    parser.add_argument("--only", default="", help="only problems whose name this pattern finds; no gradients")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    peers, missing = cuda_peers.find_peers(options.peer, options.peer_ptx)
    left_out = {f"{each.name}: {each.reason}": ["everything"] for each in missing}
    bandwidth = cuda_bench.copy_bandwidth()
    print(f"{cuda_bench.describe(cuda_device(0))}; copies at {bandwidth / 1e12:.2f} TB/s")
    rows, tuned = [], set()
    beside = "".join(f" {peer.name}, us | its error | faster |" for peer in peers)
    print(f"\n| problem | mode | us | range | of roofline | error | configuration |{beside}")
    print("|---" * (7 + 3 * len(peers)) + "|")
    for problem, fast, cold in problems():
        if not re.search(options.only, str(problem)):
            continue
        if options.tune and (problem, fast) not in tuned:
            tuned.add((problem, fast))
            timed, _ = cuda_bench.tune(problem, fast=fast)
            cuda._prepare.cache_clear()
            if options.only:
                best = sorted(timed, key=lambda result: result.microseconds)[:5]
                print("tuned:", ", ".join(f"{each.name} {each.microseconds:.2f}" for each in best), flush=True)
        results = cuda_bench.measure(problem, fast=fast, cold=cold, peers=() if fast else peers)
        rows.append(row(problem, fast, cold, results, bandwidth, peers))
        for each in results.left_out:
            left_out.setdefault(f"{each.name}: {each.reason}", []).append(str(problem))
    if not options.only:
        rows += all_gradients(any(peer.name == cuda_peers.PUBLISHED for peer in peers))
    print("\nleft out")
    for reason, where in left_out.items():
        print(f"- {reason} ({', '.join(dict.fromkeys(where))})")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1, default=str))


def all_gradients(peer):
    """The table of gradients, float16 at batch 64."""
    print("\ngradients\n\n| problem | us | error | deterministic us | error | peer us | speed-up |")
    print("|---|---|---|---|---|---|---|")
    return [gradients(Problem(64, size, size, Geometry(group, 16)), peer) for size, group in T_LEVELS]


def problems():
    """(problem, fast, cold): batch 128 with inputs that are in no cache, and with the same inputs in every launch."""
    for batch, cold in ((128, False), (128, True), (1, False)):
        for size, group in T_LEVELS:
            for fast in (False, True):
                yield Problem(batch, size, size, Geometry(group, 16)), fast, cold
    for cold in (False, True):
        for size, group in T_LEVELS:
            yield Problem(128, size, size, Geometry(group, 16), torch.float32), False, cold
    for size, group in T_LEVELS:
        yield Problem(128, size, size, Geometry(group, 16), torch.bfloat16), False, True
    for height, width in DETECTION:
        for group, channels in DETECTION_GROUPS:
            yield Problem(1, height, width, Geometry(group, channels)), False, False


def row(problem, fast, cold, results, bandwidth, peers):
    (ours,) = results.ours
    theirs = {peer.name: peer for peer in results.peers}
    floor = problem.bytes / bandwidth * 1e6
    mode = f"{'fast' if fast else 'exact'}{', cold' if cold else ''}"
    beside = "".join(beside_ours(theirs.get(peer.name), ours) for peer in peers)
    print(
        f"| {problem} | {mode} | {ours.microseconds:.2f} | {ours.spread[0]:.2f} to {ours.spread[1]:.2f} | "
        f"{100 * floor / ours.microseconds:.0f} % | {ours.error:.1e} | {ours.name} |{beside}",
        flush=True,
    )
    return {
        "problem": str(problem),
        "mode": mode,
        "floor_us": floor,
        "ours": dataclasses.asdict(ours),
        "peers": {name: dataclasses.asdict(peer) for name, peer in theirs.items()},
        "left_out": {each.name: each.reason for each in results.left_out},
    }


def beside_ours(peer, ours):
    """A peer's three cells; empty where it was not timed."""
    if peer is None:
        return "  |  |  |"
    return f" {peer.microseconds:.2f} | {peer.error:.1e} | {peer.microseconds / ours.microseconds:.2f} |"


def gradients(problem, peer):
    geometry = problem.geometry
    tensors = cuda_bench.Tensors.draw(problem)
    gradient = torch.randn_like(tensors.output)
    expected = ([], [])
    for value, vectors, upstream in zip(
        *(t.split(16) for t in (tensors.value, tensors.offset_mask, gradient)), strict=True
    ):
        inputs = [value.double().requires_grad_(), vectors.double().requires_grad_()]
        dcnv4_composed(*inputs, geometry).backward(upstream.double())
        for part, tensor in zip(expected, inputs, strict=True):
            part.append(tensor.grad)
    expected = [torch.cat(part) for part in expected]
    cells = []
    for deterministic in (False, True):

        def run(deterministic=deterministic):
            return cuda.dcnv4_backward_cuda(
                gradient, tensors.value, tensors.offset_mask, geometry, deterministic=deterministic
            )

        error = max(cuda_bench.relative_error(a, b) for a, b in zip(run(), expected, strict=True))
        cells.append((cuda_bench.time_us([run], 8)[0], error))
    theirs = peer_gradients(tensors, gradient, geometry) if peer else float("nan")
    print(
        f"| {problem} | {cells[0][0]:.0f} | {cells[0][1]:.1e} | {cells[1][0]:.0f} | {cells[1][1]:.1e} | {theirs:.0f} | "
        f"{theirs / cells[0][0]:.2f} |",
        flush=True,
    )
    return {"problem": str(problem), "gradients": cells, "peer_us": theirs}


def peer_gradients(tensors, gradient, geometry):
    """Time of the published package's gradient kernel, with its zero-filled buffers and conversions."""
    from DCNv4 import ext
    from DCNv4.functions.dcnv4_func import find_spec_bwd

    batch, height, width, _ = tensors.value.shape
    stride, threads = find_spec_bwd(batch, height, width, geometry.group, geometry.group_channels)

    def run():
        return ext.dcnv4_backward(
            tensors.value,
            tensors.offset_mask,
            *geometry.window,
            geometry.group,
            geometry.group_channels,
            geometry.offset_scale,
            256,
            gradient,
            0,
            stride,
            threads,
            False,
        )

    return cuda_bench.time_us([run], 8)[0]


if __name__ == "__main__":
    main()
