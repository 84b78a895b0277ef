"""A network quantised by ONNX Runtime, translated here and put back, answers as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import orinport
from builders import network, node, run_onnx
from orinport.model.save import to_proto
from orinport.precision.explicit import insert_qdq

CASES = 500
SIZE = 12


def classifier() -> onnx.ModelProto:
    """Ten prototypes and a network that tells them apart: correlation with each, over noisy pictures."""
    rng = np.random.default_rng(7)
    nodes = [
        node("Conv", ["x", "w1", "b1"], "c1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], "r1"),
        node("Conv", ["r1", "w2"], "c2", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Add", ["c2", "r1"], "a"),
        node("Relu", ["a"], "r2"),
        node("MaxPool", ["r2"], "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["p"], "f"),
        node("Gemm", ["f", "w3", "b3"], "y", transB=1),
    ]
    constants = {
        "w1": rng.normal(0, 0.3, (16, 3, 3, 3)).astype(np.float32),
        "b1": rng.normal(0, 0.1, 16).astype(np.float32),
        "w2": rng.normal(0, 0.1, (16, 16, 3, 3)).astype(np.float32),
        "w3": np.zeros((10, 16 * SIZE * SIZE // 4), np.float32),
        "b3": np.zeros(10, np.float32),
    }
    made = network(nodes, {"x": (1, 3, SIZE, SIZE)}, ["f", "y"], constants)
    features = np.concatenate([run_onnx(made, {"x": each[None]})[0] for each in prototypes()])
    centred = features - features.mean(axis=0)
    constants["w3"] = (centred / np.linalg.norm(centred, axis=1, keepdims=True)).astype(np.float32)
    constants["b3"] = -(constants["w3"] @ features.mean(axis=0)).astype(np.float32)
    return network(nodes, {"x": (1, 3, SIZE, SIZE)}, ["y"], constants)


def prototypes() -> np.ndarray:
    return np.random.default_rng(8).standard_normal((10, 3, SIZE, SIZE)).astype(np.float32)


def pictures(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((count, 3, SIZE, SIZE)).astype(np.float32)
    return prototypes()[rng.integers(0, 10, count)] + np.float32(0.7) * noise


class Reader(CalibrationDataReader):
    def __init__(self) -> None:
        self.samples = iter(pictures(50, seed=1))

    def get_next(self) -> dict[str, Any] | None:
        sample = next(self.samples, None)
        return None if sample is None else {"x": sample[None]}


def outputs(proto: onnx.ModelProto, data: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(["y"], {"x": each[None]})[0] for each in data])


def snr(reference: np.ndarray, other: np.ndarray) -> float:
    """Signal-to-noise ratio in dB."""
    return float(10 * np.log10((reference**2).mean() / ((reference - other) ** 2).mean()))


@pytest.mark.parametrize("per_channel", [True, False])
def test_onnx_runtime_static_quantisation(per_channel: bool, tmp_path: Path) -> None:
    proto = classifier()
    onnx.save(proto, tmp_path / "m.onnx")
    quantize_static(
        str(tmp_path / "m.onnx"),
        str(tmp_path / "q.onnx"),
        Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=per_channel,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        extra_options={"ActivationSymmetric": True, "WeightSymmetric": True},
    )
    quantised = onnx.ModelProto.FromString((tmp_path / "q.onnx").read_bytes())
    report = orinport.quantize(tmp_path / "q.onnx", ties="none")
    assert report.coverage.complete
    assert bool([f for f in report.findings if f.code == "Q004"]) is not per_channel
    back = to_proto(insert_qdq(report.model, report.scales)[0])
    data = pictures(CASES, seed=2)
    exact, theirs, ours = outputs(proto, data), outputs(quantised, data), outputs(back, data)
    assert (exact.argmax(axis=1) == theirs.argmax(axis=1)).mean() > 0.9
    assert (theirs.argmax(axis=1) == ours.argmax(axis=1)).mean() >= 0.99
    assert snr(exact, ours) >= snr(exact, theirs) - 1
