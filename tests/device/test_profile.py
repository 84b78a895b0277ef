"""Measurements from a board: both formats by hand-computed values, fused names of real networks, damaged files."""

# ruff: noqa: E501 the files are as their programs write them

from __future__ import annotations

import json
import random
from math import isfinite
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import orinport
from orinport.cli import main
from orinport.device.compare import compare
from orinport.device.measured import Measurement, read_measurement, read_tegrastats, read_times
from orinport.errors import OrinportError

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
STATISTICS = """layer_name,start_ms,end_ms
'conv0 + relu1',0.004556,0.104556
'conv2',0.105276,0.305276
"""
LONG = """layer_name,start_ms,end_ms,net_duration_cpipes_ms,net_duration_rubik_ms,net_duration_bdma_ms,uses_sram
'conv0 + relu1',0.004,0.204,0.100,0.010,0.005,1
'conv2',0.100,0.300,0.150,0,0,0
"""
PROFILE = """[
  { "count" : 100 }
, { "name" : "Reformatting CopyNode for Input Tensor 0 to {ForeignNode[conv0...conv2]}", "timeMs" : 2.0, "averageMs" : 0.02, "medianMs" : 0.02, "percentage" : 4.0 }
, { "name" : "{ForeignNode[conv0...conv2]}", "timeMs" : 50.0, "averageMs" : 0.5, "medianMs" : 0.48, "percentage" : 96.0 }
]
"""


def network(path: Path) -> Path:
    """Two 3x3 convolutions 64 to 64 channels on a 32x32 map, a ReLU between."""
    values = [0.01] * (64 * 64 * 9)
    weights = [helper.make_tensor(name, TensorProto.FLOAT, [64, 64, 3, 3], values) for name in ("w", "v")]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu1"),
        helper.make_node("Conv", ["b", "v"], ["y"], name="conv2", pads=[1, 1, 1, 1]),
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64, 32, 32]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


MACS = 64 * 64 * 9 * 32 * 32


def test_statistics_with_the_short_columns(tmp_path: Path) -> None:
    prediction = orinport.predict(network(tmp_path / "n.onnx"), rewrite=False)
    comparison = compare(read_measurement(write(tmp_path / "s.csv", STATISTICS)), prediction)
    first, second = comparison.rows
    assert (first.name, first.layers, first.nodes) == ("conv0 + relu1", ("conv0", "relu1"), ("conv0", "relu1"))
    assert first.measured_us == pytest.approx(100.0)
    assert second.measured_us == pytest.approx(200.0)
    assert first.macs == second.macs == MACS
    assert first.mac_utilisation == pytest.approx(MACS / (8192 * 1600 * 100.0))
    assert second.mac_utilisation == pytest.approx(MACS / (8192 * 1600 * 200.0))
    assert first.gbps == pytest.approx(first.bytes / 100.0 / 1e3)
    assert first.bytes == 64 * 1024 + 64 * 64 * 9
    assert comparison.measurement.total_us == pytest.approx(305.276)
    assert comparison.measurement.gaps_us == pytest.approx(4.556 + 0.72)
    assert comparison.unmatched == ()


def test_statistics_with_the_long_columns_count_net_durations(tmp_path: Path) -> None:
    measured = read_measurement(write(tmp_path / "s.csv", LONG))
    assert [layer.us for layer in measured.layers] == pytest.approx([115.0, 150.0])
    assert measured.layers[0].net_us == pytest.approx((100.0, 10.0, 5.0))
    assert measured.total_us == pytest.approx(300.0)
    assert measured.gaps_us == pytest.approx(4.0)


def test_a_profile_of_trtexec_names_whole_regions(tmp_path: Path) -> None:
    prediction = orinport.predict(network(tmp_path / "n.onnx"), rewrite=False)
    comparison = compare(read_measurement(write(tmp_path / "p.json", PROFILE)), prediction)
    region = next(row for row in comparison.rows if row.measured_us == pytest.approx(480.0))
    assert region.layers == ("conv0", "relu1", "conv2")
    assert region.macs == 2 * MACS
    assert region.mac_utilisation == pytest.approx(2 * MACS / (8192 * 1600 * 480.0))
    assert comparison.measurement.runs == 100


def test_names_that_make_the_profile_no_json_are_read_all_the_same(tmp_path: Path) -> None:
    text = '[\n  { "count" : 7 }\n, { "name" : "say "hi" \\ there", "timeMs" : 7.0, "averageMs" : 1.0, "medianMs" : 1.5, "percentage" : 100 }\n]\n'
    measured = read_measurement(write(tmp_path / "p.json", text))
    assert measured.runs == 7
    assert [(layer.name, layer.us) for layer in measured.layers] == [('say "hi" \\ there', pytest.approx(1500.0))]


@pytest.mark.parametrize(
    "name",
    ["resnet50", "squeezenet", "inception_v1", "inception_v2", "densenet121", "shufflenet", "bvlc_alexnet", "zfnet512"],
)
def test_fused_names_of_real_networks_come_back_to_their_nodes(name: str) -> None:
    prediction = orinport.predict(LIGHT / f"light_{name}.onnx", rewrite=False)
    rng = random.Random(0)
    layers = prediction.layers
    for joint in (" + ", "+"):
        for _ in range(20):
            start = rng.randrange(len(layers) - 3)
            chosen = layers[start : start + 3]
            fused = joint.join(layer.layer.name for layer in chosen)
            row = compare(_measured(fused), prediction).rows[0]
            wanted = {node for layer in chosen for node in layer.layer.nodes}
            assert wanted <= set(row.nodes), fused
    for region in prediction.regions:
        first, last = region.layers[0].layer.name, region.layers[-1].layer.name
        row = compare(_measured(f"{{ForeignNode[{first}...{last}]}}"), prediction).rows[0]
        assert {layer.layer.name for layer in region.layers} <= set(row.layers)


def _measured(name: str):  # type: ignore[no-untyped-def]
    from orinport.device.measured import MeasuredLayer

    return Measurement("trtexec profile", (MeasuredLayer(name, 10.0),), 1)


def test_times_and_tegrastats(tmp_path: Path) -> None:
    entry = '{"latencyMs" : %s, "computeMs" : %s, "h2dMs" : 0.01, "d2hMs" : 0.02}'
    text = "[" + ",".join(entry % (1 + i, 0.5 + i) for i in range(3)) + "]"
    medians = read_times(write(tmp_path / "t.json", text))
    assert medians == {"runs": 3, "latency": 2000.0, "compute": 1500.0, "h2d": 10.0, "d2h": 20.0}
    line = (
        "RAM 5000/30536MB (lfb 1x4MB) CPU [1%@729] EMC_FREQ 12%@2133 GR3D_FREQ 30%@[611,611] NVDLA0_FREQ @1369 VDD 1mW"
    )
    clocks = read_tegrastats(write(tmp_path / "g.log", f"{line}\n{line.replace('12%', '24%')}\n"))
    assert clocks["emc_percent"] == (18.0, 24.0)
    assert clocks["emc_mhz"] == (2133.0, 2133.0)
    assert clocks["gpu_mhz"][0] == 611.0
    assert clocks["dla0_mhz"][0] == 1369.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[1, 2]",
        '[{"name": "a"}]',
        '[{"name": "a", "medianMs": "x"}]',
        '[{"name": "a", "medianMs": -1}]',
        "layer_name,start_ms,end_ms\n",
        "layer_name,start_ms,end_ms\n'a',2,1\n",
        "layer_name,start_ms,end_ms\n'a',x,1\n",
        "layer_name\n'a'\n",
        "what is this",
        "[" * 2000,
    ],
)
def test_damaged_files_are_one_clear_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(OrinportError) as caught:
        read_measurement(write(tmp_path / "m", text))
    assert len(str(caught.value).splitlines()) == 1


def test_mutated_files_never_break_it(tmp_path: Path) -> None:
    rng = random.Random(1)
    read: list[Measurement] = []
    refusals: list[str] = []
    for number in range(300):
        data = bytearray(rng.choice([STATISTICS, LONG, PROFILE]).encode())
        for _ in range(rng.randrange(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path = tmp_path / str(number)
        path.write_bytes(bytes(data[: rng.randrange(len(data) + 1)]))
        try:
            read.append(read_measurement(path))
        except OrinportError as error:
            refusals.append(str(error))
    assert read
    assert refusals
    assert all(isfinite(layer.us) and layer.us >= 0 for measurement in read for layer in measurement.layers)
    assert all(len(refusal.splitlines()) == 1 for refusal in refusals)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = network(tmp_path / "n.onnx")
    statistics = write(tmp_path / "s.csv", STATISTICS)
    assert main(["profile", str(model), str(statistics)]) == 0
    out = capsys.readouterr().out
    assert "conv0 + relu1 (2 layers)" in out
    assert main(["profile", str(model), str(statistics), "-f", "json", "--power-mode", "15W"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rows"][0]["mac_utilisation"] == pytest.approx(MACS / (8192 * 614.4 * 100.0))
    other = write(tmp_path / "o.csv", STATISTICS.replace("conv", "other").replace("relu", "different"))
    assert main(["profile", str(model), str(other)]) == 1
    assert main(["profile", str(model), str(tmp_path / "missing")]) == 2
