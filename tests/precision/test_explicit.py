"""Scales become Q/DQ layers that compute what the scales say, and come back as the same scales."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

import orinport
from builders import network, node, random_feeds, run_onnx, small_cnn
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.model.save import to_proto
from orinport.precision.calibrate import CalibrationOptions, calibrate
from orinport.precision.explicit import insert_qdq
from orinport.precision.half import to_half
from orinport.precision.qdq import strip_qdq
from orinport.precision.scales import Origin, Scale, Scales
from orinport.quantization import write_scales


@pytest.fixture
def scales(tmp_path: Path) -> Scales:
    np.save(tmp_path / "d.npy", np.random.default_rng(0).standard_normal((4, 3, 16, 16)).astype(np.float32))
    return calibrate(load(small_cnn()), tmp_path / "d.npy", options=CalibrationOptions(method="min-max"))


def test_there_and_back(scales: Scales) -> None:
    """Every scale comes back bit by bit, under its name, and the network behind it is the same."""
    model = load(small_cnn())
    explicit, findings = insert_qdq(model, scales)
    assert not findings
    onnx.checker.check_model(to_proto(explicit), full_check=True)
    pairs = [each for each in explicit.graph if each.op_type == "QuantizeLinear"]
    assert len(pairs) == len(scales)
    assert [value.name for value in explicit.graph.outputs] == [value.name for value in model.graph.outputs]
    clean, back = strip_qdq(explicit)
    assert [each.op_type for each in clean.graph] == [each.op_type for each in model.graph]
    assert {s.value for s in back.tensors.values()} == {s.value for s in scales.tensors.values()}
    assert {n: s.value for n, s in back.tensors.items() if n in scales} == {
        n: s.value for n, s in scales.tensors.items() if n in back
    }
    assert not [f for f in back.findings if f.code != "Q004"]


def test_it_computes_what_the_scales_say(scales: Scales) -> None:
    proto = small_cnn()
    explicit, _ = insert_qdq(load(proto), scales)
    feeds = random_feeds(proto, seed=5)
    exact, quantised = run_onnx(proto, feeds)[0], run_onnx(to_proto(explicit), feeds)[0]
    noise = float(((exact - quantised) ** 2).mean())
    assert 0 < noise < 0.01 * float((exact**2).mean())
    steps = quantised / scales["y"].value
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-3)


def test_weights_have_a_scale_for_each_output_channel(scales: Scales) -> None:
    explicit, _ = insert_qdq(load(small_cnn()), scales)
    stored = {n: v.const_value.numpy() for n, v in explicit.graph.initializers.items() if v.const_value is not None}
    integers = [array for name, array in stored.items() if array.dtype == np.int8 and array.ndim > 1]
    assert sorted(array.shape for array in integers) == [(8, 3, 3, 3), (8, 8, 1, 1), (10, 8)]
    assert all((np.abs(array.reshape(array.shape[0], -1)).max(axis=1) == 127).all() for array in integers)


def test_small_weights_in_fp16_keep_their_resolution() -> None:
    """Steps below FP16's normal numbers (6.1e-5) are taken as they are, rounded up so that nothing saturates."""
    weights = np.random.default_rng(0).uniform(-1, 1, (16, 8, 1, 1)) * np.logspace(-4, -2, 16).reshape(-1, 1, 1, 1)
    proto = network([node("Conv", ["x", "w"], "y")], {"x": (1, 8, 1, 1)}, ["y"], {"w": weights.astype(np.float32)})
    half, _ = to_half(load(proto))
    explicit, _ = insert_qdq(half, Scales({name: Scale(1.0, Origin.DATA) for name in ("x", "y")}))
    stored = {n: v.const_value.numpy() for n, v in explicit.graph.initializers.items() if v.const_value is not None}
    steps = stored["w_scale"].astype(np.float64).reshape(-1, 1, 1, 1)
    assert (steps[:8] < np.finfo(np.float16).tiny).all()
    given = weights.astype(np.float16).astype(np.float64)
    wanted = np.abs(given).max(axis=(1, 2, 3), keepdims=True) / 127
    assert (np.abs(stored["w_int8"] * steps - given) <= 0.52 * steps).all()
    assert (steps <= wanted * (1 + 2.0**-11) + 2.0**-24).all()


ROUNDS_HALF = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2]) >= (1, 30)
"""ONNX Runtime up to 1.28 cuts off where QuantizeLinear should round FP16 (measured: 1.23.2 to 1.28.0; not 1.30.0)."""


def test_half_precision_has_scales_of_its_own_type(scales: Scales) -> None:
    half, _ = to_half(load(small_cnn()))
    explicit, findings = insert_qdq(half, scales)
    assert not findings
    assert explicit.opset >= 19
    types = {
        value.dtype.name for each in explicit.graph if each.op_type == "QuantizeLinear" for value in each.inputs[:2]
    }
    assert types == {"FLOAT16"}
    onnx.checker.check_model(to_proto(explicit), full_check=True)
    feeds = {name: array.astype(np.float16) for name, array in random_feeds(small_cnn(), seed=5).items()}
    single, _ = insert_qdq(load(small_cnn()), scales)
    expected = run_onnx(to_proto(single), random_feeds(small_cnn(), seed=5))[0]
    if ROUNDS_HALF:
        got = run_onnx(to_proto(explicit), feeds)[0].astype(np.float32)
    else:
        got = ReferenceEvaluator(to_proto(explicit)).run(None, feeds)[0].astype(np.float32)
    assert float(((got - expected) ** 2).mean()) < 0.005 * float((expected**2).mean())


def test_scales_that_fp16_cannot_hold_are_told() -> None:
    proto = network([node("Relu", ["x"], "r"), node("Relu", ["r"], "y")], {"x": ((1, 4), np.float16)}, ["y"])
    tiny = Scales({"r": Scale(1e-9, Origin.DATA), "x": Scale(0.5, Origin.DATA)})
    explicit, findings = insert_qdq(load(proto), tiny)
    assert [f.code for f in findings] == ["Q003"]
    assert sum(each.op_type == "QuantizeLinear" for each in explicit.graph) == 1


def test_marks_and_constants_get_no_pair() -> None:
    model = load(small_cnn())
    marked = Scales({"c2": Scale(1.0, Origin.FUSED), "w1": Scale(1.0, Origin.CONSTANT)})
    explicit, _ = insert_qdq(model, marked)
    assert not [each for each in explicit.graph if each.op_type == "QuantizeLinear"]


def test_older_opsets_are_raised_and_the_given_network_left_alone(scales: Scales) -> None:
    proto = small_cnn()
    proto.opset_import[0].version = 11
    model = load(proto)
    before = to_proto(model).SerializeToString()
    explicit, _ = insert_qdq(model, scales)
    assert explicit.opset >= 13
    assert to_proto(model).SerializeToString() == before


def test_networks_that_cannot_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = small_cnn()
    proto.opset_import[0].version = 11

    def fails(*_: object) -> None:
        raise RuntimeError("No Adapter From Version 11 for Nothing\nmore")

    monkeypatch.setattr(onnx.version_converter, "convert_version", fails)
    with pytest.raises(
        OrinportError, match="cannot be raised from opset 11 to 13: No Adapter From Version 11 for Nothing"
    ):
        insert_qdq(load(proto), Scales({"x": Scale(1.0, Origin.DATA)}))


def test_written_models_run(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.random.default_rng(0).standard_normal((4, 3, 16, 16)).astype(np.float32))
    for name, dtype in (("orin-agx-64gb/jp6.2", np.float32), ("orin-agx-64gb/jp7.2.2", np.float16)):
        report = orinport.quantize(small_cnn(), data=tmp_path / "d.npy", target=name)
        write_scales(report, tmp_path / "q.onnx")
        written = onnx.ModelProto.FromString((tmp_path / "q.onnx").read_bytes())
        outputs = run_onnx(written, {k: v.astype(dtype) for k, v in random_feeds(small_cnn()).items()})
        assert outputs[0].dtype == dtype
        assert np.isfinite(outputs[0]).all()
    with pytest.raises(OrinportError, match="does not say what to write"):
        write_scales(report, tmp_path / "q.txt")
    with pytest.raises(OrinportError, match="reads no calibration cache"):
        write_scales(report, tmp_path / "q.cache")


def test_an_output_that_is_the_input() -> None:
    """A network without a node still gets its pair."""
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])
    graph = onnx.helper.make_graph([], "g", [value], [value])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    explicit, _ = insert_qdq(load(proto), Scales({"x": Scale(0.5, Origin.FILE)}))
    onnx.checker.check_model(to_proto(explicit), full_check=True)
    assert {each.op_type for each in explicit.graph} <= {"QuantizeLinear", "DequantizeLinear"}


@pytest.mark.parametrize("magnitude", [1e-45, 1e-40, 1e-37])
def test_weights_at_the_end_of_fp32_have_steps(magnitude: float) -> None:
    """max |w| / 127 is 0 there; the step is the smallest number instead, and nothing saturates or is divided by 0."""
    proto = small_cnn()
    for initializer in proto.graph.initializer:
        if len(initializer.dims) == 4:
            array = np.full(tuple(initializer.dims), magnitude, np.float32)
            initializer.CopyFrom(onnx.numpy_helper.from_array(array, initializer.name))
    model = load(proto)
    names = {
        value.name: Scale(0.1, Origin.FILE) for each in model.graph for value in (*each.inputs, *each.outputs) if value
    }
    with np.errstate(all="raise", under="ignore"):
        explicit, _ = insert_qdq(model, Scales(names))
    steps = [
        value.const_value.numpy() for name, value in explicit.graph.initializers.items() if name.endswith("_scale")
    ]
    assert steps
    assert all((each > 0).all() for each in steps)
