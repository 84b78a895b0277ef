"""What the rewriting catalogue does to real networks: layers, loadables and share of MACs on the DLA, before and after.

    python benchmarks/rewriting_table.py [--target TARGET] [--precision fp16] [--models FOLDER] [--only NAME]

The light networks come with the onnx package: real layers, made-up weights. Trained ones are taken from the packages
rapidocr-onnxruntime (PP-OCR) and nudenet where those are installed, or from a folder that holds their files anywhere.
Where PyTorch is installed, a few networks of random weights are exported by its current exporter: an encoder layer of a
transformer, recurrent layers and a U-Net.
Every network is rewritten twice: with exact rewrites alone, as `orinport prepare` does, and with approximations within
a stated error as well. A share is that of the multiply-accumulates of all layers; the rewritten network has more of
them. What is left either way is printed below the table by kind, verdict and finding.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from orinport.checking import as_precision, as_target, check_model
from orinport.model.load import load
from orinport.pipeline import rewrite_for
from orinport.predict.macs import layer_macs
from orinport.rewrites.proof import compare_models
from orinport.rewrites.rewrite import Safety
from orinport.rules.finding import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.results import CheckReport
    from orinport.targets.target import Precision, Target

LIGHT = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
TRAINED = {
    "PP-OCRv4 detection": ("rapidocr_onnxruntime", "ch_PP-OCRv4_det_infer.onnx", (1, 3, 640, 640)),
    "PP-OCRv4 recognition": ("rapidocr_onnxruntime", "ch_PP-OCRv4_rec_infer.onnx", (1, 3, 48, 320)),
    "PP-OCR classification": ("rapidocr_onnxruntime", "ch_ppocr_mobile_v2.0_cls_infer.onnx", (1, 3, 48, 192)),
    "nudenet": ("nudenet", "320n.onnx", (1, 3, 320, 320)),
}
"""Package, file and input shape."""

EXACT = (Safety.EXACT,)
APPROXIMATE = (Safety.EXACT, Safety.TOLERANCE)


@dataclass(frozen=True, slots=True)
class State:
    """One network as the target would take it."""

    dla: int
    layers: int
    loadables: int
    share: float

    @classmethod
    def of(cls, report: CheckReport) -> State:
        """Counted from a check."""
        on = sum(layer_macs(row.layer) for row in report.layers if row.verdict is Verdict.DLA)
        total = sum(layer_macs(row.layer) for row in report.layers)
        count = report.count(Verdict.DLA)
        return cls(count, len(report.layers), report.placement.loadables, on / total if total else 1.0)

    def cells(self) -> str:
        """Columns of a Markdown table."""
        return f"{self.dla} of {self.layers} | {self.loadables} | {100 * self.share:.2f} %"


def networks(folder: Path | None) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Name and model of every network that is there."""
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    for name in LIGHT:
        yield f"light {name}", onnx.ModelProto.FromString((light / f"light_{name}.onnx").read_bytes())
    for name, (package, file, shape) in TRAINED.items():
        path = find(package, file, folder)
        if path is None:
            print(f"{name}: {file} is not there", file=sys.stderr)
            continue
        proto = onnx.ModelProto.FromString(path.read_bytes())
        for dim, size in zip(proto.graph.input[0].type.tensor_type.shape.dim, shape, strict=True):
            dim.dim_value = size
        yield name, proto


def exported() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Networks written by PyTorch's current exporter; none without PyTorch."""
    if find_spec("torch") is None:
        print("PyTorch is not installed", file=sys.stderr)
        return
    import torch

    class UNet(torch.nn.Module):
        """Three scales, convolutions of 3x3 with batch normalisation, ConvTranspose with output padding."""

        def __init__(self, widths: tuple[int, ...] = (16, 32, 64)) -> None:
            super().__init__()
            self.down = torch.nn.ModuleList(
                block(before, after) for before, after in zip((3, *widths), widths, strict=False)
            )
            self.up = torch.nn.ModuleList(
                torch.nn.ConvTranspose2d(deep, flat, 3, stride=2, padding=1, output_padding=1)
                for flat, deep in pairwise(widths)
            )
            self.join = torch.nn.ModuleList(block(2 * flat, flat) for flat in widths[:-1])
            self.head = torch.nn.Conv2d(widths[0], 4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sides = []
            for index, stage in enumerate(self.down):
                x = stage(x if index == 0 else torch.nn.functional.max_pool2d(x, 2))
                sides.append(x)
            for side, up, join in reversed(list(zip(sides, self.up, self.join, strict=False))):
                x = join(torch.cat([side, up(x)], 1))
            return self.head(x)

    def block(before: int, after: int) -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Conv2d(before, after, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(after),
            torch.nn.ReLU(),
        )

    torch.manual_seed(0)
    deep = {"num_layers": 2, "bidirectional": True, "batch_first": True}
    encoder = torch.nn.TransformerEncoderLayer(192, 3, 768, activation="gelu", batch_first=True, norm_first=True)
    for name, module, shape in (
        ("PyTorch encoder layer, 197 tokens", encoder, (1, 197, 192)),
        ("PyTorch RNN, 2 layers, both directions", torch.nn.RNN(32, 64, **deep), (1, 20, 32)),
        ("PyTorch GRU, 2 layers, both directions", torch.nn.GRU(32, 64, **deep), (1, 20, 32)),
        ("PyTorch LSTM, 2 layers, both directions", torch.nn.LSTM(32, 64, **deep), (1, 20, 32)),
        ("PyTorch U-Net", UNet(), (1, 3, 128, 128)),
    ):
        program = torch.onnx.export(module.eval(), (torch.randn(shape),), dynamo=True, verbose=False)
        yield name, program.model_proto


def find(package: str, file: str, folder: Path | None) -> Path | None:
    """The file in the folder, or in the installed package."""
    spec = find_spec(package)
    roots = (
        [folder]
        if folder is not None
        else [Path(root) for root in (spec.submodule_search_locations or ())]
        if spec
        else []
    )
    return next((path for root in roots for path in sorted(root.rglob(file))), None)


def left(report: CheckReport) -> list[str]:
    """What the DLA does not take, by kind, verdict and finding."""
    groups = Counter(
        (row.layer.kind.value, row.verdict.value, " ".join(row.codes) or "follows its readers")
        for row in report.layers
        if row.verdict is not Verdict.DLA
    )
    return [f"{number} {kind} ({verdict}: {codes})" for (kind, verdict, codes), number in groups.most_common()]


def row(name: str, proto: onnx.ModelProto, target: Target, precision: Precision) -> tuple[str, list[list[str]]]:
    """The table's row of one network, and what is left of it after exact rewrites and after approximations."""
    model = load(proto)
    states = [State.of(check_model(model, target, precision))]
    remains: list[list[str]] = []
    started = time.perf_counter()
    for consent in (EXACT, APPROXIMATE):
        rewritten, log, edges = rewrite_for(model, target, precision, consent=consent)
        if log.rolled_back:
            raise SystemExit(f"{name}: {log.rolled_back[0]}")
        if consent is EXACT:
            proof = compare_models(model, rewritten, edges, cases=1)
            if not proof.equal:
                raise SystemExit(f"{name} differs after rewriting: {proof.rows}")
        report = check_model(rewritten, target, precision)
        states.append(State.of(report))
        remains.append(left(report))
    print(f"{name}: {time.perf_counter() - started:.1f} s", file=sys.stderr)
    return f"| {name} | " + " | ".join(state.cells() for state in states) + " |", remains


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="orin-agx-64gb/jp6.2")
    parser.add_argument("--precision", default="fp16", choices=("fp16", "int8"))
    parser.add_argument("--models", type=Path, help="folder with the files of PP-OCR and nudenet")
    parser.add_argument("--only", default="", help="part of a name")
    options = parser.parse_args(arguments)
    target, precision = as_target(options.target), as_precision(options.precision)
    columns = [
        f"{what} {when}" for when in ("before", "exact", "approximate") for what in ("layers", "loadables", "MACs")
    ]
    print("| network | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    notes: dict[str, list[str]] = {"exact rewrites alone": [], "approximations": []}
    for name, proto in chain(networks(options.models), exported()):
        if options.only not in name:
            continue
        line, remains = row(name, proto, target, precision)
        print(line, flush=True)
        for lines, rest in zip(notes.values(), remains, strict=True):
            lines += [f"- {name}: {'; '.join(rest)}"] if rest else []
    for how, lines in notes.items():
        print(f"\nLeft with {how}:\n" if lines else f"\nNothing is left with {how}.")
        print("\n".join(lines))


if __name__ == "__main__":
    main()
