"""Measurements from a board: both formats by hand-computed values, fused names of real networks, damaged files."""

# ruff: noqa: E501 the files are as their programs write them

from __future__ import annotations

import importlib
import json
import random
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest
from onnx import TensorProto, helper

import orinport
from orinport.cli import main
from orinport.device.compare import compare
from orinport.device.measured import (
    Measurement,
    read_jtop,
    read_layer_nodes,
    read_measurement,
    read_tegrastats,
    read_times,
)
from orinport.errors import OrinportError
from orinport.measuring import Build, lay_beside
from orinport.predict.constants import load_constants
from orinport.report.profile import profile_document, profile_text
from orinport.targets import load_target

if TYPE_CHECKING:
    from orinport.predict.prediction import Prediction

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


PUBLISHED = """layer_name,start_ms,end_ms
'Conv_219 + BatchNormalization_220 + Relu_221 + MaxPool_222',0.004556,0.708967
'MaxPool_222',0.709676,1.290478
'Conv_223 + BatchNormalization_224 + Relu_225',1.291201,1.692339
'Conv_226 + BatchNormalization_227+Add_228+Relu_229',1.693057,2.109201
"""
"""Start of the layer statistics in the README of DLA-SW samples/cuDLA: ResNet-34 of 1280x768 on DRIVE Orin at 1152 MHz."""


def resnet_start() -> onnx.ModelProto:
    """The stem and the first block of ResNet-34 for 1280x768, batch normalisation folded away, with the names above."""
    weights = [
        helper.make_tensor("w0", TensorProto.FLOAT, [64, 3, 7, 7], [0.01] * (64 * 3 * 49)),
        helper.make_tensor("w1", TensorProto.FLOAT, [64, 64, 3, 3], [0.01] * (64 * 64 * 9)),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="Conv_219", pads=[3] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"], name="Relu_221"),
        helper.make_node(
            "MaxPool", ["b"], ["c"], name="MaxPool_222", kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]
        ),
        helper.make_node("Conv", ["c", "w1"], ["d"], name="Conv_223", pads=[1] * 4),
        helper.make_node("Relu", ["d"], ["e"], name="Relu_225"),
        helper.make_node("Conv", ["e", "w1"], ["f"], name="Conv_226", pads=[1] * 4),
        helper.make_node("Add", ["f", "c"], ["g"], name="Add_228"),
        helper.make_node("Relu", ["g"], ["y"], name="Relu_229"),
    ]
    info = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 768, 1280]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64, 192, 320]),
    ]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_published_statistics_by_hand(tmp_path: Path) -> None:
    """A 3x3 convolution of 64 to 64 channels at 192x320 is 2.265 GMAC; in 401.138 us at 1152 MHz 4901 a cycle."""
    target = load_target("drive-orin/drive-6.0.9")
    figures = {**target.power_mode.figures, "dla_mhz": replace(target.power_mode.figures["dla_mhz"], value=1152.0)}
    target = replace(target, power_mode=replace(target.power_mode, figures=figures))
    measured = read_measurement(write(tmp_path / "s.csv", PUBLISHED))
    comparison = lay_beside(resnet_start(), measured, Build(target))
    stem, pool, first, second = comparison.rows
    assert stem.layers == ("Conv_219", "Relu_221")
    assert pool.layers == ("MaxPool_222",)
    assert first.macs == second.macs == 64 * 64 * 9 * 192 * 320
    assert first.mac_utilisation == pytest.approx(4901 / 8192, rel=1e-3)
    assert second.mac_utilisation == pytest.approx(64 * 64 * 9 * 192 * 320 / (8192 * 1152 * 416.144))
    assert stem.macs == 3 * 64 * 49 * 384 * 640
    features = 64 * 192 * 320
    assert pool.bytes == 64 * 384 * 640 + features
    assert pool.gbps == pytest.approx((64 * 384 * 640 + features) / 580.802 / 1e3)
    assert first.bytes == 2 * features + 64 * 64 * 9
    assert second.bytes == 3 * features + 64 * 64 * 9
    assert measured.gaps_us == pytest.approx(4.556 + 0.709 + 0.723 + 0.718, abs=1e-6)


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


LIGHT_NETWORKS = (
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50"),
    *("shufflenet", "squeezenet", "vgg19", "zfnet512"),
)
REFERENCE_NETWORKS = ("resnet34", "ssd_resnet34", "ssd_mobilenet", "retinanet_resnext50", "yolov5s")


def _real_network(name: str, monkeypatch: pytest.MonkeyPatch) -> Prediction:
    if name in LIGHT_NETWORKS:
        return orinport.predict(LIGHT / f"light_{name}.onnx")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    networks = importlib.import_module("reference_networks")
    return orinport.predict((networks.NETWORKS | networks.HELD_OUT)[name]().model())


@pytest.mark.parametrize("name", [*LIGHT_NETWORKS, *REFERENCE_NETWORKS])
def test_fused_names_of_real_networks_come_back_to_their_nodes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly the layers whose names were joined, in each way in which TensorRT joins names."""
    prediction = _real_network(name, monkeypatch)
    rng = random.Random(0)
    layers = prediction.layers
    forms = (
        "{0} + {1} + {2}",
        "{0}+{1}+{2}",
        "{0} || {1} || {2}",
        "PWN(PWN({0}), PWN({1} + {2}))",
        "{0} + PWN(PWN({1}), {2})",
    )
    for form in forms:
        for _ in range(10):
            start = rng.randrange(len(layers) - 3)
            chosen = layers[start : start + 3]
            fused = form.format(*(layer.layer.name for layer in chosen))
            (row,) = compare(_measured(fused), prediction).rows
            assert {layer.layer.name for layer in chosen} == set(row.layers), fused
            assert set(row.nodes) == {node for layer in chosen for node in layer.layer.nodes}
    for number, region in enumerate(prediction.regions):
        if region.device == "dla":
            first, last = region.layers[0].layer.name, region.layers[-1].layer.name
            (row,) = compare(_measured(f"{{ForeignNode[{first}...{last}]}}"), prediction).rows
            assert {layer.layer.name for layer in region.layers} == set(row.layers)
            assert row.regions == (number,)
            assert row.predicted_us == pytest.approx(region.us - region.reformat_us)


def test_a_part_of_a_region_stands_for_what_lies_between_its_ends(tmp_path: Path) -> None:
    """conv0 feeds two branches; the region that the profile names ends where only one of them ends."""
    values = [0.01] * (64 * 64 * 9)
    weights = [helper.make_tensor(name, TensorProto.FLOAT, [64, 64, 3, 3], values) for name in "abcd"]
    conv = [("x", "a", "t0"), ("t0", "b", "t1"), ("t0", "c", "t2"), ("t1", "d", "t3")]
    nodes = [
        helper.make_node("Conv", [given, weight], [made], name=f"conv{weight}", pads=[1, 1, 1, 1])
        for given, weight, made in conv
    ]
    nodes.append(helper.make_node("Add", ["t2", "t3"], ["y"], name="sum"))
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64, 32, 32]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    prediction = orinport.predict(model)

    def meant(name: str) -> set[str]:
        (row,) = compare(_measured(name), prediction).rows
        return set(row.layers)

    assert meant("{ForeignNode[conva...sum]}") == {"conva", "convb", "convc", "convd", "sum"}
    assert meant("{ForeignNode[convb...convd]}") == {"convb", "convc", "convd"}
    assert meant("{ForeignNode[conva...convd]}") == {"conva", "convb", "convc", "convd"}


def test_a_region_whose_time_stands_in_the_rows_beside_it(tmp_path: Path) -> None:
    """TensorRT 8.4 and older give the ForeignNode the time of its submission, and wait in `from nvm`."""
    rows = [
        ("x to nvm", 0.085),
        ("{ForeignNode[conv0...conv2]}", 0.009),
        ("y from nvm", 0.700),
        ("x copy finish", 0.002),
        ("y copy finish", 0.003),
        ("z copy finish", 0.004),
    ]
    entries = [f'{{ "name" : "{name}", "timeMs" : 1, "averageMs" : {ms}, "percentage" : 1 }}' for name, ms in rows]
    text = '[\n  { "count" : 400 }\n, ' + "\n, ".join(entries) + "\n]\n"
    prediction = orinport.predict(network(tmp_path / "n.onnx"))
    comparison = compare(read_measurement(write(tmp_path / "p.json", text)), prediction)
    (row,) = comparison.rows
    assert row.measured_us == pytest.approx(85 + 9 + 700 + 2 + 3)
    assert row.mac_utilisation == pytest.approx(2 * MACS / (8192 * 1600 * 799.0))
    assert comparison.unmatched == ("z copy finish",)
    assert sum(each.us for each in comparison.reformats) == pytest.approx(4.0)


def test_transitions_and_what_passes_in_no_layer(tmp_path: Path) -> None:
    """480 us of a region and 20 us of a copy in an inference of 530 us leave 30 us."""
    prediction = orinport.predict(network(tmp_path / "n.onnx"))
    comparison = compare(read_measurement(write(tmp_path / "p.json", PROFILE)), prediction)
    document = profile_document(comparison, {"compute": 530.0, "runs": 10}, {})
    assert document["outside_layers_us"] == pytest.approx(30.0)
    assert [each["us"] for each in document["reformats"]] == pytest.approx([20.0])
    text = profile_text(comparison, {"compute": 530.0, "runs": 10}, {})
    assert "copies and reformats: 20.0 us in 1 line, for 0 transitions" in text
    assert "30.0 us of the median inference pass in none of its layers" in text
    slower = profile_text(comparison, {"compute": 450.0, "runs": 10}, {})
    assert "layers take 50.0 us longer than the median inference" in slower
    assert profile_document(comparison, {}, {})["outside_layers_us"] is None


def test_clocks_of_another_power_mode_are_pointed_out(tmp_path: Path) -> None:
    prediction = orinport.predict(network(tmp_path / "n.onnx"))
    comparison = compare(read_measurement(write(tmp_path / "s.csv", STATISTICS)), prediction)
    same = profile_text(comparison, {}, {"dla0_mhz": (1000.0, 1600.0), "emc_mhz": (3199.0, 3199.0)})
    assert "--power-mode" not in same
    other = profile_text(comparison, {}, {"dla0_mhz": (614.4, 614.4), "emc_mhz": (2133.0, 2133.0)})
    assert "DLA ran at 614.4 MHz at most, and MAXN has 1600" in other
    assert "EMC ran at 2133 MHz at most, and MAXN has 3199" in other


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "04-24-2023 00:01:24 RAM 1282/62795MB (lfb 15152x4MB) SWAP 0/31398MB (cached 0MB) CPU [0%@729,0%@729] EMC_FREQ 0%@2133 GR3D_FREQ 0%@0 GR3D2_FREQ 0%@0 VIC_FREQ 729 APE 174 CV0@-256C",
            {"ram_mb": 1282.0, "emc_percent": 0.0, "emc_mhz": 2133.0, "gpu_percent": 0.0, "gpu_mhz": 0.0},
        ),
        (
            "RAM 5000/30536MB (lfb 1x4MB) EMC_FREQ 12%@2133 GR3D_FREQ 30%@[611,612] NVDLA0_FREQ @1369 NVDLA1 off",
            {
                "ram_mb": 5000.0,
                "emc_percent": 12.0,
                "emc_mhz": 2133.0,
                "gpu_percent": 30.0,
                "gpu_mhz": 611.0,
                "dla0_mhz": 1369.0,
            },
        ),
        ("RAM 1/2MB NVDLA0 off NVDLA1 off PVA0_FREQ off APE 174", {"ram_mb": 1.0}),
    ],
)
def test_lines_of_tegrastats(line: str, wanted: dict[str, float], tmp_path: Path) -> None:
    found = read_tegrastats(write(tmp_path / "t.log", line + "\n"))
    assert {name: most for name, (_, most) in found.items()} == wanted


def test_statistics_stand_beside_times_without_gaps(tmp_path: Path) -> None:
    model = network(tmp_path / "n.onnx")
    measured = read_measurement(write(tmp_path / "s.csv", STATISTICS))
    constants = load_constants("orin-dla")
    (first, second) = lay_beside(model, measured, Build("orin-agx-64gb/jp6.0")).rows
    with_gaps = compare(measured, orinport.predict(model, target="orin-agx-64gb/jp6.0")).rows[0]
    assert first.predicted_us is not None
    assert with_gaps.predicted_us is not None
    gap = with_gaps.predicted_us - first.predicted_us
    assert gap == pytest.approx(constants["gap_us"] + constants["falcon_gap_us"])
    assert second.regions == ()


LAYERS_8 = """{"Layers": ["Reformatting CopyNode for Input Tensor 0 to conv0 + relu1"
,"conv0 + relu1"
,"conv2"
],
"Bindings": ["x"
,"y"
]}
"""
LAYERS_10 = """{"Layers": [{
  "Name": "__myl_Conv_Relu_myl0_1",
  "LayerType": "kgen",
  "Inputs": [
  {
    "Name": "x",
    "Dimensions": [1,64,32,32],
    "Format/Datatype": "N/A due to dynamic shapes"
  }],
  "Metadata": "[ONNX Layer: conv0]\x1f[ONNX Layer: relu1]"
},{
  "Name": "other",
  "LayerType": "CaskConvolution",
  "Metadata": "[ONNX Layer: conv2]\\u001e[ONNX Layer: a[0]]"
},{
  "Name": "Reformatting CopyNode for Output Tensor 0 to other",
  "LayerType": "Reformat",
  "Metadata": ""
}],
"Bindings": ["x"
,"y"
]}
"""


def test_layer_information_names_nodes_where_names_do_not(tmp_path: Path) -> None:
    assert read_layer_nodes(write(tmp_path / "8.json", LAYERS_8)) == {
        "Reformatting CopyNode for Input Tensor 0 to conv0 + relu1": (),
        "conv0 + relu1": (),
        "conv2": (),
    }
    nodes = read_layer_nodes(write(tmp_path / "10.json", LAYERS_10))
    assert nodes == {
        "__myl_Conv_Relu_myl0_1": ("conv0", "relu1"),
        "other": ("conv2", "a[0]"),
        "Reformatting CopyNode for Output Tensor 0 to other": (),
    }
    prediction = orinport.predict(network(tmp_path / "n.onnx"))
    name = "__myl_Conv_Relu_myl0_1"
    assert compare(_measured(name), prediction).rows == ()
    (row,) = compare(_measured(name), prediction, nodes=nodes).rows
    assert row.nodes == ("conv0", "relu1")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"Layers": 3}', "[" * 2000, '{"Layers": [}'])
def test_damaged_layer_information_is_one_clear_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(OrinportError) as caught:
        read_layer_nodes(write(tmp_path / "l.json", text))
    assert len(str(caught.value).splitlines()) == 1


JTOP = """time,uptime,CPU1,RAM,SWAP,EMC,GPU,APE,DLA0_CORE,DLA0_FALCON,DLA1_CORE,NVENC,Fan pwmfan0,Temp CPU,Power VDD,Power TOT,jetson_clocks,nvp model
2024-05-01 10:00:00.000001,1:00:00,12,0.5,0.0,10,50,200,1600000,844800,OFF,OFF,30.0,45.5,1000,15000,ON,MAXN
2024-05-01 10:00:01.000001,1:00:01,OFF,0.5,0.0,20,70,200,1400000,844800,OFF,OFF,30.0,45.5,1000,17000,ON,MAXN
"""


def test_a_log_of_jtop(tmp_path: Path) -> None:
    assert read_jtop(write(tmp_path / "j.csv", JTOP)) == {
        "emc_percent": (15.0, 20.0),
        "gpu_percent": (60.0, 70.0),
        "dla0_mhz": (1500.0, 1600.0),
        "dla0_falcon_mhz": (pytest.approx(844.8), pytest.approx(844.8)),
        "power_mw": (16000.0, 17000.0),
    }


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", JTOP.splitlines()[0], JTOP.replace("1600000", "x"), "\0"])
def test_what_is_no_log_of_jtop(text: str, tmp_path: Path) -> None:
    with pytest.raises(OrinportError) as caught:
        read_jtop(write(tmp_path / "j.csv", text))
    assert len(str(caught.value).splitlines()) == 1


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
