"""A network that ONNX Runtime quantised, translated here and emulated, against its own Q/DQ model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime import quantization

from builders import network, node
from orinport.model.load import load
from orinport.precision.emulate import Arithmetic, emulate
from orinport.precision.emulate_measure import Runner, outputs_of, restrict
from orinport.precision.qdq import strip_qdq

INPUTS = 500
SIZE = (3, 16, 16)


def prototypes(rng: np.random.Generator) -> np.ndarray:
    """One smooth pattern a class."""
    coarse = rng.normal(0, 1, (10, 3, 4, 4))
    return np.asarray(np.kron(coarse, np.ones((4, 4))), np.float32)


def classifier(rng: np.random.Generator, patterns: np.ndarray) -> onnx.ModelProto:
    """Random features with a residual block; the last layer is fitted by least squares, so that classes are learnt."""

    def weights(*shape: int) -> np.ndarray:
        return np.asarray(rng.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape), np.float32)

    nodes = [
        node("Conv", ["x", "w1", "b1"], "c1", pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], "r1"),
        node("MaxPool", ["r1"], "p1", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "w2", "b2"], "c2", pads=[1, 1, 1, 1]),
        node("Relu", ["c2"], "r2"),
        node("Conv", ["r2", "w3", "b3"], "c3", pads=[1, 1, 1, 1]),
        node("Add", ["c3", "p1"], "a1"),
        node("Relu", ["a1"], "r3"),
        node("Conv", ["r3", "w4", "b4"], "y4", kernel_shape=[8, 8]),
        node("Flatten", ["y4"], "y"),
    ]
    constants = {f"w{i}": weights(32, 3 if i == 1 else 32, 3, 3) for i in (1, 2, 3)}
    constants |= {f"b{i}": np.asarray(rng.normal(0, 0.1, 32), np.float32) for i in (1, 2, 3)}
    features = network(nodes[:-2], {"x": (1, *SIZE)}, ["r3"], constants)
    session = onnxruntime.InferenceSession(features.SerializeToString(), providers=["CPUExecutionProvider"])
    samples, labels = noisy(rng, patterns, 1500)
    seen = np.stack([session.run(None, {"x": each[None]})[0].reshape(-1) for each in samples]).astype(np.float64)
    middle = seen.mean(axis=0)
    wanted = np.eye(10)[labels] - 0.1
    kernel = (seen - middle) @ (seen - middle).T + 300 * np.eye(len(seen))
    fitted = (seen - middle).T @ np.linalg.solve(kernel, wanted)
    constants["w4"] = np.ascontiguousarray(fitted.T.reshape(10, 32, 8, 8), np.float32)
    constants["b4"] = np.asarray(-middle @ fitted, np.float32)
    return network(nodes, {"x": (1, *SIZE)}, ["y"], constants)


def noisy(rng: np.random.Generator, patterns: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    labels = rng.integers(0, 10, count)
    return (patterns[labels] + rng.normal(0, 1, (count, *SIZE))).astype(np.float32), labels


class Reader(quantization.CalibrationDataReader):
    """Samples one at a time."""

    def __init__(self, samples: np.ndarray) -> None:
        self.left = iter(samples)

    def get_next(self) -> dict[str, Any] | None:
        sample = next(self.left, None)
        return None if sample is None else {"x": sample[None]}


def decibels(wanted: np.ndarray, had: np.ndarray) -> float:
    return float(10 * np.log10((wanted**2).sum() / ((wanted - had) ** 2).sum()))


@pytest.mark.parametrize("per_channel", [True, False])
def test_translated_and_emulated_is_as_good_as_the_qdq_model(tmp_path: Path, per_channel: bool) -> None:
    rng = np.random.default_rng(1)
    patterns = prototypes(rng)
    proto = classifier(rng, patterns)
    plain, quantised = tmp_path / "plain.onnx", tmp_path / "quantised.onnx"
    onnx.save(proto, plain)
    quantization.quantize_static(
        plain,
        quantised,
        Reader(noisy(rng, patterns, 64)[0]),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=per_channel,
        activation_type=quantization.QuantType.QInt8,
        weight_type=quantization.QuantType.QInt8,
        extra_options={"ActivationSymmetric": True, "WeightSymmetric": True},
    )
    translated, scales = strip_qdq(load(quantised))
    kinds = {each.name or f"{each.op_type}:{each.outputs[0].name}": Arithmetic.INT8 for each in translated.graph}
    found = emulate(translated, kinds, scales)
    assert sum(each.scale is not None for each in found.tensors.values()) >= 7
    runner = Runner(restrict(found, ["y"]), threads=1)
    sessions = [onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]) for path in (plain, quantised)]
    samples, labels = noisy(rng, patterns, INPUTS)
    outputs: list[list[np.ndarray]] = [[], [], []]
    for sample in samples:
        feeds = {"x": sample[None]}
        for session, kept in zip(sessions, outputs, strict=False):
            kept.append(session.run(None, feeds)[0][0])
        outputs[2].append(next(outputs_of(found, {**feeds, **runner.run(feeds)}, ["y"]))[0])
    reference, theirs, ours = (np.stack(each) for each in outputs)
    assert (reference.argmax(axis=1) == labels).mean() > 0.9
    assert (theirs.argmax(axis=1) == ours.argmax(axis=1)).mean() >= 0.99
    assert decibels(reference, ours) > decibels(reference, theirs) - 1
