"""Which calibration method keeps trained networks closest to FP32 on the DLA?

PP-OCR and nudenet (packages rapidocr-onnxruntime and nudenet), rewritten for the DLA, calibrated on one set of pictures
and emulated on others as the DLA computes them: signal-to-noise ratio of the network's output in dB. Rendered text:
three calibrations of 16 pictures, compared on the same 32 others. With --pictures also crops of the pictures of that
folder: the first half of the files by name calibrates (24 crops) and the second compares (32), then the reverse.
With --spoiled one of the 16 rendered pictures is in another unit (times 255), as happens when data is prepared wrongly.
All methods take their ranges from the same histograms, but min-max, which runs the network as it is written.

    ORINPORT_TEST_MODELS=FOLDER python benchmarks/calibrators.py [--ties all] [--pictures FOLDER] [--spoiled] [NAME ...]
"""

from __future__ import annotations

import orinport  # noqa: F401  before ONNX Runtime, whose usage events it turns off

# isort: split
import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from orinport.checking import as_target, check_model
from orinport.model.load import load
from orinport.model.model import Model
from orinport.pipeline import rewrite_for
from orinport.precision.calibrate import CalibrationOptions, Collected, collect, input_specs, scales_of
from orinport.precision.emulate import arithmetic_of, emulate
from orinport.precision.emulate_measure import Runner, outputs_of, restrict, snr_of, with_outputs
from orinport.precision.scales import Scales
from orinport.precision.ties import Ties
from orinport.quantization import Int8Options, finish
from orinport.results import CheckReport
from orinport.rewrites.edges import EdgeMapping, board_feed
from orinport.rules.finding import Verdict
from orinport.targets.target import Precision
from precision.trained import NETWORKS, TARGET, Trained, find

METHODS = (("percentile", 99.99), ("percentile", 99.999), ("mse", 99.99), ("entropy", 99.99), ("min-max", 99.99))
CLASSES = {"pp-ocr recognition": 6625, "pp-ocr classification": 2}
"""Length of the output's axis whose largest value is the answer."""
FILES = (".png", ".jpg", ".jpeg")
Feeds = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Prepared:
    """A network as the DLA gets it."""

    original: Model
    model: Model
    edges: tuple[EdgeMapping, ...]
    checked: CheckReport

    @property
    def output(self) -> str:
        """Name of its only output."""
        (tensor,) = self.model.outputs
        return tensor.name

    def collected(self, pictures: np.ndarray) -> dict[bool, Collected]:
        """What calibration sees of the tensors: of the network as it is written (True), or optimised."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "d.npy"
            np.save(path, pictures)
            given = {"inputs": input_specs(self.original), "feed": board_feed(self.edges)}
            options = {True: CalibrationOptions(method="min-max"), False: CalibrationOptions()}
            return {key: collect(self.model, str(path), options=each, **given) for key, each in options.items()}

    def feeds(self, pictures: np.ndarray) -> list[Feeds]:
        """The pictures as the board takes them."""
        (value,) = self.original.graph.inputs
        feed = board_feed(self.edges) or dict
        return [feed({value.name or "": each[None]}) for each in pictures]

    def emulated(self, scales: Scales, ties: Ties, feeds: Sequence[Feeds]) -> list[np.ndarray]:
        """The output as the DLA computes it."""
        full = finish(scales, self.model, self.checked, Int8Options(data="d.npy", ties=ties)).scales
        on_dla = {row.layer.index for row in self.checked.layers if row.verdict is Verdict.DLA}
        found = emulate(self.model, arithmetic_of([row.layer for row in self.checked.layers], on_dla, full), full)
        runner = Runner(restrict(found, [self.output]))
        return [next(iter(outputs_of(found, {**each, **runner.run(each)}, [self.output]))) for each in feeds]

    def exact(self, feeds: Sequence[Feeds]) -> list[np.ndarray]:
        """The output in FP32."""
        runner = Runner(with_outputs(self.model, {self.output}))
        return [runner.run(each)[self.output] for each in feeds]


def prepared(network: Trained) -> Prepared:
    """Rewritten as `prepare` does it."""
    target = as_target(TARGET)
    original = load(network.path, shapes=network.shapes)
    model, _, edges = rewrite_for(original, target, Precision.INT8)
    return Prepared(original, model, edges, check_model(model, target, Precision.INT8))


def sets(network: Trained, folder: Path | None, *, spoiled: bool) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """What the pictures are, those that calibrate, and those that compare."""
    for seed in range(3):
        pictures = network.rendered(16, seed)
        if spoiled:
            pictures[seed] *= 255
        yield f"text {seed + 1}", pictures, network.rendered(32, 99)
    if folder is None:
        return
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in FILES)
    halves = files[: len(files) // 2], files[len(files) // 2 :]
    for number, (here, there) in enumerate((halves, halves[::-1])):
        yield f"photographs {number + 1}", network.crops(here, 24, number), network.crops(there, 32, 99)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NETWORKS))
    parser.add_argument("--ties", default=Ties.ALL.value, choices=[each.value for each in Ties])
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--spoiled", action="store_true")
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, ONNX Runtime {onnxruntime.__version__}, ties {options.ties}")
    spelled = [f"{method} {share:g}" if method == "percentile" else method for method, share in METHODS]
    print(f"| network | calibrated on | {' | '.join(spelled)} |")
    print(f"|---|---|{'---|' * len(METHODS)}")
    for name in options.names or NETWORKS:
        network = find(name)
        ready = prepared(network)
        for what, calibration, others in sets(network, options.pictures, spoiled=options.spoiled):
            row = compare(ready, calibration, others, Ties(options.ties), CLASSES.get(name))
            print(f"| {name} | {what} | {' | '.join(row)} |", flush=True)


def compare(
    ready: Prepared, calibration: np.ndarray, others: np.ndarray, ties: Ties, classes: int | None
) -> Iterator[str]:
    """SNR by each method; where there are classes, also the share of answers that stay."""
    collected, feeds = ready.collected(calibration), ready.feeds(others)
    wanted = ready.exact(feeds)
    for method, share in METHODS:
        scales = scales_of(collected[method == "min-max"], method=method, percentile=share)
        had = ready.emulated(scales, ties, feeds)
        ratio = snr_of([{"": each} for each in wanted], [{"": each} for each in had])
        yield f"{ratio:.1f}" if classes is None else f"{ratio:.1f} ({agreement(wanted, had, classes):.0%})"


def agreement(wanted: Sequence[np.ndarray], had: Sequence[np.ndarray], classes: int) -> float:
    """Share of answers (largest of `classes` values) that are the same."""
    axis = wanted[0].shape.index(classes)
    same = [want.argmax(axis) == have.argmax(axis) for want, have in zip(wanted, had, strict=True)]
    return float(np.mean(same))


if __name__ == "__main__":
    main()
