"""From FP16 tensors to FP32 ones, and what that keeps."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

from builders import network, node, random_feeds, run_onnx, small_cnn
from orinport.model.load import load
from orinport.model.save import to_proto
from orinport.precision.half import to_half
from orinport.precision.single import to_single


def test_there_and_back_keeps_every_constant_as_fp16_has_it() -> None:
    model = load(small_cnn())
    half, _ = to_half(model)
    back = to_single(half)
    assert back.kept == frozenset()
    assert {value.dtype.name for each in back.model.graph for value in each.outputs} == {"FLOAT"}
    for name, value in model.graph.initializers.items():
        was = value.const_value.numpy()
        now = back.model.graph.initializers[name].const_value.numpy()
        assert now.dtype == was.dtype
        np.testing.assert_array_equal(now, was.astype(np.float16).astype(was.dtype) if was.dtype.kind == "f" else was)
    assert {value.dtype.name for each in half.graph for value in each.outputs} == {"FLOAT16"}


def test_the_network_is_valid_and_computes_without_rounding() -> None:
    half, _ = to_half(load(small_cnn()))
    proto = to_proto(to_single(half).model)
    onnx.checker.check_model(proto, full_check=True)
    feeds = random_feeds(small_cnn(), seed=1)
    np.testing.assert_allclose(run_onnx(proto, feeds)[0], run_onnx(small_cnn(), feeds)[0], rtol=0, atol=0.02)


def test_networks_without_fp16_are_left_as_they_are() -> None:
    model = load(small_cnn())
    assert to_single(model).model is model
    double = load(network([node("Relu", ["x"], "y")], {"x": ((1, 4), np.float64)}, ["y"]))
    assert to_single(double).model is double
    brain = load(network([node("Relu", ["x"], "y")], {"x": ((1, 4), ml_dtypes.bfloat16)}, ["y"]))
    assert to_single(brain).model is brain


def test_what_is_fp32_among_fp16_is_told() -> None:
    nodes = [
        node("Relu", ["x"], "a"),
        node("Cast", ["a"], "b", to=TensorProto.FLOAT16),
        node("Relu", ["b"], "c"),
        node("Cast", ["c"], "y", to=TensorProto.FLOAT),
    ]
    found = to_single(load(network(nodes, {"x": (1, 4), "h": ((1, 4), np.float16)}, ["y"])))
    assert found.kept == {"x", "Relu_a", "Cast_y"}
    x = np.array([[1.0001, -2, 70000, 3]], np.float32)
    (y,) = run_onnx(to_proto(found.model), {"x": x, "h": x})
    np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_types_in_attributes_follow() -> None:
    """`output_dtype` of a DequantizeLinear (opset 23), and the constant inside a node."""
    restore = helper.make_node("DequantizeLinear", ["q", "s"], ["d"], name="restore", output_dtype=TensorProto.FLOAT16)
    nodes = [
        restore,
        node("ConstantOfShape", ["n"], "f", value=helper.make_tensor("v", TensorProto.FLOAT16, [1], [0.5])),
        node("Add", ["d", "f"], "y"),
    ]
    constants = {"s": np.float32(0.25)}
    inputs = {"q": ((1, 4), np.int8), "n": ((2,), np.int64)}
    found = to_single(load(network(nodes, inputs, ["y"], constants, opset=23))).model
    feeds = {"q": np.array([[1, 2, 3, 4]], np.int8), "n": np.array([1, 4], np.int64)}
    (y,) = run_onnx(to_proto(found), feeds)
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, [[0.75, 1.0, 1.25, 1.5]])


def test_networks_with_subgraphs_are_left_to_the_emulation_that_refuses_them() -> None:
    branch = helper.make_graph([helper.make_node("Relu", ["x"], ["b"])], "g", [], [onnx.ValueInfoProto(name="b")])
    conditional = helper.make_node("If", ["c"], ["y"], name="if", then_branch=branch, else_branch=branch)
    model = load(network([conditional], {"x": ((1, 4), np.float16), "c": ((), np.bool_)}, ["y"]))
    assert to_single(model).model is model
