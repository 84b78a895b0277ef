"""Networks in FP16 for strongly typed stacks."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import orinport
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.precision.half import to_half


def scaled(values: list[float]) -> onnx.ModelProto:
    """y = relu(x * values), one value a channel."""
    constant = helper.make_tensor("c", TensorProto.FLOAT, [1, len(values), 1, 1], values)
    nodes = [helper.make_node("Mul", ["x", "c"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, len(values), 4, 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [constant])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_all_tensors_become_half_and_the_original_stays() -> None:
    model = load(scaled([1.0, 0.5]))
    half, notes = to_half(model)
    assert notes == ()
    assert {tensor.dtype.value for tensor in (*half.inputs, *half.outputs)} == {"fp16"}
    assert {tensor.dtype.value for tensor in (*model.inputs, *model.outputs)} == {"fp32"}


def test_constants_that_become_zero_are_noted() -> None:
    _, notes = to_half(load(scaled([1.0, 1e-12])))
    (note,) = notes
    assert "1e-12" in note


def test_constants_past_half_precision_are_refused_without_a_warning() -> None:
    model = load(scaled([1.0, 1e30]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OrinportError, match="65504"):
            to_half(model)


def test_operators_without_half_precision_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonMaxSuppression", ["boxes", "scores"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, 10, 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 2, 10]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [None, 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(OrinportError, match="cannot be written in FP16"):
        orinport.prepare(model, target="orin-agx-64gb/jp7.2.2", output=tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_the_written_network_runs_in_half_precision(tmp_path: Path) -> None:
    import onnxruntime

    orinport.prepare(scaled([1.0, -0.5]), target="orin-agx-64gb/jp7.2.2", output=tmp_path / "b")
    session = onnxruntime.InferenceSession(str(tmp_path / "b/model.onnx"), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype(np.float16)
    (y,) = session.run(None, {"x": x})
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, np.maximum(x * np.array([1.0, -0.5], np.float16).reshape(1, 2, 1, 1), 0), atol=1e-3)
