"""What calibration costs: time and peak memory against bare inference, all tensors in histograms, and what binds.

    python benchmarks/calibration.py [--images 500] [--network resnet50] [--repeats 3] [--only bare,calibration]

Each run is a process of its own, all kinds by turns, fed with the same arrays from the same file:

- `bare`: ONNX Runtime with its default options on the network as it is
- `as written`: the same network without optimisations, a sample on each core, no tensor watched
- `stored`: and with those tensors handed out that calibration needs, which nobody looks at
- `calibration`: as `orinport quantize` does it, reading the network and finding the ranges included

Threads of `bare` do not spin while they wait (`session.intra_op.allow_spinning`), which changes wall time little on an
idle machine and lets CPU time say what was computed. CPU time is what other work on the machine disturbs least; the
smallest of all repeats is compared, since nothing makes a run faster than it is. Peak memory is that of the process,
imports included.
"""

from __future__ import annotations

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

import numpy as np
import onnx
import onnxruntime

KINDS = ("bare", "as written", "stored", "calibration")


def light(name: str) -> Path:
    """A network of the onnx package: real layers, made-up weights."""
    return Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx"


def bare(model: str, data: str) -> None:
    """Inference alone."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    for image in np.load(data, mmap_mode="r"):
        session.run(None, {name: np.ascontiguousarray(image[None])})


def as_written(model: str, data: str, *, stored: bool) -> None:
    """Inference of what calibration runs, without histograms."""
    from orinport.model.load import load
    from orinport.model.runtime import open_session
    from orinport.model.save import to_proto
    from orinport.precision.calibrate import CalibrationOptions, _with_outputs, watched
    from orinport.precision.plan import plan_of

    network = load(model)
    plan = plan_of(
        network, watched(network), megabytes=CalibrationOptions().megabytes, threads=max(1, os.cpu_count() or 1)
    )
    wanted = plan.roots if stored else ()
    source = to_proto(_with_outputs(network, wanted)).SerializeToString()
    session = open_session(source, threads=plan.threads, optimise=False)
    name = session.get_inputs()[0].name
    images, numbers, lock = (
        np.load(data, mmap_mode="r"),
        iter(range(len(np.load(data, mmap_mode="r")))),
        threading.Lock(),
    )

    def work() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            session.run(None, {name: np.ascontiguousarray(images[number][None])})

    workers = [threading.Thread(target=work) for _ in range(plan.streams)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()


def calibrated(model: str, data: str) -> None:
    """Calibration as `orinport quantize` does it."""
    from orinport.model.load import load
    from orinport.precision.calibrate import calibrate

    scales = calibrate(load(model), data)
    print(len(scales), file=sys.stderr)


def child(kind: str, model: str, data: str) -> None:
    """One run in this process; its costs as JSON."""
    started = time.perf_counter()
    if kind == "bare":
        bare(model, data)
    elif kind == "calibration":
        calibrated(model, data)
    else:
        as_written(model, data, stored=kind == "stored")
    wall = time.perf_counter() - started
    use = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"wall": wall, "cpu": use.ru_utime + use.ru_stime, "mib": use.ru_maxrss / 1024}))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--network", default="resnet50")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, separated by commas; bare is one of them")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        model, data = str(light(options.network)), str(Path(folder) / "images.npy")
        rng = np.random.default_rng(0)
        np.save(data, rng.standard_normal((options.images, 3, 224, 224), dtype=np.float32))
        runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in options.only.split(",")}
        for _ in range(options.repeats):
            for kind, done in runs.items():
                command = [sys.executable, __file__, "--child", kind, model, data]
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                done.append(json.loads(out.splitlines()[-1]))
    print(
        f"{options.network}, {options.images} images of 224x224, smallest of {options.repeats} (median);"
        f" {os.cpu_count()} CPUs, {platform.machine()}, load {os.getloadavg()[0]:.1f},"
        f" ONNX Runtime {onnxruntime.__version__}"
    )
    print("| | wall, s | CPU, s | peak, MiB | wall / bare | CPU / bare |")
    print("|---|---|---|---|---|---|")
    least = {key: min(each[key] for each in runs["bare"]) for key in ("wall", "cpu")}
    for kind, done in runs.items():
        cells = []
        for key in ("wall", "cpu", "mib"):
            values = [each[key] for each in done]
            cells.append(f"{min(values):.1f} ({median(values):.1f})")
        cells += [f"{min(each[key] for each in done) / least[key]:.2f}" for key in ("wall", "cpu")]
        print(f"| {kind} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
