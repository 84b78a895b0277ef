"""The prediction of the Orin DLA: hand-computed operations, fusion, totals against the published table, advice."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import orinport
from orinport.errors import OrinportError
from orinport.model.layer import DType, Layer, LayerKind, Tensor
from orinport.placement.place import all_on_gpu, place
from orinport.placement.placement import Placement
from orinport.predict.advice import all_advice
from orinport.predict.batch import with_batch
from orinport.predict.buffer import BufferSize, buffer_use
from orinport.predict.constants import load_constants
from orinport.predict.macs import layer_macs
from orinport.predict.network import predict_network
from orinport.predict.operations import operations
from orinport.predict.prediction import Bound, Engine, Prediction
from orinport.report.predict import compare_text, predict_csv, predict_document, predict_text
from orinport.rules.finding import Verdict
from orinport.targets.load import load_target
from orinport.targets.target import Precision
from values import HOSTILE

if TYPE_CHECKING:
    from types import ModuleType

TARGET = load_target("orin-agx-64gb/jp6.2", power_mode="MAXN")
C = load_constants("orin-dla")


def conv(index: int, source: Tensor, kernels: int, size: int, *, groups: int = 1, name: str = "") -> Layer:
    batch, channels, height, width = source.shape or (0, 0, 0, 0)
    return Layer(
        index,
        name or f"conv{index}",
        LayerKind.CONVOLUTION,
        (source,),
        (Tensor(f"t{index}", (batch, kernels, height, width), DType.FP32),),
        (name or f"node{index}",),
        {
            "kernel": (size, size),
            "stride": (1, 1),
            "groups": groups,
            "weight_values": channels // groups * kernels * size * size,
        },
    )


def pointwise(index: int, *sources: Tensor, kind: LayerKind = LayerKind.ACTIVATION) -> Layer:
    return Layer(index, f"p{index}", kind, sources, (replace(sources[0], name=f"t{index}"),), (f"node{index}",), {})


def placed(layers: list[Layer], verdict: Verdict = Verdict.DLA, precision: Precision = Precision.INT8) -> Placement:
    made = {t.name for layer in layers for t in layer.outputs}
    read = {t.name for layer in layers for t in layer.inputs}
    return place(
        layers,
        {layer.index: verdict for layer in layers},
        inputs=list({t.name: t for layer in layers for t in layer.inputs if t.name not in made}.values()),
        outputs=[t for layer in layers for t in layer.outputs if t.name not in read],
        target=TARGET,
        precision=precision,
    )


def predict(layers: list[Layer], precision: Precision = Precision.INT8, **options: object) -> Prediction:
    return predict_network("net", placed(layers, precision=precision), TARGET, precision, **options)  # type: ignore[arg-type]


X = Tensor("x", (1, 256, 64, 64), DType.FP32)


def gap() -> float:
    return C["gap_us"] + C["falcon_gap_us"]


def us_a_byte() -> float:
    """A byte crosses the DRAM and then the port of the DLA."""
    return 1 / (C["dram_gbps"] * 1e3) + 1 / (C["port_bytes_per_cycle"] * 1600)


def test_a_convolution_bound_by_multiplying() -> None:
    prediction = predict([conv(0, X, 256, 3)])
    (layer,) = prediction.layers
    cycles = (256 // 64) * (256 // 64) * 9 * 64 * 64 / 2
    assert layer.bound is Bound.MAC
    assert layer.macs == 256 * 256 * 9 * 64 * 64
    assert layer.us == pytest.approx(cycles / (1600 * C["mac_efficiency"]) + gap())
    assert layer.mac_utilisation == pytest.approx(layer.macs / (8192 * 1600 * layer.us))


def test_a_convolution_bound_by_memory() -> None:
    source = Tensor("x", (1, 64, 256, 256), DType.FP32)
    (layer,) = predict([conv(0, source, 64, 1)]).layers
    megabytes = 64 * 256 * 256
    assert layer.bound is Bound.MEMORY
    assert layer.bytes.read == megabytes + 64 * 64
    assert layer.bytes.written == megabytes
    assert layer.us == pytest.approx((2 * megabytes + 64 * 64) * us_a_byte() + gap())


def test_channels_are_padded_to_32_bytes() -> None:
    source = Tensor("x", (1, 33, 16, 16), DType.FP32)
    int8 = predict([conv(0, source, 10, 1)]).layers[0].bytes
    fp16 = predict([conv(0, source, 10, 1)], Precision.FP16).layers[0].bytes
    assert (int8.input, int8.output) == (64 * 256, 32 * 256)
    assert (fp16.input, fp16.output) == (48 * 256 * 2, 16 * 256 * 2)


def test_fp16_runs_on_rubik() -> None:
    (layer,) = predict([conv(0, X, 256, 3)], Precision.FP16).layers
    assert layer.engine is Engine.RUBIK
    cycles = 16 * 16 * 9 * 64 * 64
    assert layer.us > cycles / (C["rubik_fp16_ghz"] * 1e3)


def test_small_inner_tensors_stay_in_sram() -> None:
    small = Tensor("x", (1, 64, 32, 32), DType.FP32)
    first = conv(0, small, 64, 3)
    layers = predict([first, conv(1, first.outputs[0], 64, 3)]).layers
    assert layers[0].bytes.output == 0
    assert layers[1].bytes.input == 0
    assert layers[0].bytes.input == layers[1].bytes.output == 64 * 32 * 32
    large = Tensor("x", (1, 64, 256, 256), DType.FP32)
    first = conv(0, large, 64, 3)
    assert predict([first, conv(1, first.outputs[0], 64, 3)]).layers[0].bytes.output == 64 * 256 * 256


def test_the_sram_reads_and_writes_at_once_at_the_width_of_the_port() -> None:
    small = Tensor("x", (1, 64, 64, 64), DType.FP32)
    first = conv(0, small, 64, 1)
    second = pointwise(1, small, first.outputs[0], kind=LayerKind.ELEMENTWISE)
    third = pointwise(2, second.outputs[0], first.outputs[0], kind=LayerKind.ELEMENTWISE)
    last = conv(3, third.outputs[0], 64, 1)
    layer = next(each for each in predict([first, second, third, last]).layers if each.layer.name == "p1")
    size = 64 * 64 * 64
    assert (layer.bytes.resident, layer.bytes.resident_written) == (2 * size, size)
    assert layer.bytes.moved == size
    assert layer.us == pytest.approx(max(size * us_a_byte(), size / (C["port_bytes_per_cycle"] * 1600)) + gap())


def test_a_tensor_that_a_pass_reads_twice_is_fetched_once() -> None:
    first = conv(0, X, 256, 3)
    gate = pointwise(1, first.outputs[0])
    product = pointwise(2, gate.outputs[0], first.outputs[0], kind=LayerKind.ELEMENTWISE)
    found = operations([first, gate, product], ["t2"])
    assert [[layer.index for layer in each.layers] for each in found] == [[0], [1, 2]]
    assert found[1].operands == ()
    residual = pointwise(3, first.outputs[0], X, kind=LayerKind.ELEMENTWISE)
    assert [t.name for t in operations([first, residual], ["t3"])[0].operands] == ["x"]


def test_pointwise_layers_ride_along() -> None:
    first = conv(0, X, 256, 3)
    act = pointwise(1, first.outputs[0])
    other = conv(2, act.outputs[0], 256, 3)
    total = pointwise(3, other.outputs[0], act.outputs[0], kind=LayerKind.ELEMENTWISE)
    last = pointwise(4, total.outputs[0])
    found = operations([first, act, other, total, last], ["t4"])
    assert [[layer.index for layer in each.layers] for each in found] == [[0, 1], [2, 3, 4]]
    assert [t.name for t in found[1].operands] == ["t1"]
    layers = predict([first, act, other, total, last]).layers
    assert [each.fused_into for each in layers] == ["", "conv0", "", "conv2", "conv2"]
    assert layers[1].us == 0


def test_a_kept_tensor_stops_fusion() -> None:
    first = conv(0, X, 256, 3)
    found = operations([first, pointwise(1, first.outputs[0])], ["t0", "t1"])
    assert len(found) == 2


def test_groups_share_an_atom() -> None:
    source = Tensor("x", (1, 128, 32, 32), DType.FP32)
    grouped = predict([conv(0, source, 128, 3, groups=32)]).layers[0]
    dense = predict([conv(0, source, 128, 3)]).layers[0]
    assert grouped.macs * 32 == dense.macs
    assert grouped.us < dense.us


def test_batch_multiplies_work_and_not_weights_that_stay() -> None:
    placement = placed([conv(0, Tensor("x", (1, 64, 16, 16), DType.FP32), 64, 3)])
    one = predict_network("n", placement, TARGET, Precision.INT8)
    eight = predict_network("n", with_batch(placement, 8), TARGET, Precision.INT8)
    assert eight.batch == 8
    assert eight.macs == 8 * one.macs
    assert eight.layers[0].bytes.weights == one.layers[0].bytes.weights
    assert eight.total_us < 8 * one.total_us


def test_a_batch_that_does_not_fit_is_refused() -> None:
    placement = placed([conv(0, Tensor("x", (4, 64, 16, 16), DType.FP32), 64, 3)])
    with pytest.raises(OrinportError, match="does not divide"):
        with_batch(placement, 6)


def test_unknown_kinds_are_said_and_widen_the_band() -> None:
    source = Tensor("x", (1, 1000, 1, 1), DType.FP32)
    prediction = predict([pointwise(0, source, kind=LayerKind.SOFTMAX)])
    assert prediction.layers[0].bound is Bound.UNKNOWN
    assert prediction.layers[0].reason
    assert prediction.band.high > prediction.total_us
    assert "PERF008" in [finding.code for finding in prediction.findings]


def test_unknown_shapes_do_not_break_it() -> None:
    layer = Layer(
        0,
        "odd",
        LayerKind.CONVOLUTION,
        (Tensor("x", None, DType.FP32),),
        (Tensor("y", None, DType.FP32),),
        ("n",),
        {"kernel": (3, 3), "groups": 1},
    )
    for verdict in (Verdict.DLA, Verdict.GPU):
        prediction = predict_network("n", placed([layer], verdict), TARGET, Precision.INT8)
        assert prediction.layers[0].macs == 0


def test_linear_io_costs_what_the_data_file_says() -> None:
    native, linear = predict([conv(0, X, 256, 3)]), predict([conv(0, X, 256, 3)], linear_io=True)
    moved = 2 * 256 * 64 * 64 * 5
    assert linear.total_us - native.total_us == pytest.approx(
        C["linear_io_us_int8"] + moved / (C["reformat_gbps_int8"] * 1e3)
    )
    assert "PERF004" in [finding.code for finding in linear.findings]


def test_sparse_weights_halve_wide_convolutions_only() -> None:
    wide = conv(0, replace(X, shape=(1, 128, 128, 128)), 512, 3)
    assert predict([wide], sparse=True).layers[0].us - gap() == pytest.approx(
        (predict([wide]).layers[0].us - gap()) / 2
    )
    narrow = conv(0, replace(X, shape=(1, 64, 64, 64)), 256, 3)
    assert predict([narrow], sparse=True).layers[0].us == predict([narrow]).layers[0].us


def test_sparse_weights_are_read_packed() -> None:
    narrow = conv(0, replace(X, shape=(1, 512, 7, 7)), 512, 3)
    dense, sparse = (predict([narrow], sparse=each).layers[0].bytes.weights for each in (False, True))
    assert dense == 512 * 512 * 9
    assert sparse == pytest.approx(dense * (2 * 8 + 2 * 2) / (4 * 8))


def test_errors_of_many_layers_add_in_quadrature_down_to_the_error_of_networks() -> None:
    wide = Tensor("x", (1, 64, 256, 256), DType.FP32)
    one = conv(0, wide, 64, 1)
    assert one.outputs[0].shape == wide.shape
    layers = [one]
    for index in range(1, 30):
        layers.append(conv(index, layers[-1].outputs[0], 64, 1))
    launch = C.figures["launch_us"]
    for chosen, spread in (([one], C["band_memory"]), (layers, C["band_network"])):
        (region,) = predict(chosen).regions
        assert all(each.bound is Bound.MEMORY for each in region.layers)
        assert region.band.high - launch.high == pytest.approx(region.busy_us * (1 + spread))
        assert region.band.low - launch.low == pytest.approx(region.busy_us * (1 - spread))


def test_the_gpu_roofline() -> None:
    placement = all_on_gpu(placed([conv(0, X, 256, 3)]))
    prediction = predict_network("n", placement, TARGET, Precision.INT8)
    gpu = load_constants("orin-gpu")
    peak = 16 * 2048 * 1300.5
    macs = 256 * 256 * 9 * 64 * 64
    assert prediction.total_us == pytest.approx(gpu["launch_us"] + macs / (peak * gpu["compute_efficiency"]))
    assert prediction.band.low < prediction.total_us / 2 < prediction.total_us * 2 < prediction.band.high


def test_throughput_counts_the_busier_device() -> None:
    prediction = predict([conv(0, X, 256, 3)])
    busy = prediction.layers[0].us
    assert prediction.fps_one_dla == pytest.approx(1e6 / busy)
    assert prediction.fps_two_dlas == pytest.approx(2e6 / busy)


def test_queued_tasks_take_no_less_than_a_launch() -> None:
    """Tasks of almost no work, queued back to back, were measured at 60 to 70 us each."""
    tiny = Tensor("x", (1, 3, 8, 8), DType.INT8)
    prediction = predict([conv(0, tiny, 32, 1)])
    (region,) = prediction.regions
    assert region.busy_us < 5
    assert region.queued_us == pytest.approx(region.launch_us - region.linear_us)
    assert 55 < region.queued_us < 75
    assert prediction.fps_one_dla == pytest.approx(1e6 / region.queued_us)


def test_the_dram_is_shared_by_all_engines() -> None:
    """On AGX Orin two DLAs do not reach the DRAM's limit, as measured; with less of it they would."""
    source = Tensor("x", (1, 64, 256, 256), DType.FP32)
    prediction = predict([conv(0, source, 64, 1)])
    assert prediction.pace(1)[0] == prediction.pace(2)[0] == "dla"
    assert prediction.fps_two_dlas == pytest.approx(2 * prediction.fps_one_dla)
    moved = prediction.layers[0].bytes.moved
    assert prediction.shared_gbps == pytest.approx(204.8 * load_constants("orin-gpu")["memory_efficiency"])
    assert prediction.dram_us == pytest.approx(moved / prediction.shared_gbps / 1e3)
    narrow = replace(prediction, shared_gbps=60.0)
    assert narrow.pace(1)[0] == "dla"
    assert narrow.pace(2) == ("dram", pytest.approx(moved / 60e3))
    assert narrow.fps_two_dlas == pytest.approx(60e9 / moved)
    assert "(the DRAM limits)" in predict_text(narrow)
    assert predict_document(narrow)["fps_bound"] == {"dla1": "dla", "dla2": "dram"}


@settings(max_examples=300, deadline=None)
@given(
    row=st.integers(1, 200_000),
    rows=st.integers(1, 400),
    kernel=st.integers(1, 7),
    stride=st.integers(1, 4),
    kernels=st.integers(1, 40),
    group=st.integers(1, 600_000),
)
def test_the_buffer_never_reads_less_than_everything(
    row: int, rows: int, kernel: int, stride: int, kernels: int, group: int
) -> None:
    use = buffer_use(
        row_bytes=row,
        rows=rows,
        output_rows=ceil(rows / stride),
        kernel_rows=kernel,
        stride_rows=stride,
        weight_bytes=group * kernels,
        group_bytes=group,
        size=BufferSize(16, 32768),
    )
    assert use.input_bytes >= row * rows
    assert use.weight_bytes >= group * kernels
    assert use.strips >= 1
    if row * rows + group * kernels <= 14 * 32768:
        assert use == type(use)("input and weights", 1, row * rows, group * kernels, True)


@pytest.mark.parametrize(
    ("channels", "kernels", "size", "mode"),
    [
        (64, 64, 256, "rows, all weights"),
        (256, 256, 14, "input, two kernel groups"),
        (512, 512, 28, "rows, one kernel group"),
        (256, 256, 150, "rows, two kernel groups"),
        (64, 64, 16, "input and weights"),
    ],
)
def test_buffer_modes_of_real_layers(channels: int, kernels: int, size: int, mode: str) -> None:
    taps = 9 * channels
    use = buffer_use(
        row_bytes=channels * size,
        rows=size,
        output_rows=size,
        kernel_rows=3,
        stride_rows=1,
        weight_bytes=taps * kernels,
        group_bytes=taps * 64,
        size=BufferSize(16, 32768),
    )
    assert use.mode == mode


def test_macs_by_kind() -> None:
    matmul = Layer(
        0,
        "m",
        LayerKind.MATRIX_MULTIPLY,
        (Tensor("a", (2, 128, 1024), DType.FP32), Tensor("b", (2, 1024, 64), DType.FP32)),
        (Tensor("y", (2, 128, 64), DType.FP32),),
        ("m",),
        {"op0": "NONE", "op1": "NONE"},
    )
    assert layer_macs(matmul) == 2 * 128 * 1024 * 64
    up = Layer(
        0,
        "d",
        LayerKind.DECONVOLUTION,
        (Tensor("x", (1, 32, 8, 8), DType.FP32),),
        (Tensor("y", (1, 16, 16, 16), DType.FP32),),
        ("d",),
        {"kernel": (2, 2), "stride": (2, 2), "groups": 1},
    )
    assert layer_macs(up) == 32 * 16 * 4 * 64
    assert layer_macs(pointwise(0, X)) == 0


def test_every_constant_has_a_source() -> None:
    for name in ("orin-dla", "orin-gpu"):
        for key, constant in load_constants(name).figures.items():
            assert constant.source, key
            assert constant.low <= constant.value <= constant.high


def test_every_advice_has_its_page() -> None:
    from sys import modules

    codes = [advice.code for advice in all_advice()]
    assert codes == sorted(set(codes))
    for advice in all_advice():
        page = modules[type(advice).__module__].__doc__ or ""
        for section in ("What it checks", "Why it matters", "Example", "What to do", "Fix safety", "Source"):
            assert f"## {section}" in page, advice.code


def tiny(name: str = "conv") -> onnx.ModelProto:
    weights = np.random.default_rng(0).standard_normal((16, 3, 3, 3), dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name=name, pads=[1, 1, 1, 1])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 64, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16, 64, 64])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_public_function_and_reports() -> None:
    prediction = orinport.predict(tiny(HOSTILE), batch=4, compare_gpu=True)
    assert prediction.batch == 4
    document = json.loads(json.dumps(predict_document(prediction)))
    assert document["schema_version"] == 1
    assert document["band_us"][0] <= document["total_us"] <= document["band_us"][1]
    assert {"dla1", "dla2"} == set(document["fps"])
    assert sum(region["us"] for region in document["regions"]) == pytest.approx(document["total_us"])
    text = predict_text(prediction) + compare_text(prediction)
    assert "\x1b" not in text
    assert "on the GPU: about" in text
    rows = predict_csv(predict_document(prediction)).splitlines()
    assert len(rows) == 1 + len(prediction.layers)


@pytest.mark.parametrize("mode", ["MAXN", "50W", "30W", "15W"])
def test_power_modes_are_ordered(mode: str) -> None:
    fast = orinport.predict(tiny(), power_mode="MAXN", rewrite=False)
    assert orinport.predict(tiny(), power_mode=mode, rewrite=False).total_us >= fast.total_us


def test_boards_without_measurements_are_refused() -> None:
    with pytest.raises(OrinportError, match="no public measurement"):
        orinport.predict(tiny(), target="xavier-agx/jp5.1")


def published(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("fit_orin_dla")


@pytest.mark.parametrize(
    "networks",
    [
        ("resnet50", "resnet34", "ssd_mobilenet"),
        pytest.param(("retinanet_resnet34", "retinanet_resnext50", "ssd_resnet34"), marks=pytest.mark.slow),
    ],
)
def test_the_published_table(monkeypatch: pytest.MonkeyPatch, networks: tuple[str, ...]) -> None:
    """The stored constants keep every network of the table, dense and sparse, within the bars that docs state."""
    fit = published(monkeypatch)
    errors = [abs(fit.network_error(case, fps, C)) for case, fps in fit.cases().items() if case[0] in networks]
    assert len(errors) >= 12
    assert np.mean(errors) < 0.05
    assert max(errors) < 0.10


def test_the_published_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = published(monkeypatch)
    rows = [tuple(row) for row in fit.DATA["layers"]["rows"]]
    int8 = [abs(fit.layer_error(row, Precision.INT8, C)) for row in rows]
    fp16 = [abs(fit.layer_error(row, Precision.FP16, C)) for row in rows]
    assert np.mean(int8) < 0.10
    assert max(int8) < 0.20
    assert np.mean(fp16) < 0.15


def test_a_network_that_no_constant_was_fitted_to(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = published(monkeypatch)
    prediction, measured = fit.held_out()
    assert prediction.band.low < measured < prediction.band.high
    assert prediction.total_us == pytest.approx(measured, rel=0.10)


def test_a_thousand_layers_in_time(tmp_path: Path) -> None:
    """Processor time, because the machine may have other work."""
    import time

    from builders import thin_network

    onnx.save(thin_network(1000), tmp_path / "net.onnx")
    start = time.process_time()
    prediction = orinport.predict(tmp_path / "net.onnx")
    assert time.process_time() - start < 3
    assert len(prediction.layers) >= 1000


def test_a_batch_that_the_dla_refuses_is_not_predicted() -> None:
    assert orinport.predict(tiny(HOSTILE), batch=4096).batch == 4096
    with pytest.raises(OrinportError, match="exceeds the DLA's limit of 4096"):
        orinport.predict(tiny(HOSTILE), batch=4097)


def test_what_cannot_be_built_is_said() -> None:
    """A layer that TensorRT refuses has no time: without a word the rest would pass for the network's."""
    nodes = [helper.make_node("Relu", ["x"], ["r"], name="relu"), helper.make_node("DFT", ["r"], ["y"], name="dft")]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8, 4, n]) for name, n in (("x", 1), ("y", 2))]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    prediction = orinport.predict(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    (note,) = prediction.notes
    assert "cannot build" in note
    assert "1 layer blocked (dft)" in note
    assert note in predict_text(prediction)
    assert predict_document(prediction)["notes"] == [note]
