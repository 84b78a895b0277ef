"""Networks with Q/DQ layers become clean networks and scales: every way in which translators go wrong, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

import orinport
from builders import network, node, random_feeds, run_onnx
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.model.save import to_proto
from orinport.precision.explicit import insert_qdq
from orinport.precision.qdq import has_qdq, strip_qdq
from orinport.precision.scales import Origin
from precision.quantised import QuantisedNetwork
from values import target

if TYPE_CHECKING:
    from orinport.model.model import Model
    from orinport.precision.scales import Scales
    from orinport.quantization import QuantizeReport
    from orinport.rules.finding import Finding

X = {"x": (1, 4, 8, 8)}
S = float(np.float32(0.02))


def strip(proto: onnx.ModelProto) -> tuple[Model, Scales]:
    return strip_qdq(load(proto))


def translate(proto: onnx.ModelProto, tensorrt: str = "8.6.2", stack: str = "jp6.0") -> QuantizeReport:
    return orinport.quantize(proto, target=target(tensorrt, stack), ties="none")


def codes(report: QuantizeReport | Scales) -> list[str]:
    return sorted(finding.code for finding in report.findings)


def single_scale(value: float) -> float:
    return float(np.float32(value))


def chain(*, integers: bool = False, axis: int | None = 0, zero: bool = True) -> onnx.ModelProto:
    q = QuantisedNetwork()
    a = q.conv(q.pair("x", 0.02), "a", integers=integers, axis=axis, zero=zero)
    r = q.op("Relu", [a], "r")
    b = q.conv(q.pair(r, 0.05), "b", integers=integers, axis=axis, zero=zero)
    q.pair(b, 0.1, output="y")
    return q.model(X, ["y"])


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("axis", [0, None])
@pytest.mark.parametrize("zero", [False, True])
def test_pairs_go_and_weights_keep_their_values(integers: bool, axis: int | None, zero: bool) -> None:
    """Per channel and per tensor, Q/DQ and DQ only (Q4, Q10)."""
    proto = chain(integers=integers, axis=axis, zero=zero if integers else True)
    model, scales = strip(proto)
    assert [each.op_type for each in model.graph] == ["Conv", "Relu", "Conv"]
    assert {n: s.value for n, s in scales.tensors.items()} == {
        n: single_scale(v) for n, v in [("x", 0.02), ("r", 0.05), ("y", 0.1)]
    }
    assert {each.origin for each in scales.tensors.values()} == {Origin.QDQ}
    feeds = random_feeds(proto)
    feeds["x"] = np.rint(np.clip(feeds["x"], -2, 2) / 0.02).astype(np.float32) * np.float32(0.02)
    quantised, clean = run_onnx(proto, feeds)[0], run_onnx(to_proto(model), feeds)[0]
    assert np.abs(quantised - clean).max() < 0.15
    weights = [v for v in model.graph.initializers.values() if v.const_value is not None and v.const_value.size > 100]
    assert len(weights) == 2


def test_the_given_network_is_left_alone() -> None:
    model = load(chain())
    before = to_proto(model).SerializeToString()
    strip_qdq(model)
    assert to_proto(model).SerializeToString() == before
    assert has_qdq(model)
    assert not has_qdq(strip_qdq(model)[0])


def test_no_constant_is_left_over() -> None:
    model, _ = strip(chain(integers=True))
    assert all(value.uses() for value in model.graph.initializers.values())


@pytest.mark.parametrize("zero", [np.uint8(0), np.uint8(127), np.int8(3)])
def test_q1_asymmetric_activations_are_refused(zero: np.generic) -> None:
    q = QuantisedNetwork()
    q.conv(q.pair("x", 0.02, zero=zero), "y")
    with pytest.raises(OrinportError, match="asymmetric"):
        strip(q.model(X, ["y"]))


def test_q1_activations_by_channel_are_refused() -> None:
    q = QuantisedNetwork()
    q.conv(q.pair("x", np.full(4, 0.02), zero=np.zeros(4, np.int8), axis=1), "y")
    with pytest.raises(OrinportError, match="4 scales"):
        strip(q.model(X, ["y"]))


@pytest.mark.parametrize("order", [(0.5, 0.02), (0.02, 0.5)])
def test_q2_conflicts_are_told_and_the_larger_scale_taken(order: tuple[float, float]) -> None:
    q = QuantisedNetwork()
    left = q.conv(q.pair("x", order[0]), "a")
    right = q.conv(q.pair("x", order[1]), "b")
    q.op("Add", [left, right], "y")
    _, scales = strip(q.model(X, ["y"]))
    assert scales["x"].value == 0.5
    assert [f.code for f in scales.findings] == ["Q002"]
    assert "0.02, 0.5" in scales.findings[0].message


def test_q2_equal_scales_are_no_conflict() -> None:
    q = QuantisedNetwork()
    q.op("Add", [q.conv(q.pair("x", 0.02), "a"), q.conv(q.pair("x", 0.02), "b")], "y")
    assert not strip(q.model(X, ["y"]))[1].findings


def test_q2_a_second_pair_behind_a_pair_belongs_to_the_same_tensor() -> None:
    q = QuantisedNetwork()
    q.conv(q.pair(q.pair("x", 0.02), 0.04), "y")
    _, scales = strip(q.model(X, ["y"]))
    assert list(scales.tensors) == ["x"]
    assert scales["x"].value == single_scale(0.04)
    assert [f.code for f in scales.findings] == ["Q002"]


@pytest.mark.parametrize(("factor", "told"), [(1.0, False), (1.005, False), (1.05, True), (100.0, True)])
def test_q3_weight_scales_are_compared_relatively(factor: float, told: bool) -> None:
    """The absolute tolerance of 1e-3 that others use exceeds usual weight scales."""
    q = QuantisedNetwork()
    q.conv(q.pair("x", 0.02), "y", factor=factor)
    _, scales = strip(q.model(X, ["y"]))
    found = [f for f in scales.findings if f.code == "Q004"]
    assert bool(found) is told
    if told:
        assert found[0].value == pytest.approx(factor, rel=0.02) or found[0].value > 1.04


_NO_ZERO = np.int8(0)


def weights_before_a_pair(scale: np.ndarray, floats: np.ndarray, zero: np.generic = _NO_ZERO) -> list[Finding]:
    """Findings on weights of two output channels, in floats before a pair."""
    q = QuantisedNetwork()
    q.constants["w"] = floats.astype(np.float32)
    zeros = np.full(scale.shape, zero)
    q.op("Conv", ["x", q.pair("w", scale, zero=zeros, axis=0, output="weights")], "y")
    return [each for each in strip(q.model({"x": (1, 2, 8, 8)}, ["y"]))[1].findings if each.code == "Q004"]


TWO = np.array([[0.3, -0.4], [0.02, 0.005]]).reshape(2, 2, 1, 1)


@pytest.mark.filterwarnings("error")
def test_q3_scales_far_too_small_saturate_weights() -> None:
    """The clipped weights fit the scale again, so the floats before are what counts."""
    found = weights_before_a_pair(np.array([0.4, 0.02]) / 127 / 100, TWO)
    assert len(found) == 1
    assert "4 of 4 elements of 'weights' (the largest, -0.4, becomes -0.00403) saturate" in found[0].message


@pytest.mark.filterwarnings("error")
def test_q3_one_channel_that_saturates_is_told() -> None:
    found = weights_before_a_pair(np.array([0.4, 0.02 / 2]) / 127, TWO)
    assert len(found) == 1
    assert "1 of 4 elements of 'weights' (the largest, 0.02, becomes 0.01) saturate" in found[0].message


@pytest.mark.parametrize("factor", [4.5, 100.0, 1000.0])
@pytest.mark.filterwarnings("error")
def test_q3_scales_far_too_large_make_weights_zero(factor: float) -> None:
    """From 254 on nothing is left, and nothing that could be compared with the scale."""
    scale = np.array([0.4, 0.02]) / 127 * factor
    found = weights_before_a_pair(scale, TWO)
    assert len(found) == 1
    zeros = int((np.rint(TWO / scale.reshape(2, 1, 1, 1)) == 0).sum())
    assert f"up to {factor:.3g} times too large for them: {zeros} of 4 elements of 'weights'" in found[0].message
    assert found[0].value == pytest.approx(factor, rel=1e-6)


@pytest.mark.parametrize("scale", [np.array([0.4, 0.02]) / 127, np.array([0.4, 0.02]) / 128])
def test_q3_both_conventions_of_a_scale_fit(scale: np.ndarray) -> None:
    assert not weights_before_a_pair(scale, TWO)


def test_q3_unsigned_weights_saturate_by_their_zero_point() -> None:
    scale = np.array([0.4, 0.02]) / 127
    assert not weights_before_a_pair(scale, TWO, np.uint8(128))
    found = weights_before_a_pair(scale, TWO, np.uint8(255))
    assert "3 of 4 elements of 'weights' (the largest, 0.3, becomes 0) saturate" in found[0].message


@pytest.mark.parametrize("scale", [np.nan, -0.5, 0.0, np.inf])
@pytest.mark.filterwarnings("error")
def test_q7_scales_that_are_none_before_floats_give_one_finding(scale: float) -> None:
    q = QuantisedNetwork()
    q.constants["w"] = TWO.astype(np.float32) * np.array([1, 0]).reshape(1, 2, 1, 1).astype(np.float32)
    q.op("Conv", ["x", q.pair("w", np.array([0.3 / 127, scale]), zero=np.zeros(2, np.int8), axis=0)], "y")
    _, scales = strip(q.model({"x": (1, 2, 8, 8)}, ["y"]))
    assert [each.code for each in scales.findings if each.code == "Q003"] == ["Q003"]
    assert not [each for each in scales.findings if "saturate" in each.message]


def test_q4_deconvolution_and_gemm_have_their_channels_on_other_axes() -> None:
    q = QuantisedNetwork()
    d = q.op("ConvTranspose", [q.pair("x", 0.02), q.weights("wd", (4, 6, 2, 2), axis=1)], "d", strides=[2, 2])
    f = q.op("Flatten", [q.pair(d, 0.1)], "f")
    q.op("Gemm", [f, q.weights("wg", (6 * 16 * 16, 3), axis=1)], "y")
    model, scales = strip(q.model(X, ["y"]))
    assert not scales.findings
    assert [each.op_type for each in model.graph] == ["ConvTranspose", "Flatten", "Gemm"]


def test_q4_gemm_with_transposed_weights() -> None:
    q = QuantisedNetwork()
    f = q.op("Flatten", [q.pair("x", 0.02)], "f")
    q.op("Gemm", [f, q.weights("wg", (3, 256), axis=0)], "y", transB=1)
    assert not strip(q.model(X, ["y"]))[1].findings


def residual(conv_first: bool, other_scale: float | None) -> onnx.ModelProto:
    """Conv whose output has no scale, added to a tensor that has one (or not); all inputs of convolutions have."""
    q = QuantisedNetwork()
    e = q.conv("x", "e") if other_scale is None else q.conv(q.pair("x", 0.02), "e")
    r = q.op("Relu", [e], "r")
    skip = r if other_scale is None else q.pair(r, other_scale)
    c = q.conv(skip, "c")
    other = q.op("Sin", [r], "o") if other_scale is None else skip
    q.op("Add", [c, other] if conv_first else [other, c], "s")
    q.conv(q.pair("s", 0.2), "l")
    q.pair("l", 0.3, output="y")
    return q.model(X, ["y"])


@pytest.mark.parametrize("conv_first", [True, False])
def test_q5_the_mark_goes_to_the_convolution_wherever_it_stands(conv_first: bool) -> None:
    report = translate(residual(conv_first, 0.1))
    assert (report.scales["c"].value, report.scales["c"].origin) == (1.0, Origin.FUSED)
    assert report.scales["r"].value == single_scale(0.1)
    assert "Q010" in codes(report)
    assert report.coverage.complete


def test_q5_two_convolutions_without_scales_get_no_mark() -> None:
    q = QuantisedNetwork()
    d = q.pair("x", 0.02)
    q.op("Add", [q.conv(d, "a"), q.conv(d, "b")], "s")
    q.pair("s", 0.2, output="y")
    report = translate(q.model(X, ["y"]))
    assert "a" not in report.scales
    assert "b" not in report.scales
    assert "Q010" not in codes(report)
    assert not report.coverage.complete


def test_q6_no_mark_where_the_other_operand_has_no_scale() -> None:
    report = translate(residual(True, None))
    assert "c" not in report.scales
    assert "Q010" not in codes(report)
    assert "Q001" in codes(report)


def test_q6_no_mark_for_older_software_or_a_second_reader() -> None:
    assert "c" not in translate(residual(True, 0.1), "8.5.2", "jp5.1").scales
    proto = residual(True, 0.1)
    proto.graph.node.append(node("Relu", ["c"], "c2"))
    proto.graph.output.append(onnx.ValueInfoProto(name="c2"))
    assert "c" not in translate(proto).scales


@pytest.mark.parametrize("scale", [0.003, 1 / 127, 0.01])
def test_q7_no_scale_is_worked_out_backwards_through_sigmoid(scale: float) -> None:
    """Below 0.5 / 127 the inverse is negative, at 1 / 127 infinite, above it NaN."""
    q = QuantisedNetwork()
    c = q.conv(q.pair("x", 0.02), "c")
    q.pair(q.op("Sigmoid", [c], "s"), scale, output="y")
    report = translate(q.model(X, ["y"]))
    assert "c" not in report.scales
    assert report.scales["y"].value == single_scale(scale)
    assert all(np.isfinite(each.value) and each.value > 0 for each in report.scales.tensors.values())


@pytest.mark.parametrize("scale", [np.nan, -0.5, 0.0, np.inf])
def test_q7_scales_that_are_none_are_told(scale: float) -> None:
    q = QuantisedNetwork()
    r = q.op("Relu", [q.conv(q.pair("x", 0.02), "c")], "r")
    q.conv(q.pair(r, scale), "y")
    _, scales = strip(q.model(X, ["y"]))
    assert list(scales.tensors) == ["x"]
    assert [f.code for f in scales.findings] == ["Q003"]


@pytest.mark.parametrize("scale", [1e-42, 1e4])
@pytest.mark.filterwarnings("error")
def test_q7_ranges_that_make_no_sense_are_told_as_those_of_a_cache(scale: float) -> None:
    q = QuantisedNetwork()
    q.pair(q.conv(q.pair("x", scale), "c"), 0.1, output="y")
    found = [each for each in translate(q.model(X, ["y"])).findings if each.code == "Q007"]
    assert len(found) == 1
    assert "'x'" in found[0].message


def weights_only(scale: list[float], integers: np.ndarray) -> onnx.ModelProto:
    q = QuantisedNetwork()
    q.constants.update(w=integers.astype(np.int8), s=np.array(scale, np.float32))
    weights = q.op("DequantizeLinear", ["w", "s"], "weights", axis=0)
    q.op("Conv", ["x", weights], "y")
    return q.model(X, ["y"])


@pytest.mark.parametrize("scale", [np.nan, -0.5, 0.0, np.inf])
@pytest.mark.filterwarnings("error")
def test_q7_scales_of_weights_that_are_none_are_told(scale: float) -> None:
    _, scales = strip(weights_only([127 * 0.01, scale], np.array([1, 1] * 3).reshape(3, 2).T.reshape(2, 3, 1, 1)))
    told = [each for each in scales.findings if each.code == "Q003"]
    assert len(told) == 1
    assert "'weights'" in told[0].message


def test_q7_a_scale_of_zero_on_zeros_is_right() -> None:
    integers = np.array([[127, 1, 2], [0, 0, 0]]).reshape(2, 3, 1, 1)
    assert "Q003" not in codes(strip(weights_only([0.01, 0.0], integers))[1])


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int4"])
def test_weights_quantised_to_other_types_are_refused(dtype: str) -> None:
    q = QuantisedNetwork(opset=21)
    zero = np.zeros((), getattr(ml_dtypes, dtype))
    q.constants.update(w=np.ones((2, 3, 1, 1), np.float32), s=np.float32(0.1), z=zero)
    q.op("QuantizeLinear", ["w", "s", "z"], "i")
    q.op("Conv", ["x", q.op("DequantizeLinear", ["i", "s", "z"], "f")], "y")
    with pytest.raises(OrinportError, match=f"quantises to {dtype.upper()}"):
        strip(q.model(X, ["y"]))


def test_weights_without_zero_point_but_of_int8_keep_their_signs() -> None:
    q = QuantisedNetwork(opset=21)
    weights = np.array([[1.0, -1.0, 0.5], [-0.25, 0.75, -1.0]], np.float32).reshape(2, 3, 1, 1)
    q.constants.update(w=weights, s=np.float32(1 / 64))
    q.op("QuantizeLinear", ["w", "s"], "i", output_dtype=onnx.TensorProto.INT8)
    q.op("Conv", ["x", q.op("DequantizeLinear", ["i", "s"], "f")], "y")
    model, _ = strip(q.model(X, ["y"]))
    (baked,) = [each.const_value.numpy() for each in model.graph.initializers.values() if each.const_value is not None]
    assert np.array_equal(baked, weights)


def test_q8_batch_normalisation_before_a_convolution_keeps_its_names() -> None:
    q = QuantisedNetwork()
    for name, values in (("g", 2.0), ("b", 0.1), ("m", 0.0), ("v", 1.0)):
        q.constants[name] = np.full(4, values, np.float32)
    n = q.op("BatchNormalization", ["x", "g", "b", "m", "v"], "n")
    r = q.op("Relu", [n], "r")
    q.conv(q.pair(r, 0.05), "c")
    q.pair("c", 0.3, output="y")
    proto = q.model(X, ["y"])
    model, scales = strip(proto)
    assert {name: each.value for name, each in scales.tensors.items()} == {
        "r": single_scale(0.05),
        "y": single_scale(0.3),
    }
    feeds = random_feeds(proto)
    assert np.abs(run_onnx(proto, feeds)[0] - run_onnx(to_proto(model), feeds)[0]).max() < 0.5


def test_q9_a_quantiser_without_zero_point_is_unsigned() -> None:
    """ONNX: without a zero point the output is UINT8, which is asymmetric about zero."""
    q = QuantisedNetwork()
    q.conv(q.pair("x", 0.02, zero=None), "y")
    with pytest.raises(OrinportError, match="UINT8"):
        strip(q.model(X, ["y"]))


def test_q9_without_zero_point_but_of_int8() -> None:
    """From opset 21 an attribute says the type."""
    q = QuantisedNetwork(opset=21)
    q.constants["s"] = np.float32(0.02)
    q.op("QuantizeLinear", ["x", "s"], "i", output_dtype=onnx.TensorProto.INT8)
    q.conv(q.op("DequantizeLinear", ["i", "s"], "f"), "y")
    assert strip(q.model(X, ["y"]))[1]["x"].value == S


def test_q11_no_scale_goes_to_an_output_without_one() -> None:
    q = QuantisedNetwork()
    c = q.conv(q.pair("x", 0.02), "c")
    r = q.op("Relu", [q.pair(c, 0.1)], "r")
    q.op("Flatten", [r], "y")
    report = translate(q.model(X, ["y"]))
    assert "y" not in report.scales
    assert report.scales["r"].value == single_scale(0.1)


def test_q11_an_output_with_a_pair_has_its_scale_and_its_name() -> None:
    model, scales = strip(chain())
    assert [each.name for each in model.outputs] == ["y"]
    assert scales["y"].value == single_scale(0.1)


def test_q12_sigmoid_as_output_behind_a_product() -> None:
    q = QuantisedNetwork()
    c = q.conv(q.pair("x", 0.02), "c")
    s = q.op("Sigmoid", [q.pair(c, 0.05)], "s")
    q.op("Mul", [c, s], "m")
    report = translate(q.model(X, ["s", "m"]))
    assert "s" not in report.scales
    assert report.scales["c"].value == single_scale(0.05)


def test_q12_sigmoid_inside_has_the_scale_of_one() -> None:
    q = QuantisedNetwork()
    c = q.conv(q.pair("x", 0.02), "c")
    s = q.op("Sigmoid", [q.pair(c, 0.05)], "s")
    q.pair(q.op("Mul", [c, s], "m"), 0.04, output="y")
    report = translate(q.model(X, ["y"]))
    assert report.scales["s"].value == single_scale(1 / 127)
    assert report.scales["s"].origin is Origin.BOUND


def test_q13_scales_reach_siblings_by_a_fixpoint() -> None:
    """Backward from one branch to the shared tensor, then forward into the other."""
    q = QuantisedNetwork()
    c = q.conv(q.pair("x", 0.02), "c")
    left = q.op(
        "Relu", [q.op("MaxPool", [q.op("Transpose", [c], "t", perm=[0, 1, 3, 2])], "p", kernel_shape=[2, 2])], "l"
    )
    right = q.op("MaxPool", [q.op("MaxPool", [c], "a", kernel_shape=[2, 2])], "b", kernel_shape=[2, 2])
    q.conv(right, "z")
    q.conv(q.pair(left, 0.07), "y")
    report = translate(q.model(X, ["y", "z"]))
    for name in ("l", "p", "t", "c", "a", "b"):
        assert report.scales[name].value == single_scale(0.07), name


def test_q14_every_output_of_a_split_has_the_scale() -> None:
    q = QuantisedNetwork()
    c = q.pair(q.conv(q.pair("x", 0.02), "c"), 0.06)
    q.constants["sizes"] = np.array([1, 3])
    q.op("Split", [c, "sizes"], ["a", "b"], axis=1)
    q.conv("a", "y", channels=(1, 4))
    q.conv("b", "z", channels=(3, 4))
    report = translate(q.model(X, ["y", "z"]))
    assert report.scales["a"].value == report.scales["b"].value == single_scale(0.06)


def test_q15_the_scale_of_a_concatenation_of_its_own_stays() -> None:
    q = QuantisedNetwork()
    a, b = q.pair(q.conv(q.pair("x", 0.02), "a"), 0.03), q.pair(q.conv(q.pair("x", 0.02), "b"), 0.01)
    q.conv(q.pair(q.op("Concat", [a, b], "k", axis=1), 0.9), "y", channels=(8, 4))
    proto = q.model(X, ["y"])
    assert translate(proto).scales["k"].value == single_scale(0.9)
    tied = orinport.quantize(proto, target=target("8.6.2", "jp6.0"))
    assert {tied.scales[name].value for name in "abk"} == {single_scale(0.9)}
    assert "Q005" in codes(tied)


@pytest.mark.parametrize("scaled", [0, 1, 2])
def test_q16_inputs_of_a_concatenation_take_its_scale_in_any_order(scaled: int) -> None:
    q = QuantisedNetwork()
    d = q.pair("x", 0.02)
    branches = [q.conv(d, name) for name in "abc"]
    branches[scaled] = q.pair(branches[scaled], 0.5)
    q.conv(q.pair(q.op("Concat", branches, "k", axis=1), 0.5), "y", channels=(12, 4))
    report = translate(q.model(X, ["y"]))
    assert [report.scales[name].value for name in "abc"] == [0.5, 0.5, 0.5]


def test_q16_a_concatenation_takes_the_widest_only_if_all_are_known() -> None:
    q = QuantisedNetwork()
    d = q.pair("x", 0.02)
    a, b = q.pair(q.conv(d, "a"), 0.25), q.conv(d, "b")
    q.conv(q.op("Concat", [a, b], "k", axis=1), "y", channels=(8, 4))
    assert "k" not in translate(q.model(X, ["y"])).scales
    q = QuantisedNetwork()
    d = q.pair("x", 0.02)
    a, b = q.pair(q.conv(d, "a"), 0.25), q.pair(q.conv(d, "b"), 0.125)
    q.conv(q.op("Concat", [a, b], "k", axis=1), "y", channels=(8, 4))
    assert translate(q.model(X, ["y"])).scales["k"].value == 0.25


def test_q17_hostile_names_do_not_break_the_argument() -> None:
    from orinport.quantization import cache_files

    proto = residual(True, None)
    for index, each in enumerate(proto.graph.node):
        each.name = ["", "a,b:c=d x", "x:0", f"good_{index}"][index % 4]
    report = translate(proto)
    texts, notes = cache_files(report)
    line = texts.get("layer_precisions.txt", "").strip()
    assert all(part.endswith(":fp16") and part.count(":") == 1 and part != ":fp16" for part in line.split(",") if part)
    named = line.count(":fp16")
    left = len(report.coverage.fp16_layers) - named
    assert (left > 0) == bool(notes)


def test_q18_ranges_are_tied_and_the_loss_is_told() -> None:
    q = QuantisedNetwork()
    a, b = q.pair(q.conv(q.pair("x", 0.02), "a"), 0.1), q.pair(q.conv(q.pair("x", 0.02), "b"), 0.025)
    q.pair(q.op("Add", [a, b], "s"), 0.3, output="y")
    report = orinport.quantize(q.model(X, ["y"]), target=target("8.6.2", "jp6.0"))
    assert report.scales["a"].value == report.scales["b"].value == single_scale(0.1)
    tied = [finding for finding in report.findings if finding.code == "Q005"]
    assert [(f.nodes, round(float(str(f.value)), 3)) for f in tied] == [(("Add_s",), 4.0)]


def test_q19_an_input_that_a_dequantiser_reads() -> None:
    q = QuantisedNetwork()
    q.constants["s"], q.constants["z"] = np.float32(0.02), np.int8(0)
    q.conv(q.op("DequantizeLinear", ["x", "s", "z"], "f"), "y")
    proto = q.model({"x": ((1, 4, 8, 8), np.int8)}, ["y"])
    model, scales = strip(proto)
    assert scales["x"].value == S
    assert model.inputs[0].dtype.value == "fp32"
    assert [f.code for f in scales.findings] == ["Q011"]
    integers = np.random.default_rng(0).integers(-128, 128, (1, 4, 8, 8)).astype(np.int8)
    expected = run_onnx(proto, {"x": integers})[0]
    got = run_onnx(to_proto(model), {"x": integers.astype(np.float32) * np.float32(0.02)})[0]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_q19_an_output_in_integers() -> None:
    q = QuantisedNetwork()
    q.constants["s"], q.constants["z"] = np.float32(0.1), np.int8(0)
    q.op("QuantizeLinear", [q.conv(q.pair("x", 0.02), "c"), "s", "z"], "y")
    model, scales = strip(q.model(X, ["y"]))
    assert [each.name for each in model.outputs] == ["y"]
    assert model.outputs[0].dtype.value == "fp32"
    assert scales["y"].value == single_scale(0.1)
    assert [f.code for f in scales.findings] == ["Q011"]


def test_q20_what_lacks_a_scale_is_listed_by_layer_and_region() -> None:
    report = translate(residual(True, None))
    missing = {finding.layer for finding in report.findings if finding.code == "Q001"}
    assert missing == {layer.name for layer in report.coverage.fp16_layers}
    assert report.coverage.covered < len(report.coverage.tensors)


def test_the_given_network_keeps_its_types() -> None:
    """A copy shares the type objects of what it was copied from."""
    q = QuantisedNetwork()
    q.constants |= {"s": np.float32(0.02), "z": np.int8(0), "shape": np.array([1, -1], np.int64)}
    q.op("Reshape", [q.op("QuantizeLinear", ["x", "s", "z"], "i"), "shape"], "m")
    q.op("Relu", [q.op("DequantizeLinear", ["m", "s", "z"], "f")], "y")
    model = load(q.model(X, ["y"]))
    before = to_proto(model).SerializeToString(deterministic=True)
    types = {value.name: value.dtype for each in model.graph for value in each.outputs}
    assert types["m"] == ir.DataType.INT8
    clean, scales = strip_qdq(model)
    back, _ = insert_qdq(clean, scales)
    assert {value.name: value.dtype for each in model.graph for value in each.outputs} == types
    assert to_proto(model).SerializeToString(deterministic=True) == before
    assert {value.dtype for each in clean.graph for value in each.outputs} == {ir.DataType.FLOAT}
    assert ir.DataType.INT8 in {value.dtype for each in back.graph for value in each.outputs}


def test_integers_may_be_moved_between_a_pair() -> None:
    q = QuantisedNetwork()
    q.constants["s"], q.constants["z"] = np.float32(0.02), np.int8(0)
    q.op("QuantizeLinear", ["x", "s", "z"], "i")
    q.op("Transpose", ["i"], "t", perm=[0, 1, 3, 2])
    q.conv(q.op("DequantizeLinear", ["t", "s", "z"], "f"), "y")
    proto = q.model(X, ["y"])
    model, scales = strip(proto)
    assert scales["x"].value == S
    feeds = {"x": np.rint(np.random.default_rng(0).uniform(-2, 2, (1, 4, 8, 8)) / S).astype(np.float32) * np.float32(S)}
    np.testing.assert_allclose(run_onnx(proto, feeds)[0], run_onnx(to_proto(model), feeds)[0], atol=1e-4)


def test_a_pair_that_changes_values_is_refused() -> None:
    q = QuantisedNetwork()
    q.constants.update(a=np.float32(0.02), b=np.float32(0.04), z=np.int8(0))
    q.op("QuantizeLinear", ["x", "a", "z"], "i")
    q.conv(q.op("DequantizeLinear", ["i", "b", "z"], "f"), "y")
    with pytest.raises(OrinportError, match="has the scale"):
        strip(q.model(X, ["y"]))


def test_scales_at_run_time_are_refused() -> None:
    q = QuantisedNetwork()
    q.constants["z"] = np.int8(0)
    q.op("QuantizeLinear", ["x", "s", "z"], "i")
    q.conv(q.op("DequantizeLinear", ["i", "s", "z"], "f"), "y")
    with pytest.raises(OrinportError, match="computed at run time"):
        strip(q.model({**X, "s": ()}, ["y"]))


def test_operators_on_integers_are_refused() -> None:
    proto = network([node("DynamicQuantizeLinear", ["x"], ["i", "s", "z"])], X, ["i"])
    with pytest.raises(OrinportError, match="an operator on integers"):
        strip(proto)


def test_an_input_that_is_also_an_output_behind_a_pair() -> None:
    q = QuantisedNetwork()
    q.pair("x", 0.02, output="y")
    model, scales = strip(q.model(X, ["y"]))
    assert scales["x"].value == scales["y"].value == S
    assert [each.name for each in model.outputs] == ["y"]


def test_data_beside_pairs_is_refused() -> None:
    with pytest.raises(OrinportError, match="scales of its own"):
        orinport.quantize(chain(), data="somewhere.npz")


def test_weights_behind_a_transpose_become_constants_of_the_convolution() -> None:
    """TensorFlow's exporter keeps weights as (h, w, in, out), quantised along the last axis, and turns them round."""
    q = QuantisedNetwork()
    w = q.weights("w", (3, 3, 4, 6), axis=3)
    t = q.op("Transpose", [w], "t", perm=[3, 2, 0, 1])
    q.op("Conv", [q.pair("x", 0.02), t], "y", pads=[1, 1, 1, 1])
    proto = q.model(X, ["y"])
    model, scales = strip(proto)
    assert not scales.findings
    convolution = next(each for each in model.graph if each.op_type == "Conv")
    kernel = model.constant(convolution.inputs[1], limit=None)
    assert kernel is not None
    assert kernel.shape == (6, 4, 3, 3)
    feeds = {"x": np.rint(random_feeds(proto)["x"] / S).clip(-100, 100).astype(np.float32) * np.float32(S)}
    np.testing.assert_allclose(run_onnx(proto, feeds)[0], run_onnx(to_proto(model), feeds)[0], rtol=1e-4, atol=1e-4)


def test_wrong_scales_of_weights_behind_a_transpose_are_told() -> None:
    q = QuantisedNetwork()
    t = q.op("Transpose", [q.weights("w", (3, 3, 4, 6), axis=3, factor=100.0)], "t", perm=[3, 2, 0, 1])
    q.op("Conv", [q.pair("x", 0.02), t], "y", pads=[1, 1, 1, 1])
    assert [f.code for f in strip(q.model(X, ["y"]))[1].findings] == ["Q004"]


def test_scales_of_half_precision_networks() -> None:
    """From opset 19 on a network in FP16 has quantisers with FP16 scales."""
    q = QuantisedNetwork(opset=19)
    d = q.pair("x", 0.02)
    q.constants = {n: v.astype(np.float16) if v.dtype == np.float32 else v for n, v in q.constants.items()}
    q.op("Relu", [d], "y")
    model, scales = strip(q.model({"x": ((1, 4, 8, 8), np.float16)}, ["y"]))
    assert scales["x"].value == float(np.float16(0.02))
    assert [each.op_type for each in model.graph] == ["Relu"]
