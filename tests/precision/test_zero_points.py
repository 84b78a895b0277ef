"""Zero points: taken where a symmetric quantiser gives the same values, refused with the numbers elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime import quantization

import orinport
from builders import network, node, run_onnx
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.model.save import to_proto
from orinport.precision.explicit import insert_qdq
from orinport.precision.qdq import strip_qdq
from orinport.precision.zero_points import is_symmetric, on_target, takes_zero_points
from orinport.targets.catalogue import catalogue_rows
from orinport.targets.load import list_targets, load_target
from orinport.targets.version import Version
from precision.quantised import QuantisedNetwork

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

X = {"x": (1, 4, 8, 8)}


def before_quantiser(op_type: str, scale: float, zero: np.generic, **bounds: float) -> onnx.ModelProto:
    """An operator, a pair with a zero point, and a convolution."""
    q = QuantisedNetwork()
    inputs = ["x"]
    for name, value in bounds.items():
        q.constants[name] = np.float32(value)
        inputs.append(name)
    q.conv(q.pair(q.op(op_type, inputs, "r"), scale, zero=zero), "y")
    return q.model(X, ["y"])


def same_as_before(proto: onnx.ModelProto) -> None:
    """The translated network with its symmetric scales as Q/DQ gives what the given one gives, to the bit."""
    clean, scales = strip_qdq(load(proto))
    back = to_proto(insert_qdq(clean, scales)[0])
    rng = np.random.default_rng(0)
    for spread in (0.1, 1.0, 10.0):
        feeds = {"x": (rng.standard_normal(X["x"]) * spread).astype(np.float32)}
        assert np.array_equal(run_onnx(proto, feeds)[0], run_onnx(back, feeds)[0])


@pytest.mark.parametrize(
    ("op_type", "scale", "zero", "bounds"),
    [
        ("Identity", 0.02, np.uint8(128), {}),
        ("Relu", 0.02, np.uint8(128), {}),
        ("Sigmoid", 1 / 127, np.uint8(0), {}),
        ("Sigmoid", 1 / 127, np.int8(-128), {}),
        ("Clip", 6 / 127, np.uint8(0), {"lo": 0.0, "hi": 6.0}),
        ("Clip", 6 / 127, np.uint8(100), {"lo": -4.0, "hi": 6.0}),
        ("Tanh", 1 / 100, np.int8(20), {}),
    ],
)
def test_the_same_values_are_translated(op_type: str, scale: float, zero: np.generic, bounds: dict[str, float]) -> None:
    proto = before_quantiser(op_type, scale, zero, **bounds)
    _, scales = strip_qdq(load(proto))
    assert scales["r"].value == float(np.float32(scale))
    assert not scales.findings
    same_as_before(proto)


@pytest.mark.parametrize(
    ("op_type", "scale", "zero", "bounds", "held"),
    [
        ("Relu", 0.02, np.uint8(0), {}, "0 to 5.1"),
        ("Relu", 0.02, np.int8(-128), {}, "0 to 5.1"),
        ("Identity", 0.02, np.uint8(0), {}, "0 to 5.1"),
        ("Identity", 0.02, np.int8(3), {}, "-2.62 to 2.48"),
        ("Sigmoid", 1 / 255, np.uint8(0), {}, "0 to 1"),
        ("Clip", 6 / 255, np.uint8(0), {"lo": 0.0, "hi": 6.0}, "0 to 6"),
        ("Tanh", 1 / 120, np.int8(20), {}, "-1.23333 to 0.891667"),
    ],
)
def test_others_are_refused_with_the_numbers(
    op_type: str, scale: float, zero: np.generic, bounds: dict[str, float], held: str
) -> None:
    model = load(before_quantiser(op_type, scale, zero, **bounds))
    with pytest.raises(OrinportError) as caught:
        strip_qdq(model)
    message = str(caught.value)
    assert f"zero point {int(zero)}): it holds {held}, and symmetric INT8 in the same steps of" in message
    assert "ActivationSymmetric" in (caught.value.hint or "")


@settings(max_examples=300)
@given(
    st.floats(2**-10, 8, width=32),
    st.sampled_from([(0, 255), (-128, 127)]),
    st.integers(0, 255),
    st.tuples(st.floats(-50, 50, width=32), st.floats(-50, 50, width=32)),
)
def test_the_condition_is_that_all_values_agree(
    scale: float, integers: tuple[int, int], offset: int, ends: tuple[float, float]
) -> None:
    """Against every value of a fine grid within the bounds, and their ends."""
    low, high = integers
    zero = low + offset
    bounds = min(ends), max(ends)
    values = np.clip(np.linspace(*bounds, 4001, dtype=np.float32), *bounds).astype(np.float32)
    steps = np.rint(values / np.float32(scale))
    equal = np.array_equal(np.clip(steps, low - zero, high - zero), np.clip(steps, -128, 127))
    claimed = is_symmetric(scale, low - zero, high - zero, bounds)
    assert claimed <= equal
    if (bounds[1] - bounds[0]) / 4000 < scale:
        assert claimed == equal


def test_a_pair_with_two_zero_points_shifts_values() -> None:
    q = QuantisedNetwork()
    q.constants |= {"s": np.float32(0.02), "a": np.uint8(128), "b": np.uint8(127)}
    q.op("QuantizeLinear", ["x", "s", "a"], "i")
    q.conv(q.op("DequantizeLinear", ["i", "s", "b"], "f"), "y")
    with pytest.raises(OrinportError, match=r"is asymmetric|zero point 127, and .* before it 128"):
        strip_qdq(load(q.model(X, ["y"])))


@pytest.mark.parametrize(("op_type", "taken"), [("Reshape", True), ("MaxPool", True), ("Pad", False)])
def test_operators_between_the_two(op_type: str, taken: bool) -> None:
    """Integers with a zero point may be moved, but a Pad's zero is another value then."""
    more: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [1, 1]} if op_type == "MaxPool" else {}
    parameters = {
        "Reshape": {"p": np.array([1, 4, 8, 8], np.int64)},
        "MaxPool": {},
        "Pad": {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)},
    }[op_type]
    constants = {"s": np.float32(0.02), "z": np.uint8(128), **parameters}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "i"),
        node(op_type, ["i", *parameters], "m", **more),
        node("DequantizeLinear", ["m", "s", "z"], "f"),
        node("Relu", ["f"], "y"),
    ]
    model = load(network(nodes, X, ["y"], constants, opset=17))
    if taken:
        assert strip_qdq(model)[1]["x"].value == float(np.float32(0.02))
    else:
        with pytest.raises(OrinportError, match="zero point 128, and before it Pad computes on integers"):
            strip_qdq(model)


def test_unsigned_edges_are_refused() -> None:
    nodes = [node("DequantizeLinear", ["x", "s", "z"], "f"), node("Relu", ["f"], "y")]
    proto = network(nodes, {"x": ((1, 4), np.uint8)}, ["y"], {"s": np.float32(0.02), "z": np.uint8(128)})
    with pytest.raises(OrinportError, match="takes 'x' in UINT8"):
        strip_qdq(load(proto))
    nodes = [node("Relu", ["x"], "r"), node("QuantizeLinear", ["r", "s", "z"], "y")]
    proto = network(nodes, {"x": (1, 4)}, {"y": ((1, 4), np.uint8)}, {"s": np.float32(0.02), "z": np.uint8(128)})
    with pytest.raises(OrinportError, match="gives 'y' in UINT8"):
        strip_qdq(load(proto))


def test_no_known_target_takes_zero_points_for_certain() -> None:
    """Row I05 (NvOnnxParser.h, TensorRT changelog 10.11): TensorRT 10.11, DLA software 3.16, Orin.

    Where a stack comes that does, the refusal has to go: this test then fails.
    """
    row = catalogue_rows()["I05"]
    assert (row.since, row.values["dla_software"]) == (Version.parse("10.11"), "3.16")
    assert "NvInfer.h" in row.source
    found = {target.name: takes_zero_points(target) for target in list_targets()}
    assert set(found.values()) == {False, None}
    assert {name.split("/")[1] for name, taken in found.items() if taken is None} == {"jp7.2", "jp7.2.2"}


def test_the_refusal_names_what_the_target_lacks() -> None:
    proto = before_quantiser("Relu", 0.02, np.uint8(0))
    for target, words in (
        (
            "orin-agx-64gb/jp6.0",
            "need TensorRT 10.11 and DLA software 3.16, and this is TensorRT 8.6.2 with",
        ),
        ("orin-agx-64gb/jp7.2", "this is TensorRT 10.16.2, and which DLA software it brings is not documented"),
        ("orin-agx-64gb/jp7.2.2", "this is TensorRT 11.4.1, and which DLA software it brings is not documented"),
    ):
        with pytest.raises(OrinportError, match=words):
            orinport.quantize(proto, target=target)
    target = load_target("orin-agx-64gb/jp7.2")
    newer = replace(target, stack=replace(target.stack, dla=Version.parse("3.16.0")))
    assert takes_zero_points(newer) is True
    assert "takes zero points in a network with Q/DQ layers only" in on_target(newer)
    assert takes_zero_points(replace(target, stack=replace(target.stack, dla=Version.parse("3.15")))) is False


@pytest.mark.parametrize("symmetric", [True, False])
def test_unsigned_networks_of_onnx_runtime(symmetric: bool, tmp_path: Path) -> None:
    """QuantType.QUInt8 with ActivationSymmetric has zero point 128 (127 in older releases); its default has others."""
    proto = network(
        [node("Conv", ["x", "w"], "c", pads=[1, 1, 1, 1]), node("Relu", ["c"], "y")],
        X,
        ["y"],
        {"w": np.random.default_rng(0).normal(0, 0.3, (4, 4, 3, 3)).astype(np.float32)},
    )
    onnx.save(proto, tmp_path / "m.onnx")

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        left = iter(np.random.default_rng(1).standard_normal((8, *X["x"])).astype(np.float32))

        def get_next(self) -> dict[str, Any] | None:
            sample = next(self.left, None)
            return None if sample is None else {"x": sample}

    quantization.quantize_static(
        str(tmp_path / "m.onnx"),
        str(tmp_path / "q.onnx"),
        Reader(),
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        extra_options={"ActivationSymmetric": symmetric, "WeightSymmetric": True},
    )
    given_model = load(tmp_path / "q.onnx")
    zeros = {
        int(given_model.constant(each.inputs[2]).reshape(()))  # type: ignore[arg-type, union-attr]
        for each in given_model.graph
        if each.op_type == "QuantizeLinear"
    }
    if zeros == {128}:
        assert {"x"} <= set(strip_qdq(given_model)[1].tensors)
    else:
        with pytest.raises(OrinportError, match="asymmetric"):
            strip_qdq(given_model)
    assert (zeros <= {127, 128}) is symmetric
