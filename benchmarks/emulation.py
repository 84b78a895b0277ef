"""What does emulated INT8 cost, compared with the same network in FP32?

ResNet-50 v1.5 at 224x224 (or FILE), random weights and scales from min-max calibration on random inputs, every
convolution in INT8 as on the DLA. Both run in ONNX Runtime with its optimisations on, in turns, on the same input: a
pair is one run of each. Printed are medians with the 10th and 90th percentile, and the median ratio of pairs.

    python benchmarks/emulation.py [FILE.onnx] [--pairs 30] [--threads 2]
"""

from __future__ import annotations

import orinport  # noqa: F401  before ONNX Runtime, whose usage events it turns off

# isort: split
import argparse
import os
import platform
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from orinport.checking import as_precision, as_target, check_model
from orinport.model.load import load
from orinport.pipeline import rewrite_for
from orinport.precision.calibrate import CalibrationOptions
from orinport.precision.emulate import Arithmetic, arithmetic_of, emulate
from orinport.precision.emulate_measure import Runner, restrict, with_outputs
from orinport.quantization import Int8Options, quantize_model
from orinport.rewrites.random_inputs import random_inputs
from orinport.rules.finding import Verdict
from reference_networks import build_resnet50

TARGET = "orin-agx-64gb/jp6.2"
BAR = 3.0


def spread(values: np.ndarray) -> str:
    """Median and percentiles, in ms."""
    low, middle, high = np.percentile(values * 1e3, [10, 50, 90])
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    target, int8 = as_target(TARGET), as_precision("int8")
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder) / "resnet50.onnx"
        if options.file is None:
            network = build_resnet50()
            network.batch = 1
            onnx.save(network.model(), path)
        model, _, _ = rewrite_for(load(path), target, int8)
        rng = np.random.default_rng(0)
        samples = [random_inputs(model.graph.inputs, rng) for _ in range(4)]
        data = Path(folder) / "samples.npz"
        np.savez(data, **{name: np.concatenate([each[name] for each in samples]) for name in samples[0]})
        quantized = quantize_model(
            model, target, Int8Options(data=str(data), calibration=CalibrationOptions(method="min-max"))
        )
    report = check_model(model, target, int8)
    dla = {row.layer.index for row in report.layers if row.verdict is Verdict.DLA}
    arithmetic = arithmetic_of([row.layer for row in report.layers], dla, quantized.scales)
    started = time.perf_counter()
    found = emulate(model, arithmetic, quantized.scales)
    built = time.perf_counter() - started
    outputs = [value.name or "" for value in model.graph.outputs]
    plain = Runner(with_outputs(model, outputs), threads=options.threads)
    other = Runner(restrict(found, outputs), threads=options.threads)
    times = np.empty((options.pairs, 2))
    for runner in (plain, other):
        runner.run(samples[0])
    for pair in range(options.pairs):
        for index, runner in enumerate((plain, other) if pair % 2 else (other, plain)):
            started = time.perf_counter()
            runner.run(samples[0])
            times[pair, index if pair % 2 else 1 - index] = time.perf_counter() - started
    kinds = Counter(arithmetic.values())
    ratio = float(np.median(times[:, 1] / times[:, 0]))
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f},", end=" "
    )
    print(f"{options.threads} threads, ONNX Runtime {onnxruntime.__version__}, {options.pairs} pairs")
    print(f"{model.name}: {', '.join(f'{kinds[kind]} nodes in {kind.value}' for kind in Arithmetic)}")
    print("| fp32, ms | emulated int8, ms | ratio | building the emulation, s |")
    print("|---|---|---|---|")
    print(f"| {spread(times[:, 0])} | {spread(times[:, 1])} | {ratio:.2f} | {built:.2f} |")
    print(f"bar: under {BAR:g}, {'met' if ratio < BAR else 'MISSED'}")


if __name__ == "__main__":
    main()
