"""Quantises a small classifier with NVIDIA's ModelOpt and writes what it exports, for test_modelopt.py.

    python tests/precision/modelopt_export.py tests/precision/data/modelopt

Runs in an environment of its own, with `pip install nvidia-modelopt torch onnx onnxruntime onnxscript requests
huggingface_hub onnx-graphsurgeon onnxslim onnxconverter-common lief`; orinport is not used. Written are the network in
FP32, its exports from `modelopt.torch.quantization` (weights by channel and by tensor) and
`modelopt.onnx.quantization` (max and entropy), the patterns that the classes are, and `quantizers.json` with the amax
of every quantiser of PyTorch's exports.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from copy import deepcopy
from pathlib import Path

import numpy as np
import onnx
import torch

SIZE = (3, 16, 16)
CLASSES = 10
WIDTH = 12


class Net(torch.nn.Module):
    """Convolutions with batch normalisation, a residual block, a deconvolution and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, WIDTH, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(WIDTH)
        self.second = torch.nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.up = torch.nn.ConvTranspose2d(WIDTH, 8, 2, stride=2)
        self.pool = torch.nn.AvgPool2d(4)
        self.last = torch.nn.Linear(8 * 4 * 4, CLASSES)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
        y = torch.relu(self.second(y) + y)
        return torch.flatten(self.pool(torch.relu(self.up(y))), 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.features(x))


def noisy(rng: np.random.Generator, patterns: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    labels = rng.integers(0, CLASSES, count)
    return (patterns[labels] + rng.normal(0, 0.5, (count, *SIZE))).astype(np.float32), labels


def classifier(rng: np.random.Generator, patterns: np.ndarray) -> Net:
    """Random features; the linear layer is fitted by least squares."""
    net = Net()
    pictures, labels = noisy(rng, patterns, 1500)
    with torch.no_grad():
        net.train()
        for _ in range(30):
            net(torch.from_numpy(pictures[:256]))
        net.eval()
        seen = net.features(torch.from_numpy(pictures)).double()
        middle = seen.mean(0)
        wanted = torch.nn.functional.one_hot(torch.from_numpy(labels), CLASSES).double() - 1 / CLASSES
        centred = seen - middle
        fitted = torch.linalg.solve(centred.T @ centred + torch.eye(seen.shape[1]), centred.T @ wanted)
        net.last.weight.copy_(fitted.T)
        net.last.bias.copy_(-(middle @ fitted))
    return net


def export(net: torch.nn.Module, path: Path) -> None:
    sample = torch.zeros(1, *SIZE)
    torch.onnx.export(net, (sample,), path, opset_version=17, dynamo=False, input_names=["x"], output_names=["y"])
    clean(path)


def clean(path: Path) -> None:
    """Without the places in source files that exporters write down."""
    model = onnx.ModelProto.FromString(path.read_bytes())
    for each in (model, model.graph, *model.graph.node):
        each.doc_string = ""
        del each.metadata_props[:]
    onnx.save(model, path)


def amax(net: torch.nn.Module) -> dict[str, list[float]]:
    return {
        name: each.amax.detach().reshape(-1).tolist()
        for name, each in net.named_modules()
        if type(each).__name__ == "TensorQuantizer" and each.is_enabled and each.amax is not None
    }


def main(folder: Path) -> None:
    """Write everything."""
    warnings.filterwarnings("ignore")
    import modelopt
    import modelopt.torch.quantization as mtq
    from modelopt.onnx.quantization import quantize

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    coarse = rng.normal(0, 1, (CLASSES, 3, 4, 4)).astype(np.float32)
    patterns = np.kron(coarse, np.ones((4, 4), np.float32))
    net = classifier(rng, patterns)
    calibration = noisy(rng, patterns, 64)[0]
    np.save(folder / "patterns.npy", coarse)
    export(net, folder / "fp32.onnx")

    by_tensor = deepcopy(mtq.INT8_DEFAULT_CFG)
    told = {}
    for name, config in (("by_channel", mtq.INT8_DEFAULT_CFG), ("by_tensor", by_tensor)):
        if name == "by_tensor":
            change_axis(by_tensor)
        quantised = mtq.quantize(deepcopy(net), config, lambda each: each(torch.from_numpy(calibration)))
        told[name] = amax(quantised)
        export(quantised, folder / f"torch_{name}.onnx")
    for method in ("max", "entropy"):
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "fp32.onnx"
            path.write_bytes((folder / "fp32.onnx").read_bytes())
            quantize(
                str(path),
                quantize_mode="int8",
                calibration_data={"x": calibration},
                calibration_method=method,
                calibration_eps=["cpu"],
                high_precision_dtype="fp32",
                output_path=str(folder / f"onnx_{method}.onnx"),
            )
        clean(folder / f"onnx_{method}.onnx")
    versions = {"modelopt": modelopt.__version__, "torch": torch.__version__, "onnx": onnx.__version__}
    (folder / "quantizers.json").write_text(json.dumps({"versions": versions, "amax": told}, indent=1) + "\n")


def change_axis(config: dict[str, object]) -> None:
    """Weights by tensor in place of by channel."""
    changed = 0
    entries = config["quant_cfg"]
    for entry in entries.values() if isinstance(entries, dict) else entries:  # type: ignore[attr-defined]
        settings = entry.get("cfg", entry) if isinstance(entry, dict) else None
        if isinstance(settings, dict) and settings.get("axis") == 0:
            settings["axis"] = None
            changed += 1
    if not changed:
        raise SystemExit("this ModelOpt describes its quantisers otherwise")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
