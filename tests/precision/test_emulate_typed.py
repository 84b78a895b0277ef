"""Networks whose own types decide: bundles for TensorRT 11, and users' networks in FP16 and with Q/DQ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import orinport
from builders import network, node, small_cnn
from dcnv4.networks import Guise, Writer
from orinport.cli import main
from orinport.emulation import EmulationReport
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.model.save import save, to_proto
from orinport.precision.calibrate import CalibrationOptions
from orinport.precision.emulate import Arithmetic, Typed, emulate
from orinport.precision.emulate_measure import Runner, TensorRow
from orinport.precision.explicit import insert_qdq
from orinport.precision.half import to_half
from orinport.precision.qdq import strip_qdq
from orinport.precision.scales import Origin, Scale, Scales
from orinport.report.emulate import emulation_document, emulation_text
from orinport.rewrites.rewrite import Rewriting, Safety
from orinport.targets.target import Precision

TENSORRT_10, TENSORRT_11 = "orin-agx-64gb/jp7.2", "orin-agx-64gb/jp7.2.2"
STEPS = {"x": 2.0**-5, "c1": 2.0**-4, "r1": 2.0**-4, "p1": 2.0**-4, "c2": 2.0**-4, "a1": 2.0**-3, "g1": 2.0**-3}


def on_a_grid(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Weights that are whole numbers of steps of a power of two, the largest of each output channel 127 of them.

    FP16 and INT8 with one scale an output channel hold them exactly.
    """
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype != np.float32:
            continue
        counts = np.rint(array * 64)
        if array.ndim > 1:
            counts = np.clip(counts, -126, 126)
            counts.reshape(array.shape[0], -1)[:, 0] = 127
        tensor.CopyFrom(numpy_helper.from_array((counts / 64).astype(np.float32), tensor.name))
    return proto


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Pictures that FP16 holds exactly."""
    path = tmp_path / "samples.npy"
    drawn = np.random.default_rng(2).normal(0, 1, (4, 3, 16, 16))
    np.save(path, drawn.astype(np.float16).astype(np.float32))
    return path


def scales_file(folder: Path, steps: dict[str, float]) -> Path:
    path = folder / "scales-given.json"
    path.write_text(json.dumps({"tensors": steps}), encoding="utf-8")
    return path


def bundle(proto: onnx.ModelProto, target: str, folder: Path, steps: dict[str, float] | None) -> Path:
    """The bundle of a network for a target, INT8 with these scales or FP16."""
    given: dict[str, Any] = {"precision": "fp16"}
    if steps is not None:
        given = {"precision": "int8", "scales": scales_file(folder, steps)}
    written = folder / target.rpartition("/")[2]
    orinport.prepare(proto, target=target, output=written, **given)
    return written


def emulated(source: Any, samples: Path, target: str, kind: str = "dla-int8", **more: Any) -> EmulationReport:
    candidate = more.pop("candidate", None)
    return orinport.verify(source, candidate, emulate=kind, data=samples, cases=0, target=target, **more)


def rows_of(report: EmulationReport) -> dict[str, TensorRow]:
    return {row.name: row for row in report.rows}


def test_both_bundles_of_a_network_give_the_same_bit_by_bit(tmp_path: Path, samples: Path) -> None:
    """Scales and weights that FP16 holds: a cache and Q/DQ layers say the same, and so do all figures."""
    proto = on_a_grid(small_cnn())
    steps = {**STEPS, "y": 2.0**-4}
    first = emulated(bundle(proto, TENSORRT_10, tmp_path, steps), samples, TENSORRT_10)
    second = emulated(bundle(proto, TENSORRT_11, tmp_path, steps), samples, TENSORRT_11)
    assert not (tmp_path / "jp7.2.2" / "calibration.cache").exists()
    assert first.int8 == second.int8 == 7
    assert (second.fp16, second.fp32) == (0, 0)
    assert first.rows == second.rows
    assert all(np.isfinite(row.snr_db) for row in second.rows)


def test_in_fp16_too(tmp_path: Path, samples: Path) -> None:
    proto = on_a_grid(small_cnn())
    first = emulated(bundle(proto, TENSORRT_10, tmp_path, None), samples, TENSORRT_10, "dla-fp16")
    second = emulated(bundle(proto, TENSORRT_11, tmp_path, None), samples, TENSORRT_11, "dla-fp16")
    assert first.fp16 == second.fp16 == 7
    without_input = [row for row in first.rows if row.name != "x"]
    assert without_input == [row for row in second.rows if row.name != "x"]
    assert rows_of(second)["x"].snr_db == np.inf


def test_layers_that_lack_a_scale_compute_in_fp16_and_keep_their_weights(tmp_path: Path, samples: Path) -> None:
    """Without a scale of `g1` the last layer is in FP16 in both; its weights are not rounded to INT8 then."""
    steps = {name: step for name, step in STEPS.items() if name not in ("g1", "a1")}
    proto = on_a_grid(small_cnn())
    first = emulated(bundle(proto, TENSORRT_10, tmp_path, steps), samples, TENSORRT_10)
    folder = bundle(proto, TENSORRT_11, tmp_path, steps)
    second = emulated(folder, samples, TENSORRT_11)
    assert first.fp16 == second.fp16 == 3
    stored = onnx.ModelProto.FromString((folder / "model.onnx").read_bytes()).graph.initializer
    integers = [tensor for tensor in stored if tensor.data_type == TensorProto.INT8 and len(tensor.dims) > 1]
    assert [tuple(tensor.dims) for tensor in integers] == [(8, 3, 3, 3), (8, 8, 1, 1)]
    assert [row.name for row in first.rows] == [row.name for row in second.rows]
    assert first.rows == second.rows


def test_a_pair_stores_int8_where_a_cache_would_not() -> None:
    """Nothing in INT8 reads the output of the Softmax: a cache's scale is not used there, a pair rounds."""
    proto = network([node("Relu", ["x"], "r"), node("Softmax", ["r"], "y", axis=1)], {"x": (1, 8, 1, 1)}, ["y"])
    scales = Scales({name: Scale(2.0**-7, Origin.QDQ) for name in ("x", "r", "y")})
    kinds = {"Relu_r": Arithmetic.INT8, "Softmax_y": Arithmetic.FP16}
    weak = emulate(load(proto), kinds, scales)
    strong = emulate(load(proto), kinds, scales, typed=Typed())
    assert weak.tensors["y"].scale is None
    assert strong.tensors["y"].scale == 2.0**-7


@pytest.mark.parametrize("target", [TENSORRT_10, TENSORRT_11])
def test_weights_have_the_steps_that_the_network_states(target: str, tmp_path: Path) -> None:
    """One for all output channels: with TensorRT 11 it counts; before, a channel whose largest is 90 has finer ones.

    Twice a weight of 1 is 2 steps then, where 1.41 is rounded to 1 of 90 / 127 steps, twice of which is 1.42.
    """
    integers = np.array([1, 90, -64, 5], np.int8).reshape(2, 2, 1, 1)
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], "d"),
        node("DequantizeLinear", ["w", "t"], "v"),
        node("Conv", ["d", "v"], "c"),
        node("QuantizeLinear", ["c", "u", "z"], "e"),
        node("DequantizeLinear", ["e", "u", "z"], "y"),
    ]
    steps = {"s": np.float32(1.0), "t": np.float32(0.37), "u": np.float32(0.37), "z": np.int8(0)}
    path = tmp_path / "qdq.onnx"
    onnx.save(network(nodes, {"x": (1, 2, 1, 1)}, ["y"], {**steps, "w": integers}), path)
    x = np.array([2, 0], np.float32).reshape(1, 2, 1, 1)
    np.savez(tmp_path / "x.npz", x=x)
    clean, scales = strip_qdq(load(path))
    typed = Typed() if target == TENSORRT_11 else None
    found = emulate(clean, {"Conv_c": Arithmetic.INT8}, scales, typed=typed)
    name = found.tensors["y"].output
    results = Runner(found.model).run({"x": x})[name].reshape(-1)
    np.testing.assert_array_equal(results, [2 if typed else 1, -128])
    assert emulated(path, tmp_path / "x.npz", target).int8 == 1


def paired(nodes: list[onnx.NodeProto], steps: dict[str, float]) -> onnx.ModelProto:
    """A network from `x` to `y` with pairs on these tensors."""
    model = load(network(nodes, {"x": (1, 4, 8, 8)}, ["y"]))
    return to_proto(insert_qdq(model, Scales({n: Scale(s, Origin.FILE) for n, s in steps.items()}))[0])


def test_pairs_say_their_own_scales_with_tensorrt_11(tmp_path: Path) -> None:
    """Before, the DLA wants one range around a pool, and the wider one is taken."""
    nodes = [node("Relu", ["x"], "r"), node("MaxPool", ["r"], "p", kernel_shape=[2, 2]), node("Relu", ["p"], "y")]
    proto = paired(nodes, {"x": 0.5, "r": 0.125, "p": 0.25, "y": 0.25})
    ranges = {
        target: rows_of(orinport.verify(proto, emulate="dla-int8", target=target))["r"].range
        for target in (TENSORRT_10, TENSORRT_11)
    }
    assert ranges == {TENSORRT_10: 0.25 * 127, TENSORRT_11: 0.125 * 127}
    with pytest.raises(OrinportError, match="what the network's Q/DQ layers say"):
        orinport.verify(proto, emulate="dla-int8", target=TENSORRT_11, ties="none")


def test_tensors_without_a_pair_stay_fp16_with_tensorrt_11() -> None:
    """The range of a Sigmoid is known; that nobody put a pair behind it is so all the same."""
    nodes = [node("Relu", ["x"], "r"), node("Sigmoid", ["r"], "s"), node("Sqrt", ["s"], "y")]
    report = orinport.verify(paired(nodes, {"x": 0.05, "r": 0.05}), emulate="dla-int8", target=TENSORRT_11)
    assert rows_of(report)["s"].range is None
    assert rows_of(report)["r"].range == pytest.approx(0.05 * 127)
    assert (report.int8, report.fp16) == (1, 2)


def test_scales_beside_a_bundle_with_scales_are_refused(tmp_path: Path, samples: Path) -> None:
    steps = {**STEPS, "y": 2.0**-4}
    folder = bundle(small_cnn(), TENSORRT_11, tmp_path, steps)
    with pytest.raises(OrinportError, match="scales of its own"):
        emulated(folder, samples, TENSORRT_11, scales=scales_file(tmp_path, steps))


def test_inputs_come_in_fp16() -> None:
    """0.99995 is less than half a step, and 1 in FP16, which is half a step and rounds away from zero."""
    proto = network([node("Relu", ["x"], "y")], {"x": (1, 1)}, ["y"])
    scales = Scales({name: Scale(2.0, Origin.QDQ) for name in ("x", "y")})
    x = np.array([[0.99995]], np.float32)
    for typed, wanted in ((None, 0.0), (Typed(), 1.0), (Typed(frozenset({"x"})), 0.0)):
        found = emulate(load(proto), {"Relu_y": Arithmetic.INT8}, scales, typed=typed)
        assert Runner(found.model).run({"x": x})[found.tensors["y"].output].item() == wanted


def test_a_users_network_in_fp16_is_the_network_in_fp32(tmp_path: Path, samples: Path) -> None:
    """Before TensorRT 11 types are free: what FP16 holds exactly is emulated alike, with a cache and in FP16."""
    plain, half = tmp_path / "plain.onnx", tmp_path / "half.onnx"
    onnx.save(on_a_grid(small_cnn()), plain)
    save(to_half(load(plain))[0], half)
    assert load(half).inputs[0].dtype.value == "fp16"
    given = {"scales": scales_file(tmp_path, {**STEPS, "f1": 2.0**-3, "y": 2.0**-4})}
    for kind, more in (("dla-int8", given), ("dla-fp16", {})):
        first, second = (emulated(path, samples, TENSORRT_10, kind, **more) for path in (plain, half))
        assert first.rows == second.rows
        assert (first.int8, first.fp16, first.fp32) == (second.int8, second.fp16, second.fp32)


def test_a_users_network_with_qdq_in_fp16(tmp_path: Path, samples: Path) -> None:
    """As ModelOpt writes it: FP16 tensors, pairs and scales; it is taken on either target."""
    steps = {**STEPS, "f1": 2.0**-3, "y": 2.0**-4}
    scales = Scales({name: Scale(step, Origin.FILE) for name, step in steps.items()})
    half, single = tmp_path / "half.onnx", tmp_path / "single.onnx"
    model = load(on_a_grid(small_cnn()))
    save(insert_qdq(to_half(model)[0], scales)[0], half)
    save(insert_qdq(model, scales)[0], single)
    for target in (TENSORRT_10, TENSORRT_11):
        first, second = (emulated(path, samples, target) for path in (half, single))
        assert first.int8 == second.int8 > 4
        assert first.rows == second.rows


def test_what_is_fp32_among_fp16_stays_fp32_with_tensorrt_11(tmp_path: Path) -> None:
    """There types decide; before, the DLA's precision does."""
    nodes = [
        node("Conv", ["x", "w"], "a"),
        node("Cast", ["a"], "b", to=TensorProto.FLOAT),
        node("Mul", ["b", "b"], "c"),
        node("Cast", ["c"], "d", to=TensorProto.FLOAT16),
        node("Relu", ["d"], "y"),
    ]
    weights = {"w": np.full((4, 4, 1, 1), 0.3, np.float16)}
    path = tmp_path / "mixed.onnx"
    onnx.save(network(nodes, {"x": ((1, 4, 4, 4), np.float16)}, ["y"], weights), path)
    strong = orinport.verify(path, emulate="dla-fp16", target=TENSORRT_11)
    found = {row.node: row.arithmetic for row in strong.rows}
    assert found["Mul_c"] is found["Cast_b"] is Arithmetic.FP32
    assert found["Conv_a"] is found["Relu_y"] is Arithmetic.FP16


# ---------------------------------------------------------------------------------------------- against the original


def spread(seed: int = 0, size: int = 16) -> onnx.ModelProto:
    """Three convolutions; the weights of the second spread over a range that one scale an output channel is bad for."""
    rng = np.random.default_rng(seed)
    nodes, constants, before = [], {}, "x"
    for index in range(3):
        weights = rng.normal(0, 0.3, (8, 3 if index == 0 else 8, 3, 3)).astype(np.float32)
        if index == 1:
            weights[:, 0, 0, 0] = 60.0
        constants[f"w{index}"] = weights
        nodes.append(node("Conv", [before, f"w{index}"], f"c{index}", pads=[1, 1, 1, 1]))
        nodes.append(node("Relu", [f"c{index}"], f"r{index}"))
        before = f"r{index}"
    return network(nodes, {"x": (1, 3, size, size)}, [before], constants)


@pytest.fixture
def uneven(tmp_path: Path, samples: Path) -> Path:
    """The file of that network, with a bundle for either TensorRT beside it."""
    path = tmp_path / "uneven.onnx"
    onnx.save(spread(), path)
    report = orinport.quantize(path, data=samples, target=TENSORRT_10, calibration=CalibrationOptions(method="min-max"))
    steps = {name: scale.value for name, scale in report.scales.tensors.items()}
    for target in (TENSORRT_10, TENSORRT_11):
        bundle(spread(), target, tmp_path, steps)
    return path


def test_against_the_original_both_bundles_measure_the_same(uneven: Path, samples: Path) -> None:
    """Weights, scales and inputs of the one are rounded to FP16 first: what that adds is far below what INT8 costs."""
    first, second = (
        rows_of(emulated(uneven, samples, target, candidate=uneven.parent / target.rpartition("/")[2]))
        for target in (TENSORRT_10, TENSORRT_11)
    )
    alone = rows_of(emulated(uneven.parent / "jp7.2", samples, TENSORRT_10))
    assert first == alone
    assert first.keys() == second.keys()
    for name, row in first.items():
        assert second[name].snr_db == pytest.approx(row.snr_db, abs=0.7), name
        assert second[name].range == pytest.approx(row.range, rel=2.0**-11), name
        assert second[name].arithmetic is row.arithmetic


def test_without_the_original_what_rounding_weights_costs_is_not_seen_and_said(uneven: Path, samples: Path) -> None:
    folder = uneven.parent / "jp7.2.2"
    alone = emulated(folder, samples, TENSORRT_11)
    beside = emulated(uneven, samples, TENSORRT_11, candidate=folder)
    assert rows_of(alone)["r1"].snr_db > rows_of(beside)["r1"].snr_db + 3
    assert alone.stored is Precision.INT8
    assert "what their rounding costs is not in the figures" in " ".join(emulation_text(alone).split())
    assert (beside.stored, beside.reference) == (None, "uneven.onnx")
    assert "against uneven.onnx in fp32" in emulation_text(beside)
    assert emulation_document(beside)["reference"] == "uneven.onnx"
    assert emulation_document(alone)["stored"] == "int8"


def test_the_ranking_has_the_weights_back(uneven: Path, samples: Path) -> None:
    """The layer whose weights INT8 cannot hold comes first; without the original, rounded weights gain nothing."""
    folder = uneven.parent / "jp7.2.2"
    beside = emulated(uneven, samples, TENSORRT_11, candidate=folder, rank=True).ranking
    ten = emulated(uneven.parent / "jp7.2", samples, TENSORRT_10, rank=True).ranking
    alone = emulated(folder, samples, TENSORRT_11, rank=True).ranking
    assert beside[0].layer == ten[0].layer == "Conv_c1"
    assert beside[0].gain_db == pytest.approx(ten[0].gain_db, abs=0.7)
    assert next(each.gain_db for each in alone if each.layer == "Conv_c1") < beside[0].gain_db - 1


def test_a_bundle_brings_its_target(uneven: Path, samples: Path) -> None:
    for target in (TENSORRT_10, TENSORRT_11):
        folder = uneven.parent / target.rpartition("/")[2]
        report = orinport.verify(folder, emulate="dla-int8", data=samples)
        assert report.target.name == target


def test_int8_bundles_in_fp16(uneven: Path, samples: Path) -> None:
    """The same network without its Q/DQ layers; with the original at hand, with its own weights."""
    folder = uneven.parent / "jp7.2.2"
    alone = emulated(folder, samples, TENSORRT_11, "dla-fp16")
    beside = emulated(uneven, samples, TENSORRT_11, "dla-fp16", candidate=folder)
    assert alone.int8 == beside.int8 == 0
    assert alone.fp16 == beside.fp16 == 6
    assert beside.rows == emulated(uneven.parent / "jp7.2", samples, TENSORRT_10, "dla-fp16").rows
    assert beside.rows != alone.rows


def test_edges_tails_and_consent_are_prepared_again(tmp_path: Path) -> None:
    """What was asked of `prepare` stands in the bundle, and the original is rewritten so again."""
    nodes = [
        node("Conv", ["x", "w"], "a"),
        node("Gelu", ["a"], "g"),
        node("Reshape", ["g", "s"], "r"),
        node("Atan", ["r"], "y"),
    ]
    constants = {
        "w": np.random.default_rng(0).normal(0, 0.3, (4, 4, 1, 1)).astype(np.float32),
        "s": np.array([1, 64], np.int64),
    }
    proto = network(nodes, {"x": ("n", 4, 4, 4)}, ["y"], constants, opset=20)
    plain, folder = tmp_path / "plain.onnx", tmp_path / "bundle"
    onnx.save(proto, plain)
    report = orinport.prepare(
        plain,
        target=TENSORRT_11,
        output=folder,
        cut_tail=True,
        consent=(Safety.EXACT, Safety.TOLERANCE),
        shapes="x:1x4x4x4",
    )
    assert report.tail is not None
    assert report.rewriting == Rewriting(False, False, True, (Safety.EXACT, Safety.TOLERANCE))
    found = orinport.verify(plain, folder, emulate="dla-fp16")
    assert found.good
    assert found.output_rows
    assert len(found.rows) == len(orinport.verify(folder, emulate="dla-fp16").rows)


def test_another_network_is_not_the_original(uneven: Path, samples: Path, tmp_path: Path) -> None:
    other, wide = tmp_path / "other.onnx", tmp_path / "wide.onnx"
    onnx.save(spread(seed=1), other)
    onnx.save(spread(size=32), wide)
    for target in (TENSORRT_10, TENSORRT_11):
        folder = uneven.parent / target.rpartition("/")[2]
        with pytest.raises(OrinportError, match=r"'other.onnx' is not what the bundle was prepared from"):
            emulated(other, samples, target, candidate=folder)
        with pytest.raises(OrinportError, match=r"'wide.onnx' has no tensor 'x' of shape"):
            emulated(wide, samples, target, candidate=folder)


def test_a_bundle_that_does_not_say_how_it_was_made(uneven: Path, samples: Path) -> None:
    folder = uneven.parent / "jp7.2.2"
    document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    del document["rewriting"]
    (folder / "report.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(OrinportError, match="does not say how its network was rewritten"):
        emulated(uneven, samples, TENSORRT_11, candidate=folder)
    assert emulated(folder, samples, TENSORRT_11).rows
    document["rewriting"] = {"standalone": False, "keep_io": False, "cut_tail": False, "consent": ["all"]}
    (folder / "report.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(OrinportError, match="not the report of a bundle"):
        emulated(uneven, samples, TENSORRT_11, candidate=folder)


def test_a_users_qdq_network_against_the_one_before(uneven: Path, samples: Path, tmp_path: Path) -> None:
    """The tensors that both have are compared, and weights that are roundings of the other's are ranked with them."""
    document = json.loads((uneven.parent / "jp7.2" / "scales.json").read_text(encoding="utf-8"))
    steps = {name: each["scale"] for name, each in document["tensors"].items()}
    quantised = tmp_path / "quantised.onnx"
    save(insert_qdq(load(uneven), Scales({n: Scale(s, Origin.FILE) for n, s in steps.items()}))[0], quantised)
    report = emulated(uneven, samples, TENSORRT_10, candidate=quantised, ties="none")
    cached = emulated(uneven, samples, TENSORRT_10, scales=scales_file(tmp_path, steps), ties="none")
    assert {row.name for row in report.rows} == {row.name for row in cached.rows}
    for name, row in rows_of(report).items():
        assert row.snr_db == pytest.approx(rows_of(cached)[name].snr_db, abs=0.3), name


def test_the_command_takes_both(uneven: Path, samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["verify", str(uneven), str(uneven.parent / "jp7.2.2"), "--as", "dla-int8", "--data", str(samples)]
    assert main([*call, "--min-snr", "0", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["reference"] == "uneven.onnx"
    assert document["target"] == TENSORRT_11
    assert document["stored"] is None
    with pytest.raises(OrinportError, match="A target is for an emulation"):
        orinport.verify(uneven, uneven, target=TENSORRT_10)


@pytest.mark.parametrize("dtype", [np.float64, ml_dtypes.bfloat16])
def test_other_types_are_refused(dtype: Any) -> None:
    proto = network([node("Relu", ["x"], "y")], {"x": ((1, 4), dtype)}, ["y"])
    with pytest.raises(OrinportError, match="FP32 and FP16"):
        orinport.verify(proto, emulate="dla-fp16", target=TENSORRT_11)


def test_networks_with_dcnv4_run_in_the_operators_portable_form() -> None:
    """The DLA has no such operator; what is around it is emulated all the same."""
    for target in (TENSORRT_10, TENSORRT_11):
        report = orinport.verify(Writer(Guise(batch=1)).network(), emulate="dla-fp16", target=target, cases=1)
        assert report.good
        assert report.fp16 > 2
        assert all(np.isfinite(row.snr_db) for row in report.output_rows)
