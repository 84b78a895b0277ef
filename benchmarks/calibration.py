"""What calibration costs: time and peak memory against bare inference, all tensors in histograms.

    python benchmarks/calibration.py [--images 500] [--network resnet50] [--repeats 3]

Each run is a process of its own, bare inference and calibration by turns. Bare inference is ONNX Runtime with its
default options on the network as it is, fed with the same arrays from the same file. Besides wall time there is CPU
time, which other work on the machine disturbs less. Peak memory is that of the process, imports included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import onnx


def light(name: str) -> Path:
    """A network of the onnx package: real layers, made-up weights."""
    return Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx"


def bare(model: str, data: str) -> None:
    """Inference alone."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    for image in np.load(data, mmap_mode="r"):
        session.run(None, {name: np.ascontiguousarray(image[None])})


def calibrated(model: str, data: str) -> None:
    """Calibration as `orinport quantize` does it, ranges by entropy included."""
    from orinport.model.load import load
    from orinport.precision.calibrate import calibrate

    scales = calibrate(load(model), data)
    print(len(scales), file=sys.stderr)


def child(kind: str, model: str, data: str) -> None:
    """One run in this process; its costs as JSON."""
    started = time.perf_counter()
    (bare if kind == "bare" else calibrated)(model, data)
    wall = time.perf_counter() - started
    use = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"wall": wall, "cpu": use.ru_utime + use.ru_stime, "mib": use.ru_maxrss / 1024}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--network", default="resnet50")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        model, data = str(light(options.network)), str(Path(folder) / "images.npy")
        rng = np.random.default_rng(0)
        np.save(data, rng.standard_normal((options.images, 3, 224, 224), dtype=np.float32))
        runs: dict[str, list[dict[str, float]]] = {"bare": [], "calibration": []}
        for _ in range(options.repeats):
            for kind, done in runs.items():
                command = [sys.executable, __file__, "--child", kind, model, data]
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                done.append(json.loads(out.splitlines()[-1]))
    print(f"{options.network}, {options.images} images of 224x224, median of {options.repeats} (smallest to largest)")
    for kind, done in runs.items():
        columns = []
        for key, unit in (("wall", "s"), ("cpu", "s of CPU"), ("mib", "MiB")):
            values = [each[key] for each in done]
            columns.append(f"{median(values):8.1f} ({min(values):.1f} to {max(values):.1f}) {unit}")
        print(f"{kind:12}", *columns)
    for key in ("wall", "cpu"):
        ratios = [b[key] / a[key] for a, b in zip(runs["bare"], runs["calibration"], strict=True)]
        print(f"calibration / bare, {key}: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
