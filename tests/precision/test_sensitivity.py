"""Measuring an emulation, ranking layers, and `verify --as` from end to end."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import pytest

import orinport
from builders import network, node, small_cnn
from orinport.cli import main
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.precision.emulate import Arithmetic, emulate
from orinport.precision.emulate_measure import TensorRow, measure
from orinport.precision.scales import Origin, Scale, Scales
from orinport.precision.sensitivity import candidates
from orinport.report.emulate import emulation_document, emulation_text

TARGET = "orin-agx-64gb/jp6.2"


def rows_of(proto: onnx.ModelProto, steps: dict[str, float], *feeds: dict[str, np.ndarray]) -> dict[str, TensorRow]:
    model = load(proto)
    kinds = {each.name: Arithmetic.INT8 for each in proto.graph.node if steps}
    scales = Scales({name: Scale(step, Origin.DATA) for name, step in steps.items()})
    return {row.name: row for row in measure(model, emulate(model, kinds, scales), feeds)}


def relu(*values: float) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    x = np.array(values, np.float32).reshape(1, -1)
    return network([node("Relu", ["x"], "y")], {"x": x.shape}, ["y"]), {"x": x}


def test_figures_by_hand() -> None:
    proto, feeds = relu(1.0, 2.4, 200.0, 0.3)
    row = rows_of(proto, {"x": 1.0, "y": 1.0}, feeds)["y"]
    noise = 0.4**2 + 73**2 + 0.3**2
    signal = 1 + 2.4**2 + 200**2 + 0.3**2
    assert row.snr_db == pytest.approx(10 * np.log10(signal / noise), rel=1e-5)
    assert row.cosine == pytest.approx((1 + 4.8 + 200 * 127) / np.sqrt(signal * (1 + 4 + 127**2)), rel=1e-6)
    assert row.max_abs == 73
    assert row.largest == 200
    assert row.range == 127
    assert row.used == pytest.approx(200 / 127)
    assert row.saturated == 0.25
    assert row.vanished == 0.25


def test_figures_add_up_over_samples() -> None:
    proto, first = relu(1.0, 2.0)
    _, second = relu(0.0, 300.0)
    row = rows_of(proto, {"x": 1.0, "y": 1.0}, first, second)["y"]
    assert row.saturated == 0.25
    assert row.max_abs == 173


def test_zeros_are_equal() -> None:
    proto, feeds = relu(0.0, 0.0)
    row = rows_of(proto, {"x": 1.0, "y": 1.0}, feeds)["y"]
    assert (row.snr_db, row.cosine, row.saturated, row.vanished) == (inf, 1.0, 0.0, 0.0)


def test_nan_in_fp32_is_counted_and_left_out() -> None:
    x = np.array([[0.0, 4.0]], np.float32)
    proto = network([node("Div", ["x", "x"], "q"), node("Relu", ["q"], "y")], {"x": x.shape}, ["y"])
    row = rows_of(proto, {"x": 1.0, "q": 0.5, "y": 0.5}, {"x": x})["q"]
    assert row.nonfinite == 1
    assert row.snr_db == inf


def test_an_overflow_of_fp16_breaks_a_tensor() -> None:
    x = np.array([[60000.0, 1.0]], np.float32)
    proto = network([node("Add", ["x", "x"], "y")], {"x": x.shape}, ["y"])
    model = load(proto)
    row = measure(model, emulate(model, {"Add_y": Arithmetic.FP16}, Scales({})), [{"x": x}])[-1]
    assert row.broken == 1
    assert row.snr_db == -inf
    assert row.saturated == 0.5


# ---------------------------------------------------------------------------------------------- ranking


def uneven(seed: int = 0) -> onnx.ModelProto:
    """Three convolutions with ReLU; the weights of the second spread over a range that INT8 does not cover."""
    rng = np.random.default_rng(seed)
    nodes, constants, before = [], {}, "x"
    for index in range(3):
        weights = rng.normal(0, 0.3, (8, 3 if index == 0 else 8, 3, 3)).astype(np.float32)
        if index == 1:
            weights[:, 0, 0, 0] = 60.0
            constants["b1"] = np.zeros(8, np.float32)
        constants[f"w{index}"] = weights
        nodes.append(node("Conv", [before, f"w{index}"], f"c{index}", pads=[1, 1, 1, 1]))
        nodes.append(node("Relu", [f"c{index}"], f"r{index}"))
        before = f"r{index}"
    del constants["b1"]
    return network(nodes, {"x": (1, 3, 12, 12)}, [before], constants)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> MappingProxyType[str, Path]:
    """Networks, data, and the scales that data gives."""
    folder = tmp_path_factory.mktemp("emulated")
    rng = np.random.default_rng(3)
    paths = {"folder": folder}
    for name, proto in (("uneven", uneven()), ("small", small_cnn(size=12))):
        paths[name] = folder / f"{name}.onnx"
        onnx.save(proto, paths[name])
        paths[f"{name}-data"] = folder / f"{name}.npy"
        np.save(paths[f"{name}-data"], rng.normal(0, 1, (4, 3, 12, 12)).astype(np.float32))
        report = orinport.quantize(paths[name], data=paths[f"{name}-data"], target=TARGET)
        from orinport.quantization import write_scales

        paths[f"{name}-scales"] = folder / f"{name}.json"
        write_scales(report, paths[f"{name}-scales"])
    return MappingProxyType(paths)


def emulation(files: MappingProxyType[str, Path], name: str = "uneven", **options: Any) -> Any:
    given = {"scales": files[f"{name}-scales"], "data": files[f"{name}-data"], "target": TARGET, **options}
    return orinport.verify(files[name], emulate="dla-int8", **given)


def test_the_first_of_the_ranking_improves_the_network(files: MappingProxyType[str, Path]) -> None:
    """Set to FP16 by a run of its own, not by the one that ranked it."""
    from orinport.checking import as_target, check_model
    from orinport.precision.cache import read_scales
    from orinport.precision.emulate import arithmetic_of
    from orinport.precision.sensitivity import output_snr
    from orinport.targets.target import Precision

    report = emulation(files, rank=True)
    first = report.ranking[0]
    assert first.layer == "Conv_c1"
    assert set(first.nodes) == {"Conv_c1", "Relu_r1"}
    assert first.gain_db > 1
    model = load(files["uneven"])
    checked = check_model(model, as_target(TARGET), Precision.INT8)
    scales = read_scales(files["uneven-scales"])
    layers = [row.layer for row in checked.layers]
    kinds = arithmetic_of(layers, {layer.index for layer in layers}, scales)
    samples = [{"x": each[None]} for each in np.load(files["uneven-data"])[:3]]
    before = output_snr(model, kinds, scales, samples)
    after = output_snr(model, {**kinds, **dict.fromkeys(first.nodes, Arithmetic.FP16)}, scales, samples)
    assert after - before == pytest.approx(first.gain_db, abs=0.02)
    assert after == pytest.approx(first.snr_db, abs=0.02)


def test_what_prepare_puts_in_fp16_is_emulated_so(files: MappingProxyType[str, Path], tmp_path: Path) -> None:
    """The layers that the ranking names, given to `prepare --fp16`, gain in the bundle what was foretold."""
    options = {"precision": "int8", "target": TARGET, "scales": files["uneven-scales"]}
    orinport.prepare(files["uneven"], output=tmp_path / "plain", **options)
    verify = {"emulate": "dla-int8", "data": files["uneven-data"]}
    plain = orinport.verify(tmp_path / "plain", rank=True, **verify)
    first = plain.ranking[0]
    orinport.prepare(files["uneven"], output=tmp_path / "mixed", fp16=first.nodes, **options)
    mixed = orinport.verify(tmp_path / "mixed", **verify)
    assert (mixed.int8, mixed.fp16) == (plain.int8 - len(first.nodes), plain.fp16 + len(first.nodes))
    assert min(row.snr_db for row in mixed.output_rows) == pytest.approx(first.snr_db, abs=0.02)


def test_the_ranking_is_sorted_and_priced(files: MappingProxyType[str, Path]) -> None:
    ranking = emulation(files, rank=True).ranking
    gains = [each.gain_db for each in ranking]
    assert gains == sorted(gains, reverse=True)
    assert len(ranking) == 3
    assert all(each.extra_us is not None and each.extra_us > 0 for each in ranking)


def test_a_target_without_measurements_has_no_prices(files: MappingProxyType[str, Path]) -> None:
    ranking = emulation(files, rank=True, target="xavier-agx/jp5.1").ranking
    assert ranking
    assert all(each.extra_us is None for each in ranking)


def test_a_convolution_and_its_relu_are_one_candidate(files: MappingProxyType[str, Path]) -> None:
    from orinport.model.lower import lower
    from orinport.targets.version import Version

    layers = lower(load(files["small"]), tensorrt=Version.parse("10.3.0"))
    kinds = {name: Arithmetic.INT8 for layer in layers for name in layer.nodes}
    groups = [[layer.name for layer in group] for group in candidates(layers, kinds)]
    assert ["Conv_c1", "Relu_r1"] in groups
    assert ["Add_a1"] in groups


# ---------------------------------------------------------------------------------------------- verify --as


def test_a_good_network_is_good(files: MappingProxyType[str, Path]) -> None:
    report = emulation(files, "small")
    assert report.good
    assert report.first_wrong is None
    assert report.int8 >= 4
    assert [row.name for row in report.output_rows] == ["y"]
    assert 20 < report.output_rows[0].snr_db < 80


def test_a_scale_that_is_wrong_is_found(files: MappingProxyType[str, Path], tmp_path: Path) -> None:
    document = json.loads(files["uneven-scales"].read_text(encoding="utf-8"))
    document["tensors"]["r1"]["scale"] /= 1000
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(document), encoding="utf-8")
    report = emulation(files, scales=broken)
    assert not report.good
    assert report.first_wrong.name == "r1"
    assert report.first_wrong.saturated > 0.3
    text = emulation_text(report)
    assert "first tensor below 20 dB: r1 (Relu_r1, int8)" in text
    assert "beyond its range" in text
    assert "--rank" in text


def test_a_range_that_is_too_wide_is_told(files: MappingProxyType[str, Path], tmp_path: Path) -> None:
    document = json.loads(files["uneven-scales"].read_text(encoding="utf-8"))
    document["tensors"]["r1"]["scale"] *= 100
    wide = tmp_path / "wide.json"
    wide.write_text(json.dumps(document), encoding="utf-8")
    assert "1 tensor uses less than an eighth of the range, least r1" in emulation_text(emulation(files, scales=wide))


def test_every_report_says_what_is_not_known(files: MappingProxyType[str, Path]) -> None:
    for report in (
        emulation(files, data=None),
        orinport.verify(files["uneven"], emulate="dla-fp16", target=TARGET),
    ):
        assert "FP19" in emulation_text(report)
        assert "FP19" in emulation_document(report)["limits"]
        assert "Random inputs" in emulation_text(report)


def test_fp16_needs_no_scales_and_is_closer(files: MappingProxyType[str, Path]) -> None:
    report = orinport.verify(files["small"], emulate="dla-fp16", data=files["small-data"], target=TARGET)
    assert report.fp16 >= 4
    assert report.int8 == 0
    assert report.output_rows[0].snr_db > 60


def test_a_network_is_lowered_once(files: MappingProxyType[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """To find its scales and to say what runs where takes one check of it."""
    from orinport import checking

    seen: list[Any] = []
    plain = checking.check_model
    monkeypatch.setattr(checking, "check_model", lambda *given, **more: seen.append(given) or plain(*given, **more))
    for kind in ("dla-int8", "dla-fp16"):
        scales = {"scales": files["small-scales"]} if kind == "dla-int8" else {}
        report = orinport.verify(files["small"], emulate=kind, data=files["small-data"], target=TARGET, **scales)
        assert report.rows
    assert len(seen) == 2


def test_a_bundle_brings_its_scales(files: MappingProxyType[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    orinport.prepare(files["small"], output=folder, precision="int8", data=files["small-data"], target=TARGET)
    report = orinport.verify(folder, emulate="dla-int8", data=files["small-data"], target=TARGET)
    assert report.good
    assert report.fp32 == 0


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"emulate": "dla-int4"}, "cannot be emulated"),
        ({"emulate": "int8"}, "cannot be emulated"),
        ({"emulate": "dla-int8"}, "without scales"),
        ({}, "nothing to compare"),
        ({"candidate": "other.onnx", "scales": "scales.json"}, "for an emulation"),
    ],
)
def test_what_is_asked_for_wrongly(files: MappingProxyType[str, Path], options: dict[str, Any], match: str) -> None:
    with pytest.raises(OrinportError, match=match):
        orinport.verify(files["small"], **options)


def test_nan_in_the_data_is_refused(files: MappingProxyType[str, Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.npy"
    np.save(bad, np.full((1, 3, 12, 12), np.nan, np.float32))
    with pytest.raises(OrinportError, match="NaN"):
        emulation(files, "small", data=bad)


def test_the_command(files: MappingProxyType[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    call = ["verify", str(files["small"]), "--as", "dla-int8", "--scales", str(files["small-scales"])]
    assert main([*call, "--data", str(files["small-data"]), "--rank"]) == 0
    assert "worth FP16" in capsys.readouterr().out
    assert main([*call, "--min-snr", "90", "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["good"] is False
    assert document["nodes"]["int8"] >= 4
    assert {row["name"] for row in document["tensors"]} >= {"x", "r1", "y"}
    assert main([*call, "--tolerance", "0.1"]) == 2
    assert main(["verify", str(files["small"]), str(files["small"]), "--min-snr", "3"]) == 2
    assert main(["verify", str(files["small"]), str(files["small"])]) == 0


def test_a_range_that_is_the_largest_value_does_not_saturate() -> None:
    x = np.full((1, 4), 6.0, np.float32)
    proto = network([node("Relu", ["x"], "y")], {"x": x.shape}, ["y"])
    step = Scale.of_range(6.0, Origin.DATA).value
    row = rows_of(proto, {"x": step, "y": step}, {"x": x})["y"]
    assert row.saturated == 0
    assert row.snr_db > 100


def test_scores_that_vanish_beside_coordinates_are_told(tmp_path: Path) -> None:
    """One scale for a concatenation of large and small numbers: the ratio of the whole tensor looks fine."""
    nodes = [node("Relu", ["a"], "p"), node("Relu", ["b"], "q"), node("Concat", ["p", "q"], "y", axis=1)]
    path, scales, data = tmp_path / "head.onnx", tmp_path / "scales.json", tmp_path / "data.npz"
    onnx.save(network(nodes, {"a": (1, 4, 8, 8), "b": (1, 16, 8, 8)}, ["y"]), path)
    tensors = {"a": 2.5, "p": 2.5, "b": 0.008, "q": 0.008, "y": 2.5}
    scales.write_text(json.dumps({"tensors": tensors}), encoding="utf-8")
    rng = np.random.default_rng(0)
    feeds = {"a": rng.uniform(50, 320, (2, 4, 8, 8)), "b": rng.uniform(0.1, 1, (2, 16, 8, 8))}
    np.savez(data, **{name: array.astype(np.float32) for name, array in feeds.items()})
    report = orinport.verify(path, emulate="dla-int8", scales=scales, data=data, target=TARGET)
    row = report.output_rows[0]
    assert row.snr_db > 30
    assert row.vanished == pytest.approx(0.8)
    assert "80.0% of its values become zero" in emulation_text(report)
