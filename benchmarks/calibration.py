"""What calibration costs: time and peak memory against bare inference, all tensors in histograms, and what binds.

    python benchmarks/calibration.py [--images 500] [--network resnet50] [--repeats 3] [--only "KIND;KIND;..."]

The network is one of the onnx package's, its constants replaced by random weights. Each run is a process of its own,
all kinds by turns, fed with the same arrays from the same file:

- `bare`: ONNX Runtime with its default options on the network as it is
- `bare side by side`: the same with a sample on each core, which is the fastest that ONNX Runtime does it
- `optimised, uncounted`: what calibration runs, with nothing bound that counts
- `calibration`: as `orinport quantize` does it, reading the network and finding the ranges included
- `calibration, all counted`: the same with all elements in histograms, as other methods than `percentile` need it
- `as written`: the network without optimisations, a sample on each core, no tensor watched
- `min-max`: calibration by that method, which runs the network as it is written

Threads of `bare` do not spin while they wait (`session.intra_op.allow_spinning`), which changes wall time little on an
idle machine and lets CPU time say what was computed. CPU time is what other work on the machine disturbs least; the
smallest of all repeats is compared, since nothing makes a run faster than it is. Peak memory is that of the process,
imports included.
"""

from __future__ import annotations

import orinport  # noqa: F401  before ONNX Runtime, whose usage events it turns off

# isort: split
import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

KINDS = (
    "bare",
    "bare side by side",
    "optimised, uncounted",
    "calibration",
    "calibration, all counted",
    "as written",
    "min-max",
)


def light(name: str) -> Path:
    """A network of the onnx package: real layers, made-up weights."""
    return Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx"


def filled(name: str, path: Path, *, fold: bool) -> None:
    """Write the network with random weights, scaled so that values stay in the same order from layer to layer."""
    proto, rng = onnx.load_from_string(light(name).read_bytes()), np.random.default_rng(0)
    shapes = {each.name: numpy_helper.to_array(each) for each in proto.graph.initializer}
    weights, nodes = {}, []
    for node in proto.graph.node:
        if node.op_type != "ConstantOfShape":
            nodes.append(node)
            continue
        output, shape = node.output[0], tuple(int(size) for size in shapes[node.input[0]])
        if len(shape) > 1:
            weights[output] = rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        else:
            weights[output] = rng.standard_normal(shape) / 10
    for node in nodes:
        if node.op_type == "BatchNormalization":
            for part in (each for each in (node.input[1], node.input[4]) if each in weights):
                weights[part] = rng.uniform(0.5, 1.5, weights[part].shape)
    if fold:
        nodes = folded(nodes, weights, {each: shapes[each] for each in shapes.keys() - weights.keys()})
    used = {each for node in nodes for each in node.input}
    kept = {each: array.astype(np.float32) for each, array in weights.items() if each in used}
    arrays = [numpy_helper.from_array(array, each) for each, array in kept.items()]
    arrays += [each for each in proto.graph.initializer if each.name in used]
    graph = proto.graph
    inputs = [each for each in graph.input if each.name in used and each.name not in {array.name for array in arrays}]
    made = onnx.helper.make_graph(nodes, graph.name, inputs, graph.output, arrays)
    onnx.save(onnx.helper.make_model(made, opset_imports=proto.opset_import, ir_version=proto.ir_version), path)


def folded(nodes: list, weights: dict, others: dict) -> list:
    """The nodes with every batch normalisation behind a convolution as part of that, as PyTorch exports a network."""
    convolutions = {node.output[0]: node for node in nodes if node.op_type == "Conv" and len(node.input) == 2}
    left = []
    for node in nodes:
        convolution = convolutions.get(node.input[0]) if node.op_type == "BatchNormalization" else None
        if convolution is None:
            left.append(node)
            continue
        gamma, beta, mean, variance = ((weights | others)[part] for part in node.input[1:])
        factor = gamma / np.sqrt(variance + 1e-5)
        filters = convolution.input[1]
        weights[filters] = weights[filters] * factor[:, None, None, None]
        weights[f"{filters} bias"] = beta - mean * factor
        convolution.input.append(f"{filters} bias")
        convolution.output[0] = node.output[0]
    return left


def bare(model: str, data: str) -> None:
    """Inference alone."""
    session = onnxruntime.InferenceSession(model, quiet(), providers=["CPUExecutionProvider"])
    run_side_by_side(session, data, 1)


def bare_side_by_side(model: str, data: str) -> None:
    """Inference alone, a sample on each core."""
    options = quiet()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    run_side_by_side(session, data, os.cpu_count() or 1)


def quiet() -> onnxruntime.SessionOptions:
    """Options whose threads do not spin."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def as_written(model: str, data: str) -> None:
    """Inference of the network without optimisations, a sample on each core."""
    from orinport.model.runtime import open_session

    run_side_by_side(open_session(model, threads=1, optimise=False), data, os.cpu_count() or 1)


def uncounted(model: str, data: str) -> None:
    """What calibration runs, without counters."""
    from orinport.model.load import load
    from orinport.model.model import shape_of
    from orinport.model.runtime import open_session
    from orinport.model.save import to_proto
    from orinport.precision.calibrate import _with_outputs, watched
    from orinport.precision.plan import plan_of
    from orinport.precision.tap import tapping
    from orinport.precision.tapped import tapped

    network, functions = load(model), tapping()
    if functions is None:
        raise SystemExit("There is no C compiler.")
    plan = plan_of(network, watched(network), megabytes=1, threads=1)
    values = [*network.graph.inputs, *(value for node in network.graph for value in node.outputs)]
    shapes = {value.name: shape_of(value) for value in values if value.name in plan.roots}
    source = to_proto(_with_outputs(network, plan.roots)).SerializeToString()
    with tempfile.TemporaryDirectory() as folder:
        made = tapped(source, shapes, 1, Path(folder))
        session = open_session(str(made.path), threads=1, optimise=False, operators=functions.path)
    run_side_by_side(session, data, os.cpu_count() or 1)


def run_side_by_side(session: onnxruntime.InferenceSession, data: str, streams: int) -> None:
    """Run all samples in so many threads."""
    name, output = session.get_inputs()[0].name, [session.get_outputs()[0].name]
    images = np.load(data, mmap_mode="r")
    numbers, lock = iter(range(len(images))), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            session.run(output, {name: np.ascontiguousarray(images[number][None])})

    workers = [threading.Thread(target=work) for _ in range(streams)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()


def calibrated(model: str, data: str, **options: Any) -> None:
    """Calibration as `orinport quantize` does it."""
    from orinport.model.load import load
    from orinport.precision.calibrate import CalibrationOptions, calibrate

    scales = calibrate(load(model), data, options=CalibrationOptions(**options))
    print(len(scales), file=sys.stderr)


def child(kind: str, model: str, data: str) -> None:
    """One run in this process; its costs as JSON."""
    started = time.perf_counter()
    if kind == "bare":
        bare(model, data)
    elif kind == "bare side by side":
        bare_side_by_side(model, data)
    elif kind == "optimised, uncounted":
        uncounted(model, data)
    elif kind == "as written":
        as_written(model, data)
    elif kind == "min-max":
        calibrated(model, data, method="min-max")
    elif kind == "calibration, all counted":
        calibrated(model, data, counted=0)
    else:
        calibrated(model, data)
    wall = time.perf_counter() - started
    use = resource.getrusage(resource.RUSAGE_SELF)
    # ru_maxrss would begin with what the process that started this one held.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"wall": wall, "cpu": use.ru_utime + use.ru_stime, "mib": int(peak.split()[1]) / 1024}))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--network", default="resnet50")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default=";".join(KINDS), help="kinds, separated by semicolons, beside both bare ones")
    parser.add_argument("--fold", action="store_true", help="batch normalisations as parts of the convolutions")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        model, data = str(Path(folder) / "network.onnx"), str(Path(folder) / "images.npy")
        filled(options.network, Path(model), fold=options.fold)
        rng = np.random.default_rng(0)
        np.save(data, rng.standard_normal((options.images, 3, 224, 224), dtype=np.float32))
        wanted = dict.fromkeys([*KINDS[:2], *options.only.split(";")])
        runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in wanted}
        for _ in range(options.repeats):
            for kind, done in runs.items():
                command = [sys.executable, __file__, "--child", kind, model, data]
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                done.append(json.loads(out.splitlines()[-1]))
    network = f"{options.network}, folded" if options.fold else options.network
    print(
        f"{network}, {options.images} images of 224x224, smallest of {options.repeats} (median);"
        f" {os.cpu_count()} CPUs, {platform.machine()}, load {os.getloadavg()[0]:.1f},"
        f" ONNX Runtime {onnxruntime.__version__}"
    )
    print("| | wall, s | CPU, s | peak, MiB | wall / bare | CPU / bare | wall / side by side | CPU / side by side |")
    print("|---|---|---|---|---|---|---|---|")
    least = {kind: {key: min(each[key] for each in done) for key in ("wall", "cpu")} for kind, done in runs.items()}
    for kind, done in runs.items():
        cells = []
        for key in ("wall", "cpu", "mib"):
            values = [each[key] for each in done]
            cells.append(f"{min(values):.1f} ({median(values):.1f})")
        for other in ("bare", "bare side by side"):
            cells += [f"{least[kind][key] / least[other][key]:.2f}" for key in ("wall", "cpu")]
        print(f"| {kind} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
