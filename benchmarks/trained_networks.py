"""What does INT8 as the DLA computes it cost PP-OCR and nudenet, and does the ranking's first layer in FP16 help?

Networks of the packages rapidocr-onnxruntime and nudenet, prepared for the DLA with scales from 16 rendered pictures;
each is emulated on others that calibration has not seen, output by output against FP32, and every INT8 layer is tried
in FP16. The first of that ranking is then set to FP16 in a run of its own.

    ORINPORT_TEST_MODELS=FOLDER python benchmarks/trained_networks.py [--pictures 16] [--rank-pictures 2] [NAME ...]
"""

from __future__ import annotations

import orinport  # before ONNX Runtime, whose usage events it turns off

# isort: split
import argparse
import platform
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from orinport.precision.emulate import Arithmetic
from orinport.precision.sensitivity import output_snr
from precision.trained import NETWORKS, TARGET, find, setting


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NETWORKS))
    parser.add_argument("--pictures", type=int, default=16)
    parser.add_argument("--rank-pictures", type=int, default=2, help="0 ranks nothing")
    parser.add_argument("--ties", default="all", choices=["all", "except-products", "none"])
    options = parser.parse_args()
    print(f"{platform.machine()}, ONNX Runtime {onnxruntime.__version__}, {TARGET}", end=", ")
    print(f"{options.pictures} pictures, ties {options.ties}")
    print("| network | nodes INT8, FP16, off the DLA | output | SNR, dB | cosine | first wrong tensor, dB |")
    print("|---|---|---|---|---|---|")
    ranked = []
    for name in options.names or NETWORKS:
        network = find(name)
        with tempfile.TemporaryDirectory() as folder:
            paths = {each: Path(folder) / each for each in ("calibration.npy", "others.npy", "bundle")}
            np.save(paths["calibration.npy"], network.rendered(16, seed=0))
            others = network.rendered(options.pictures, seed=99)
            np.save(paths["others.npy"], others)
            orinport.prepare(
                network.path,
                precision="int8",
                data=paths["calibration.npy"],
                shapes=network.shapes,
                target=TARGET,
                ties=options.ties,
                output=paths["bundle"],
            )
            given = {"emulate": "dla-int8", "data": paths["others.npy"], "target": TARGET, "ties": options.ties}
            report = orinport.verify(paths["bundle"], cases=0, **given)
            first = report.first_wrong
            told = "none" if first is None else f"`{first.name}`, {first.snr_db:.1f}"
            for row in report.output_rows:
                nodes = f"{report.int8}, {report.fp16}, {report.fp32}"
                print(f"| {name} | {nodes} | `{row.name}` | {row.snr_db:.1f} | {row.cosine:.4f} | {told} |", flush=True)
            if not options.rank_pictures:
                continue
            started = time.perf_counter()
            ranking = orinport.verify(paths["bundle"], cases=options.rank_pictures, rank=True, **given).ranking
            spent = time.perf_counter() - started
            model, kinds, scales = setting(paths["bundle"])
            (value,) = model.graph.inputs
            samples = [{value.name: each[None]} for each in others[: options.rank_pictures]]
            best = ranking[0]
            changed = {**kinds, **dict.fromkeys(best.nodes, Arithmetic.FP16)}
            before, after = (output_snr(model, each, scales, samples) for each in (kinds, changed))
            cost = "unknown" if best.extra_us is None else f"{best.extra_us:.1f}"
            ranked.append(
                f"| {name} | {len(ranking)} | `{best.layer}` | {before:.2f} | {after:.2f} | {cost} | {spent:.0f} |"
            )
    if not ranked:
        return
    print(f"\n{options.rank_pictures} pictures")
    head = ("network", "layers tried", "first", "SNR before, dB", "with it in FP16, dB", "costs, us", "ranking, s")
    print(f"| {' | '.join(head)} |")
    print("|---|---|---|---|---|---|---|")
    print("\n".join(ranked))


if __name__ == "__main__":
    main()
