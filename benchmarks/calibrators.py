"""Which calibration method keeps trained networks closest to FP32?

PP-OCR and nudenet (packages rapidocr-onnxruntime and nudenet), calibrated on 16 rendered pictures, every tensor and all
weights quantised as Q/DQ layers in ONNX Runtime, against FP32 on 6 other pictures: signal-to-noise ratio in dB over all
outputs. The tensors are watched once; every method takes its ranges from the same histograms. Beside the SNR stands
how far the ranges of a method reach in the median and at the tenth percentile, as a part of the largest magnitude:
entropy cuts off much more than the others where a tensor has few large values that matter.

    ORINPORT_TEST_MODELS=FOLDER python benchmarks/calibrators.py [--ties except-products]
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from orinport.checking import as_target, check_model
from orinport.model.load import load
from orinport.precision.calibrate import collect, scales_of
from orinport.precision.calibrators import METHODS
from orinport.precision.ties import Ties
from orinport.quantization import Int8Options, finish, write_scales
from orinport.targets.target import Precision
from precision.trained import NETWORKS, TARGET, find, rendered


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ties", default=Ties.EXCEPT_PRODUCTS.value, choices=[each.value for each in Ties])
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, ONNX Runtime {onnxruntime.__version__}, ties {options.ties}")
    print(f"| network | {' | '.join(f'`{method}`' for method in METHODS)} |")
    print(f"|---|{'---|' * len(METHODS)}")
    reaches = []
    for name in NETWORKS:
        network = find(name)
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder) / "d.npy", rendered(16, network.shape, seed=0))
            model = load(network.path, shapes=network.shapes)
            collected = collect(model, str(Path(folder) / "d.npy"))
            checked = check_model(model, as_target(TARGET), Precision.INT8)
            found, reach = [], []
            for method in METHODS:
                scales = scales_of(collected, method=method)
                ranges = [
                    scales[each].range / histogram.largest
                    for each, histogram in collected.histograms.items()
                    if histogram.largest > 0
                ]
                reach.append(f"{np.median(ranges):.2f} ({np.percentile(ranges, 10):.2f})")
                report = finish(scales, model, checked, Int8Options(data="d.npy", ties=Ties(options.ties)))
                write_scales(report, Path(folder) / "q.onnx")
                found.append(snr(network.path, Path(folder) / "q.onnx", network.given, network.shape))
        reaches.append(f"| {name} | {' | '.join(reach)} |")
        print(f"| {name} | {' | '.join(f'{each:.1f}' for each in found)} |", flush=True)
    print("\nrange / largest magnitude: median over tensors (tenth percentile)")
    print("\n".join(reaches))


def snr(exact: Path, quantised: Path, given: str, shape: tuple[int, ...]) -> float:
    """In dB, over all outputs and six pictures."""
    sessions = [onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]) for path in (exact, quantised)]
    signal = noise = 0.0
    for picture in rendered(6, shape, seed=99):
        for want, have in zip(*(session.run(None, {given: picture[None]}) for session in sessions), strict=True):
            signal += float((want.astype(np.float64) ** 2).sum())
            noise += float(((want.astype(np.float64) - have) ** 2).sum())
    return 10 * float(np.log10(signal / noise))


if __name__ == "__main__":
    main()
