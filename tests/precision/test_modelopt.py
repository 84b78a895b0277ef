"""What NVIDIA's ModelOpt exports becomes a clean network and its scales, and answers as before.

The exports in data/modelopt were made by modelopt_export.py. The slow test makes them anew where ModelOpt is to be
had: it may want other versions of what orinport is tested with, so ORINPORT_TEST_MODELOPT names the Python of an
environment that has it. pytorch-quantization cannot be had: what PyPI has under that name is a placeholder, whose
build stops with "Bad params", and NVIDIA has moved its quantisers to ModelOpt.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import orinport
from orinport.model.load import load
from orinport.model.model import display_name
from orinport.precision.emulate import Arithmetic, emulate
from orinport.precision.emulate_measure import Runner, outputs_of, restrict
from orinport.precision.qdq import strip_qdq

FOLDER = Path(__file__).parent / "data" / "modelopt"
EXPORTS = ("torch_by_channel", "torch_by_tensor", "onnx_max", "onnx_entropy")
CASES = 500


def pictures(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    patterns = np.kron(np.load(folder / "patterns.npy"), np.ones((4, 4), np.float32))
    labels = rng.integers(0, len(patterns), CASES)
    return (patterns[labels] + rng.normal(0, 0.5, (CASES, *patterns.shape[1:]))).astype(np.float32), labels


def quantizers(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "quantizers.json").read_text())
    return found


def consumer(proto: onnx.ModelProto, name: str) -> str:
    """What reads a tensor that is quantised, behind the pair: the module's name for exports of PyTorch."""
    quantise = next(n for n in proto.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == name)
    return quantise.name.split("/")[1] if quantise.name.startswith("/") else quantise.name


def decibels(wanted: np.ndarray, had: np.ndarray) -> float:
    return float(10 * np.log10((wanted**2).sum() / ((wanted - had) ** 2).sum()))


def check_scales(folder: Path, name: str) -> None:
    """Scales of PyTorch's exports are amax / 127 of ModelOpt's own quantisers, each of them once."""
    proto = onnx.ModelProto.FromString((folder / f"torch_{name}.onnx").read_bytes())
    _, scales = strip_qdq(load(proto))
    found = {consumer(proto, tensor): scale.value for tensor, scale in scales.tensors.items()}
    amax = quantizers(folder)["amax"][name]
    wanted = {key.removesuffix(".input_quantizer"): v for key, v in amax.items() if key.endswith("input_quantizer")}
    assert set(found) == set(wanted)
    assert len(found) >= 4
    for module, (largest,) in wanted.items():
        assert found[module] == pytest.approx(largest / 127, rel=1e-6), module


LOSS = {"torch_by_tensor": 2.0}
"""dB more noise than 1: TensorRT's rule rounds weights once more that were quantised by tensor (Q004)."""


def check_answers(folder: Path, name: str) -> None:
    """500 pictures: the same class as ModelOpt's network, and no more noise against FP32.

    Averages are computed in FP32: in INT8 the DLA rounds them in steps of their input, the Q/DQ network in finer ones.
    """
    exact, theirs = folder / "fp32.onnx", folder / f"{name}.onnx"
    clean, scales = strip_qdq(load(theirs))
    assert not {node.op_type for node in clean.graph} & {"QuantizeLinear", "DequantizeLinear"}
    kinds = {
        display_name(node): Arithmetic.FP32 if node.op_type == "AveragePool" else Arithmetic.INT8
        for node in clean.graph
    }
    found = emulate(clean, kinds, scales)
    assert sum(each.scale is not None for each in found.tensors.values()) >= 3
    runner = Runner(restrict(found, ["y"]), threads=1)
    sessions = [onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]) for path in (exact, theirs)]
    data, labels = pictures(folder)
    outputs: list[list[np.ndarray]] = [[], [], []]
    for sample in data:
        feeds = {"x": sample[None]}
        for session, kept in zip(sessions, outputs, strict=False):
            kept.append(session.run(None, feeds)[0][0])
        outputs[2].append(next(outputs_of(found, {**feeds, **runner.run(feeds)}, ["y"]))[0])
    reference, given, ours = (np.stack(each) for each in outputs)
    assert (reference.argmax(axis=1) == labels).mean() > 0.9
    assert (given.argmax(axis=1) == ours.argmax(axis=1)).mean() >= 0.99
    assert decibels(reference, ours) > decibels(reference, given) - LOSS.get(name, 1.0)


@pytest.mark.parametrize("name", ["by_channel", "by_tensor"])
def test_scales_are_those_of_the_quantisers(name: str) -> None:
    check_scales(FOLDER, name)


@pytest.mark.parametrize("name", EXPORTS)
def test_the_network_answers_as_before(name: str) -> None:
    check_answers(FOLDER, name)


def test_weights_by_tensor_and_deconvolutions_by_input_channel_are_told() -> None:
    """ModelOpt's export from PyTorch quantises ConvTranspose along axis 0, which holds its input channels."""
    told = {
        name: [f for f in strip_qdq(load(FOLDER / f"{name}.onnx"))[1].findings if f.code == "Q004"] for name in EXPORTS
    }
    assert "'/up/" in told["torch_by_channel"][0].message
    assert told["torch_by_channel"][0].message.count("weight_quantizer") == 1
    assert told["torch_by_tensor"][0].value > told["torch_by_channel"][0].value
    assert not told["onnx_max"]


@pytest.mark.parametrize("name", EXPORTS)
def test_quantize_takes_it_as_it_is(name: str) -> None:
    report = orinport.quantize(FOLDER / f"{name}.onnx", target="orin-agx-64gb/jp6.2")
    assert report.scales.method == "Q/DQ layers"
    assert {f.code for f in report.findings} <= {"Q001", "Q004", "Q005", "Q010"}
    assert {f.code for f in report.findings} & {"Q002", "Q003"} == set()


@pytest.mark.slow
def test_exports_made_now(tmp_path: Path) -> None:
    python = os.environ.get("ORINPORT_TEST_MODELOPT", "")
    if not python and importlib.util.find_spec("modelopt") is None:
        pytest.skip("nvidia-modelopt is not installed, and ORINPORT_TEST_MODELOPT names no Python that has it")
    command = [python or sys.executable, str(Path(__file__).with_name("modelopt_export.py")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for name in ("by_channel", "by_tensor"):
        check_scales(tmp_path, name)
    for name in EXPORTS:
        check_answers(tmp_path, name)
