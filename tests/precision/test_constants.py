"""Constants that FP16 cannot hold are told, by `check` and `prepare`, with name, value and limit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import orinport
from orinport.results import CheckReport

FP16, INT8 = "fp16", "int8"
TARGET = "orin-agx-64gb/jp6.2"


def network(path: Path, nodes: list[onnx.NodeProto], **constants: np.ndarray) -> Path:
    """A network from x to y, both 1x4x8x8."""
    shape = [1, 4, 8, 8]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


def kernel(*changes: float) -> np.ndarray:
    """A kernel whose first elements are `changes`."""
    made = np.random.default_rng(0).standard_normal((4, 4, 1, 1)).astype(np.float32)
    made.reshape(-1)[: len(changes)] = changes
    return made


def convolution(path: Path, weights: np.ndarray, bias: float = 0.0) -> Path:
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv")
    return network(path, [node], w=weights, b=np.full(4, bias))


def told(report: CheckReport) -> list[str]:
    return [finding.message for finding in report.findings if finding.code == "Q014"]


@pytest.mark.parametrize("value", [65505.0, -65505.0, 1e5, 3e38])
def test_a_kernel_beyond_fp16(tmp_path: Path, value: float) -> None:
    path = convolution(tmp_path / "n.onnx", kernel(value))
    report = orinport.check(path, target=TARGET, precision=FP16)
    [finding] = [each for each in report.findings if each.code == "Q014"]
    assert (finding.layer, finding.nodes, finding.value, finding.limit) == ("conv", ("conv",), np.float32(value), 65504)
    assert f"'w' holds {value:.6g}; FP16 ends at 65504" in finding.message
    assert finding.verdict is None
    [row] = [row for row in report.layers if row.layer.name == "conv"]
    assert "Q014" in row.codes
    assert not told(orinport.check(path, target=TARGET, precision=INT8))
    assert not told(orinport.check(path, target=TARGET, precision=FP16, ignore=["Q"]))


@pytest.mark.parametrize("value", [65504.0, -65504.0, 1.0])
def test_a_kernel_that_fp16_holds(tmp_path: Path, value: float) -> None:
    assert np.isfinite(np.float16(value))
    assert not told(orinport.check(convolution(tmp_path / "n.onnx", kernel(value)), target=TARGET, precision=FP16))


def test_kernels_that_become_zero(tmp_path: Path) -> None:
    """2^-25 lies half way to FP16's smallest number and goes to 0, the next larger FP32 does not."""
    edge = np.float32(2.0**-25)
    above = np.nextafter(edge, np.float32(1))
    assert (np.float16(edge), np.float16(above)) == (0, np.float16(2.0**-24))
    ones = np.ones((4, 4, 1, 1), np.float32)
    [message] = told(orinport.check(convolution(tmp_path / "a.onnx", ones * edge), target=TARGET, precision=FP16))
    assert "No element of 'w' is larger than 2.98e-08" in message
    for weights in (ones * above, ones * 0):
        assert not told(orinport.check(convolution(tmp_path / "b.onnx", weights), target=TARGET, precision=FP16))


def test_a_tiny_bias_does_no_harm_and_a_large_one_does(tmp_path: Path) -> None:
    assert not told(orinport.check(convolution(tmp_path / "a.onnx", kernel(), 1e-9), target=TARGET, precision=FP16))
    [message] = told(orinport.check(convolution(tmp_path / "b.onnx", kernel(), 1e6), target=TARGET, precision=FP16))
    assert "'b' holds 1e+06" in message


@pytest.mark.parametrize("precision", [FP16, INT8])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_kernels_that_are_not_finite(tmp_path: Path, precision: str, value: float) -> None:
    path = convolution(tmp_path / "n.onnx", kernel(1.0, value))
    assert told(orinport.check(path, target=TARGET, precision=precision)) == ["1 element of 'w' is NaN or infinite."]


@pytest.mark.parametrize(("value", "number"), [(-np.inf, 0), (np.nan, 1), (-3e38, 1), (-1e4, 0)])
def test_masks(tmp_path: Path, value: float, number: int) -> None:
    """FP16 has infinities, and nothing between 65504 and them."""
    path = network(
        tmp_path / "n.onnx",
        [helper.make_node("Add", ["x", "mask"], ["y"], name="masked")],
        mask=np.full((1, 4, 1, 1), value),
    )
    report = orinport.check(path, target=TARGET, precision=FP16)
    assert report.all_dla
    assert len(told(report)) == number


def test_bounds_beyond_fp16_bound_nothing(tmp_path: Path) -> None:
    path = network(
        tmp_path / "n.onnx",
        [helper.make_node("Max", ["x", "low"], ["m"]), helper.make_node("Min", ["m", "high"], ["y"])],
        low=np.full((1, 1, 1, 1), -3e38),
        high=np.full((1, 1, 1, 1), 3e38),
    )
    assert not told(orinport.check(path, target=TARGET, precision=FP16))


def test_batch_normalisations_count_by_what_is_made_of_them(tmp_path: Path) -> None:
    """A variance of 1e9 is harmless, one of 1e-12 is not with an epsilon as small."""

    def normalised(gamma: float, variance: float, mean: float) -> list[str]:
        node = helper.make_node("BatchNormalization", ["x", "g", "b", "m", "v"], ["y"], name="bn", epsilon=1e-12)
        held = {"g": np.full(4, gamma), "b": np.zeros(4), "m": np.full(4, mean), "v": np.full(4, variance)}
        path = network(tmp_path / "n.onnx", [node], **held)
        return told(orinport.check(path, target=TARGET, precision=FP16))

    assert normalised(1, 1e9, 1e6) == []
    [factor] = normalised(1, 1e-12, 0)
    assert "'factor of bn' holds 707107" in factor
    [term] = normalised(1, 1, 1e6)
    assert "'term of bn' holds -1e+06" in term
    factor, term = normalised(1, -1, 0)
    assert factor == "4 elements of 'factor of bn' are NaN or infinite."
    assert term == "4 elements of 'term of bn' are NaN or infinite."


@pytest.mark.parametrize(("alpha", "number"), [(65504.0, 0), (1e-9, 0), (1e6, 1), (-1e6, 1)])
def test_slopes(tmp_path: Path, alpha: float, number: int) -> None:
    path = network(tmp_path / "n.onnx", [helper.make_node("LeakyRelu", ["x"], ["y"], name="leaky", alpha=alpha)])
    messages = told(orinport.check(path, target=TARGET, precision=FP16))
    assert len(messages) == number
    assert all(f"'slope of leaky' holds {alpha:.6g}" in each for each in messages)


@pytest.mark.parametrize(("value", "number"), [(65504.0, 0), (1e-9, 0), (1e5, 1)])
def test_concatenated_constants(tmp_path: Path, value: float, number: int) -> None:
    nodes = [
        helper.make_node("Concat", ["x", "c"], ["joint"], name="joint", axis=1),
        helper.make_node("Conv", ["joint", "w"], ["y"], name="conv"),
    ]
    path = network(tmp_path / "n.onnx", nodes, c=np.full((1, 4, 8, 8), value), w=np.ones((4, 8, 1, 1)))
    report = orinport.check(path, target=TARGET, precision=FP16)
    assert report.all_dla
    assert len(told(report)) == number


def test_quantize_tells_of_layers_without_a_scale(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["t"], name="first"),
        helper.make_node("Conv", ["t", "w"], ["y"], name="second"),
    ]
    path = network(tmp_path / "n.onnx", nodes, v=kernel(2e5), w=kernel(1e5))
    scales = tmp_path / "s.json"
    scales.write_text('{"tensors": {"x": {"scale": 0.1}, "t": {"scale": 0.1}}}')
    report = orinport.quantize(path, target=TARGET, scales=scales)
    assert [(each.layer, each.value) for each in report.findings if each.code == "Q014"] == [("second", 1e5)]
    prepared = orinport.prepare(path, output=tmp_path / "out", target=TARGET, precision=INT8, scales=scales)
    assert len(told(prepared.after)) == 1


def test_layers_off_the_dla_are_left_alone(tmp_path: Path) -> None:
    path = network(
        tmp_path / "n.onnx",
        [helper.make_node("Erf", ["x"], ["e"]), helper.make_node("MatMul", ["e", "w"], ["y"])],
        w=np.full((8, 8), 1e6),
    )
    report = orinport.check(path, target=TARGET, precision=FP16)
    assert not report.all_dla
    assert not told(report)


def test_prepare_in_int8_with_layers_in_fp16(tmp_path: Path) -> None:
    path = convolution(tmp_path / "n.onnx", kernel(1e5))
    np.save(tmp_path / "data.npy", np.random.default_rng(0).standard_normal((4, 4, 8, 8)).astype(np.float32))
    data = tmp_path / "data.npy"
    quiet = orinport.prepare(path, output=tmp_path / "a", target=TARGET, precision=INT8, data=data)
    assert not told(quiet.after)
    loud = orinport.prepare(path, output=tmp_path / "b", target=TARGET, precision=INT8, data=data, fp16=["conv"])
    assert len(told(loud.after)) == 1
