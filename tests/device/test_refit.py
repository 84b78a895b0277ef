"""Constants fitted to a board's measurement. The measurements are computed here from constants that are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import orinport
from orinport.cli import main
from orinport.device.measured import MeasuredLayer, Measurement
from orinport.errors import OrinportError
from orinport.measuring import Build, refit
from orinport.predict.constants import EQUAL, load_constants
from orinport.targets import load_target
from orinport.targets.target import Confidence, Figure, Profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orinport.measuring import Refit
    from orinport.targets.target import Target

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
TARGET = "orin-agx-64gb/jp6.0"
KNOWN = {"mac_efficiency": 0.8, "dram_gbps": 40.0}


def known(**constants: float) -> Target:
    """The target with other constants of the DLA, as a board might have them."""
    equal = {other: value for key, value in constants.items() for other in EQUAL.get(key, ())}
    figures = {key: Figure(value, "", "test", Confidence.OBSERVED) for key, value in {**equal, **constants}.items()}
    return replace(load_target(TARGET), profile=Profile("known", {"orin-dla": figures}))


def statistics(
    model: Path, target: Target, noise: float = 0.0, gap: float = 0.9, precision: str = "int8"
) -> Measurement:
    """What the layer statistics of a board with these constants would hold."""
    rng = np.random.default_rng(0)
    assert target.profile is not None
    own = target.profile.constants["orin-dla"]
    without = {key: Figure(1e-9, "", "test", Confidence.OBSERVED) for key in ("gap_us", "falcon_gap_us")}
    bare = replace(target, profile=Profile("bare", {"orin-dla": {**own, **without}}))
    prediction = orinport.predict(model, target=bare, precision=precision)
    layers, at = [], 4.6
    for each in prediction.layers:
        if each.us > 1e-6 and each.device == "dla":
            riding = [layer for layer in prediction.layers if layer.fused_into == each.layer.name]
            name = " + ".join(layer.layer.name for layer in (each, *riding))
            us = each.us * float(np.exp(rng.normal(0, noise)))
            layers.append(MeasuredLayer(name, us, at, at + us))
            at += us + gap
    return Measurement("cudla statistics", tuple(layers), 1)


def write_statistics(path: Path, measurement: Measurement) -> Path:
    lines = ["layer_name,start_ms,end_ms"]
    for each in measurement.layers:
        assert each.start_us is not None
        assert each.end_us is not None
        lines.append(f"'{each.name}',{each.start_us / 1e3:.9f},{each.end_us / 1e3:.9f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def values(fitted: Refit) -> dict[str, float]:
    return {each.key: each.after for each in fitted.constants}


def convolutions(path: Path, number: int = 5, size: int = 64) -> Path:
    """A chain of 3x3 convolutions from 64 to 64 channels."""
    nodes, weights = [], []
    for i in range(number):
        weights.append(helper.make_tensor(f"w{i}", TensorProto.FLOAT, [64, 64, 3, 3], [0.01] * (64 * 64 * 9)))
        given, made = ("x" if i == 0 else f"t{i - 1}"), ("y" if i == number - 1 else f"t{i}")
        nodes.append(helper.make_node("Conv", [given, f"w{i}"], [made], name=f"conv{i}", pads=[1, 1, 1, 1]))
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64, size, size]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_efficiency_and_gap_by_hand(tmp_path: Path) -> None:
    """A 3x3 convolution of 64 to 64 channels at 64x64 positions is 9 * 64 * 64 = 36864 atomic operations.

    Two pipelines at 1600 MHz do them in 11.52 us; a board that needs 14.4 us has an efficiency of 0.8.
    """
    starts = [4.6 + i * (14.4 + 0.9) for i in range(5)]
    layers = tuple(MeasuredLayer(f"conv{i}", 14.4, start, start + 14.4) for i, start in enumerate(starts))
    fitted = refit(convolutions(tmp_path / "n.onnx"), Measurement("cudla statistics", layers, 1), Build(TARGET))
    assert values(fitted) == pytest.approx({"mac_efficiency": 0.8, "gap_us": 0.9}, rel=1e-4)
    assert [row.measured_us for row in fitted.rows] == [14.4] * 5
    assert [row.after_us for row in fitted.rows] == pytest.approx([14.4] * 5, rel=1e-4)
    assert fitted.errors(after=True) == pytest.approx((0, 0), abs=1e-4)
    assert (fitted.met, fitted.holds) == (1.0, True)
    refused = {each.name.partition(".")[2]: each.reason for each in fitted.refused}
    assert refused["dram_gbps"].startswith("0 of 5 measured times depend on it")
    assert refused["rubik_fp16_ghz"].startswith("0 of 5")
    assert refused["falcon_gap_us"] == "layer statistics do not show it"


@pytest.mark.parametrize(
    ("name", "constants"),
    [
        ("resnet50", KNOWN),
        ("inception_v2", KNOWN),
        ("shufflenet", {"mac_efficiency": 0.6, "dram_gbps": 90.0}),
    ],
)
def test_constants_of_a_real_network_come_back(name: str, constants: dict[str, float]) -> None:
    model = LIGHT / f"light_{name}.onnx"
    fitted = refit(model, statistics(model, known(**constants)), Build(TARGET))
    found = values(fitted)
    assert {key: found[key] for key in constants} == pytest.approx(constants, rel=1e-3)
    assert found["gap_us"] == pytest.approx(0.9, rel=1e-6)
    assert fitted.errors(after=True)[1] < 0.01 < fitted.errors(after=False)[1]


def test_noise_moves_the_constants_no_farther_than_they_say() -> None:
    model = LIGHT / "light_inception_v2.onnx"
    fitted = refit(model, statistics(model, known(**KNOWN), noise=0.05), Build(TARGET))
    assert set(KNOWN) < set(values(fitted))
    for each in fitted.constants:
        if each.key in KNOWN:
            assert 0.001 < each.relative_error < 0.1, each
            assert abs(each.after / KNOWN[each.key] - 1) < 3 * each.relative_error, each
    mean, worst = fitted.errors(after=True)
    assert 0.02 < mean < 0.08
    assert worst < 0.25


def test_fp16_convolutions_give_the_rate_of_their_engine(tmp_path: Path) -> None:
    model = convolutions(tmp_path / "n.onnx", number=6)
    measurement = statistics(model, known(rubik_fp16_ghz=1.2), precision="fp16")
    fitted = refit(model, measurement, Build(TARGET, "fp16"))
    assert values(fitted)["rubik_fp16_ghz"] == pytest.approx(1.2, rel=0.01)
    assert "mac_efficiency" not in values(fitted)


def test_a_measurement_that_says_nothing_is_refused(tmp_path: Path) -> None:
    model = convolutions(tmp_path / "n.onnx", number=2)
    with pytest.raises(OrinportError, match="determines none of the constants") as caught:
        refit(model, statistics(model, known(**KNOWN)), Build(TARGET))
    assert "mac_efficiency: 2 of 2 measured times depend on it, 3 are needed" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_board_faster_than_the_hardware_is_refused(tmp_path: Path) -> None:
    model = convolutions(tmp_path / "n.onnx")
    fast = statistics(model, known(mac_efficiency=2.0))
    fitted = refit(model, fast, Build(TARGET))
    reasons = {each.name: each.reason for each in fitted.refused}
    assert "more than 1 is not possible: are the clocks right?" in reasons["orin-dla.mac_efficiency"]


def profile_of(model: Path, target: Target, gpu: Mapping[str, float]) -> Measurement:
    """What trtexec's profile of a board with these constants would hold: one row for a region, one for a GPU layer."""
    own = {key: Figure(value, "", "test", Confidence.OBSERVED) for key, value in gpu.items()}
    profile = Profile("known", {**(target.profile.constants if target.profile else {}), "orin-gpu": own})
    prediction = orinport.predict(model, target=replace(target, profile=profile))
    layers = []
    for region in prediction.regions:
        if region.device == "dla":
            name = f"{{ForeignNode[{region.layers[0].layer.name}...{region.layers[-1].layer.name}]}}"
            layers.append(MeasuredLayer(name, region.us - region.reformat_us))
        else:
            layers += [MeasuredLayer(each.layer.name, each.us) for each in region.layers if each.us]
    return Measurement("trtexec profile", tuple(layers), 100)


def test_a_profile_of_trtexec_gives_the_gpus_constants() -> None:
    model = LIGHT / "light_shufflenet.onnx"
    target = load_target(TARGET)
    fitted = refit(model, profile_of(model, target, {"memory_efficiency": 0.4, "launch_us": 9.0}), Build(target))
    found = {each.key: each.after for each in fitted.constants if each.model == "orin-gpu"}
    assert found["launch_us"] == pytest.approx(9.0, rel=0.05)
    assert all(reason.reason for reason in fitted.refused)


def test_rows_that_two_lines_claim_are_left_out(tmp_path: Path) -> None:
    model = convolutions(tmp_path / "n.onnx", number=6)
    layers = statistics(model, known(**KNOWN)).layers
    other = (replace(layers[0], name="conv1 + conv2"), replace(layers[0], name="conv2 + conv3"))
    rows = (layers[0], *other, *layers[4:], replace(layers[0], name="?"))
    fitted = refit(model, Measurement("cudla statistics", rows, 1), Build(TARGET))
    assert {each.name: each.reason for each in fitted.left_out} == {
        "conv1 + conv2": "its layers are part of another row too",
        "conv2 + conv3": "its layers are part of another row too",
        "?": "it stands for no layer of the network",
    }


def test_command_writes_a_profile_that_is_a_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = LIGHT / "light_resnet50.onnx"
    measured = write_statistics(tmp_path / "s.csv", statistics(model, known(**KNOWN)))
    own = tmp_path / "board.toml"
    assert main(["profile", str(model), str(measured), "-t", TARGET, "--refit", str(own)]) == 0
    out, err = capsys.readouterr()
    assert "mac_efficiency" in out
    assert "falcon_gap_us" in out
    assert str(own) in err
    target = load_target(str(own))
    assert (target.name, target.power_mode.name) == (TARGET, "MAXN")
    assert target.profile is not None
    assert target.profile.constants["orin-dla"]["mac_efficiency"].value == pytest.approx(0.8, rel=1e-3)
    for command in (
        ["check", str(model), "-t", str(own)],
        ["predict", str(model), "-t", str(own), "--rows", "1"],
        ["predict", str(model), "-t", str(own), "--power-mode", "30W", "--optimize"],
        ["matmul", "64", "64", "64", "-t", str(own)],
        ["targets", str(own)],
    ):
        assert main(command) in (0, 1), command
    text = capsys.readouterr().out
    assert "with the constants of board.toml" in text
    assert "s.csv (cudla statistics)" in text
    assert main(["profile", str(model), str(measured), "-t", str(own), "-f", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["profile"] == "board.toml"
    for row in document["rows"]:
        assert row["predicted_us"] == pytest.approx(row["measured_us"], rel=0.02)


def test_the_same_in_python(tmp_path: Path) -> None:
    model = convolutions(tmp_path / "n.onnx")
    measured = write_statistics(tmp_path / "s.csv", statistics(model, known(mac_efficiency=0.7)))
    fitted = orinport.refit(model, measured, target=TARGET)
    assert values(fitted)["mac_efficiency"] == pytest.approx(0.7, rel=1e-3)
    rows = orinport.profile(model, measured, target=TARGET).rows
    assert [row.name for row in rows] == [f"conv{i}" for i in range(5)]
    assert all(row.predicted_us is not None and row.predicted_us < row.measured_us for row in rows)


def test_a_second_refit_keeps_what_the_first_found(tmp_path: Path) -> None:
    model = convolutions(tmp_path / "n.onnx", number=6)
    first = write_statistics(tmp_path / "int8.csv", statistics(model, known(mac_efficiency=0.7)))
    second = write_statistics(tmp_path / "fp16.csv", statistics(model, known(rubik_fp16_ghz=1.2), precision="fp16"))
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    assert main(["profile", str(model), str(first), "-t", TARGET, "--refit", str(one)]) == 0
    assert main(["profile", str(model), str(second), "-t", str(one), "-p", "fp16", "--refit", str(two)]) == 0
    profile = load_target(str(two)).profile
    assert profile is not None
    assert profile.constants["orin-dla"]["mac_efficiency"].value == pytest.approx(0.7, rel=1e-3)
    assert profile.constants["orin-dla"]["rubik_fp16_ghz"].value == pytest.approx(1.2, rel=0.01)
    assert "int8.csv" in profile.constants["orin-dla"]["mac_efficiency"].source


def test_nothing_is_written_where_nothing_is_found_and_no_input_is_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = convolutions(tmp_path / "n.onnx", number=2)
    measured = write_statistics(tmp_path / "s.csv", statistics(model, known(**KNOWN)))
    before = sorted(tmp_path.iterdir())
    assert main(["profile", str(model), str(measured), "-t", TARGET, "--refit", str(tmp_path / "own.toml")]) == 2
    assert "determines none" in capsys.readouterr().err
    assert main(["profile", str(model), str(measured), "--refit", str(tmp_path / "own.json")]) == 2
    assert "end in .toml" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
    given = tmp_path / "given.toml"
    given.write_text(f'target = "{TARGET}"\n[orin-dla.gap_us]\nvalue = 1\n')
    assert main(["profile", str(model), str(measured), "-t", str(given), "--refit", str(given)]) == 2
    assert "never changed" in capsys.readouterr().err


def test_a_profile_that_does_not_meet_its_measurement_is_not_written_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another clock than that of the power mode: only the gap is determined, and no row is met."""
    model = convolutions(tmp_path / "n.onnx")
    fast = tuple(
        MeasuredLayer(f"conv{i}", 1.0, start, start + 1.0) for i, start in enumerate(4.6 + 1.9 * i for i in range(5))
    )
    measured = write_statistics(tmp_path / "s.csv", Measurement("cudla statistics", fast, 1))
    own = tmp_path / "own.toml"
    arguments = ["profile", str(model), str(measured), "-t", TARGET, "--refit", str(own)]
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert "0 % of the measured time lie in the bands" in out
    assert "no profile is written: with these constants 100 % of the measured time" in err
    assert not own.exists()
    assert main([*arguments, "-f", "json"]) == 1
    document = json.loads(capsys.readouterr().out)["refit"]
    assert (document["met"], document["holds"]) == (0.0, False)
    assert main([*arguments, "--refit-anyway"]) == 0
    assert "NOT TO BE RELIED ON" in own.read_text()
    assert load_target(str(own)).profile is not None


def test_constants_that_ship_are_not_touched(tmp_path: Path) -> None:
    before = load_constants("orin-dla")["mac_efficiency"]
    orinport.predict(convolutions(tmp_path / "n.onnx"), target=known(mac_efficiency=0.5))
    assert load_constants("orin-dla")["mac_efficiency"] == before


def test_a_board_faster_than_its_pipelines_names_the_clocks() -> None:
    model = LIGHT / "light_resnet50.onnx"
    layers = statistics(model, known(**KNOWN)).layers
    fast = tuple(replace(each, us=each.us / 100) for each in layers)
    fitted = refit(model, Measurement("cudla statistics", fast, 1), Build(TARGET))
    reasons = {each.name.partition(".")[2]: each.reason for each in fitted.refused}
    assert "are the clocks right?" in reasons["mac_efficiency"]


@pytest.mark.parametrize("number", ["1e308", "1e13", "-1", "nan"])
def test_times_that_cannot_be_are_refused(tmp_path: Path, number: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "s.csv"
    table.write_text(f"layer_name,start_ms,end_ms\n'conv0',0,{number}\n")
    profile = tmp_path / "p.toml"
    assert main(["profile", str(convolutions(tmp_path / "n.onnx")), str(table), "--refit", str(profile)]) == 2
    assert "where a time belongs" in capsys.readouterr().err
    assert not profile.exists()
