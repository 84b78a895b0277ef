"""Logs of TensorRT: every wording on record, damaged logs, long logs, and logs beside our own verdicts."""

# ruff: noqa: E501 log lines are as long as they are

from __future__ import annotations

import codecs
import io
import json
import random
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import orinport
from orinport.cli import main
from orinport.device.log import LogReport, log_classes, read_log
from orinport.device.log_match import match_log
from orinport.report.log import log_document, log_text
from orinport.rules import titles
from orinport.targets import log_messages

PREFIXES = (
    "",
    "[W] [TRT] ",
    "[05/12/2023-10:11:14] [W] [TRT] ",
    "[TRT] [W] ",
    "[05/12/2023-10:11:14] [E] ",
    "WARNING: [TRT]: ",
)
NOT_CLASSED = ("MSG27", "MSG30")
"""The partition summary, and a wording of which no public occurrence is known."""

PASSED = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v8602] # trtexec --onnx=net.onnx --int8 --useDLACore=0 --allowGPUFallback
[09/01/2023-08:00:01] [I] TensorRT version: 8.6.2
[09/01/2023-08:00:02] [I] [TRT] DLA Memory Pool Sizes: Managed SRAM = 1 MiB, Local DRAM = 1024 MiB, Global DRAM = 512 MiB
[09/01/2023-08:00:03] [W] [TRT] Layer 'mul' (MATRIX_MULTIPLY): Unsupported on DLA. Switching this layer's device type to GPU.
[09/01/2023-08:00:03] [W] [TRT] Layer 'mul2' (MATRIX_MULTIPLY): Unsupported on DLA. Switching this layer's device type to GPU.
[09/01/2023-08:00:04] [I] [TRT] ---------- Layers Running on DLA ----------
[09/01/2023-08:00:04] [I] [TRT] [DlaLayer] {ForeignNode[conv0...relu3]}
[09/01/2023-08:00:04] [I] [TRT] ---------- Layers Running on GPU ----------
[09/01/2023-08:00:04] [I] [TRT] [GpuLayer] MATRIX_MULTIPLY: mul
[09/01/2023-08:00:04] [I] [TRT] [GpuLayer] SHUFFLE: reshape_1 + transpose_2
[09/01/2023-08:00:05] [I] [TRT] {ForeignNode[conv0...relu3]} successfully offloaded to DLA.
&&&& PASSED TensorRT.trtexec [TensorRT v8602] # trtexec --onnx=net.onnx --int8 --useDLACore=0 --allowGPUFallback
"""
FORUM = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v8502] # trtexec --onnx=m.onnx --fp16 --useDLACore=0
[05/12/2023-10:11:12] [I] TensorRT version: 8.5.2
[05/12/2023-10:11:14] [W] [TRT] MatMul is unsupported on DLA, relax constraints or use Convolution layer instead.
[05/12/2023-10:11:14] [E] Error[4]: Layer 'product' is not supported on DLA but GPU fallback is not enabled.
[05/12/2023-10:11:14] [E] Error[2]: [builder.cpp::buildSerializedNetwork::751] Error Code 2: Internal Error (Assertion allowGPUFallback failed. )
[05/12/2023-10:11:14] [E] Engine could not be created from network
&&&& FAILED TensorRT.trtexec [TensorRT v8502] # trtexec --onnx=m.onnx --fp16 --useDLACore=0
"""


OLD_SUMMARY = """\
[09/30/2020-13:12:43] [I] [TRT] --------------- Layers running on DLA:
[09/30/2020-13:12:43] [I] [TRT] {Tanh_3,Mul_4,Conv_5}, {Tanh_8,Mul_9},
[09/30/2020-13:12:43] [I] [TRT] --------------- Layers running on GPU:
[09/30/2020-13:12:43] [I] [TRT] Conv_0, 2253[Constant], (Unnamed Layer* 6) [Constant] + (Unnamed Layer* 7) [Shuffle], Softplus_2,
"""


class Excerpt(NamedTuple):
    """A few lines as a version prints them, and what they say."""

    text: str
    kinds: tuple[str, ...] = ()
    reason: str = ""
    refused: tuple[str, ...] = ()
    version: str = ""
    failed: bool = False
    unknown: int = 0
    errors: int = 0
    regions: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()


EXCERPTS = {
    "5.1 refusal in DeepStream": Excerpt(
        "WARNING: Default DLA is enabled but layer yolo-act is not running on DLA, falling back to GPU.\n"
        "WARNING: route: Concatenation on DLA requires at least two inputs.\n",
        ("MSG01", "MSG07"),
        refused=("yolo-act",),
    ),
    "5.1 engine of another DLA version": Excerpt(
        "NVMEDIA_DLA :  528, ERROR: load from memory failed.\n"
        "[E] [TRT] dla/dlaUtils.cpp (171) - DLA Error in deserialize: 7 (Failure to load program.)\n",
        ("MSG35",),
        reason="MSG35",
    ),
    "7.1 partition in lists": Excerpt(
        OLD_SUMMARY,
        regions=("{Tanh_3,Mul_4,Conv_5}", "{Tanh_8,Mul_9}"),
        gpu=("Conv_0", "2253[Constant]", "(Unnamed Layer* 6) [Constant] + (Unnamed Layer* 7) [Shuffle]", "Softplus_2"),
    ),
    "7.1 regions of other memories": Excerpt(
        "[09/29/2020-17:08:38] [E] [TRT] ../builder/cudnnBuilder2.cpp (1757) - Assertion Error in operator(): 0 (et.region->getType() == RegionType::kNVM)\n"
        "[09/29/2020-17:08:38] [E] Engine creation failed\n[09/29/2020-17:08:38] [E] Engine set up failed\n"
        "&&&& FAILED TensorRT.trtexec # trtexec --onnx=n.onnx --useDLACore=0 --allowGPUFallback\n",
        ("MSG31", "LOG04"),
        reason="MSG31",
        failed=True,
    ),
    "7.x dynamic shapes": Excerpt(
        "[07/29/2021-19:44:10] [07/29/2021-19:44:10] [W] [TRT] DLA Layer net/Relu does not support dynamic shapes in any dimension.\n"
        "[07/29/2021-19:44:10] [07/29/2021-19:44:10] [W] [TRT] Default DLA is enabled but layer net/Relu is not supported on DLA, falling back to GPU.\n",
        ("MSG21", "MSG01"),
        refused=("net/Relu",),
    ),
    "8.0 no fallback": Excerpt(
        "&&&& RUNNING TensorRT.trtexec [TensorRT v8001] # trtexec --onnx=n.onnx --int8 --useDLACore=0\n"
        "[E] Error[9]: [standardEngineBuilder.cpp::isValidDLAConfig::2189] Error Code 9: Internal Error (Default DLA is enabled but layer Slice_3 is not supported on DLA and falling back to GPU is not enabled.)\n"
        "[E] Error[2]: [builder.cpp::buildSerializedNetwork::417] Error Code 2: Internal Error (Assertion enginePtr != nullptr failed.)\n"
        "&&&& FAILED TensorRT.trtexec [TensorRT v8001] # trtexec --onnx=n.onnx --int8 --useDLACore=0\n",
        ("MSG02", "LOG04"),
        reason="MSG02",
        refused=("Slice_3",),
        version="8.0.1",
        failed=True,
    ),
    "8.2 partition": Excerpt(
        "[02/19/2022-05:35:26] [I] [TRT] ---------- Layers Running on DLA ----------\n"
        "[02/19/2022-05:35:26] [I] [TRT] [DlaLayer] {ForeignNode[conv1_1...pool5]}\n"
        "[02/19/2022-05:35:26] [I] [TRT] [DlaLayer] {ForeignNode[relu6...fc8]}\n"
        "[02/19/2022-05:35:26] [I] [TRT] ---------- Layers Running on GPU ----------\n"
        "[02/19/2022-05:35:26] [I] [TRT] [GpuLayer] SHUFFLE: shuffle_between_pool5_and_fc6\n"
        "[02/19/2022-05:35:26] [I] [TRT] [GpuLayer] SOFTMAX: prob\n",
        regions=("conv1_1...pool5", "relu6...fc8"),
        gpu=("shuffle_between_pool5_and_fc6", "prob"),
    ),
    "8.3 tensor cache": Excerpt(
        "[E] Error[2]: [nvmediaTensorCache.cpp::registerTensor::80] Error Code 2: Internal Error (Assertion nbTensors <= capacity() failed. Found a case where the cache is too small.)\n"
        "[E] Error[2]: [builder.cpp::buildSerializedNetwork::607] Error Code 2: Internal Error (Assertion enginePtr != nullptr failed. )\n"
        "[E] Engine could not be created from network\n",
        ("MSG36", "LOG04"),
        reason="MSG36",
        failed=True,
    ),
    "8.4 program not taken": Excerpt(
        "ERROR: [Torch-TensorRT TorchScript Conversion Context] - 1: [nvdlaUtils.cpp::submit::198] Error Code 1: DLA (Failure to submit program to DLA engine.)\n"
        "ERROR: [Torch-TensorRT TorchScript Conversion Context] - 2: [builder.cpp::buildSerializedNetwork::620] Error Code 2: Internal Error (Assertion engine != nullptr failed. )\n",
        ("MSG34", "LOG04"),
        reason="MSG34",
        failed=True,
    ),
    "8.4 standalone with a layer off the DLA, after an error about flags": Excerpt(
        "[04/22/2024-19:51:27] [E] Error[3]: [builderConfig.cpp::setFlag::65] Error Code 3: API Usage Error (Parameter check failed at: optimizer/api/builderConfig.cpp::setFlag::65, condition: builderFlag != BuilderFlag::kPREFER_PRECISION_CONSTRAINTS || !flags[BuilderFlag::kOBEY_PRECISION_CONSTRAINTS]. )\n"
        "[04/22/2024-19:51:27] [E] Error[2]: [nvmRegionOptimizer.cpp::forceToUseNvmIO::175] Error Code 2: Internal Error (Assertion std::all_of(a->consumers.begin(), a->consumers.end(), [](Node* n) { return isDLA(n->backend); }) failed. )\n"
        "[04/22/2024-19:51:27] [E] Building engine failed\n&&&& FAILED TensorRT.trtexec [TensorRT v8401] # trtexec\n",
        ("MSG37", "LOG04"),
        reason="MSG37",
        version="8.4.1",
        failed=True,
        errors=1,
    ),
    "8.5 direct I/O": Excerpt(
        "[optimizer.cpp::checkIfDirectIOIsPossible::4316] Error Code 4: Internal Error (BuilderFlag::kDIRECT_IO specified but no conformant implementation exists)\n"
        "[builder.cpp::buildSerializedNetwork::751] Error Code 2: Internal Error (Assertion engine != nullptr failed. )\n",
        ("MSG50", "LOG04"),
        reason="MSG50",
        failed=True,
    ),
    "8.5 loadable does not compile": Excerpt(
        "[E] Error[10]: [optimizer.cpp::computeCosts::3869] Error Code 10: Internal Error (Could not find any implementation for node {ForeignNode[/cnn/cnn.0/Conv]}.)\n"
        "&&&& FAILED TensorRT.trtexec [TensorRT v8502] # trtexec --onnx=model_gn.onnx --int8 --useDLACore=0 --allowGPUFallback\n",
        ("MSG29",),
        reason="MSG29",
        version="8.5.2",
        failed=True,
    ),
    "8.5 loadable given to trtexec": Excerpt(
        "[09/04/2024-13:51:47] [E] Error[9]: Cannot deserialize serialized engine built with EngineCapability::kDLA_STANDALONE, use cuDLA APIs instead.\n"
        "[09/04/2024-13:51:47] [E] Error[4]: [runtime.cpp::deserializeCudaEngine::65] Error Code 4: Internal Error (Engine deserialization failed.)\n"
        "[09/04/2024-13:51:47] [E] Got invalid engine!\n[09/04/2024-13:51:47] [E] Inference set up failed\n"
        "&&&& FAILED TensorRT.trtexec [TensorRT v8510] # trtexec --verbose --loadEngine=dla_fusion.dla\n",
        ("MSG40", "LOG11"),
        reason="MSG40",
        version="8.5.10",
        failed=True,
    ),
    "8.6 plugin beside the DLA": Excerpt(
        "[E] Error[9]: [pluginV2Builder.cpp::reportPluginError::24] Error Code 9: Internal Error (/bev/DeformableAggregation: could not find any supported formats consistent with input/output data types)\n"
        "[E] Engine could not be created from network\n",
        ("LOG12", "LOG04"),
        reason="LOG12",
        failed=True,
    ),
    "8.6 fused layers on the GPU": Excerpt(
        "[08/29/2023-19:39:09] [I] [TRT] [GpuLayer] POINTWISE: PWN(PWN(Sigmoid_133), Mul_134)\n"
        "[08/29/2023-19:39:09] [I] [TRT] [GpuLayer] COPY: onnx::Slice_251 copy\n",
        gpu=("PWN(PWN(Sigmoid_133), Mul_134)", "onnx::Slice_251 copy"),
    ),
    "10.3 refusals in the order of Ultralytics": Excerpt(
        "[12/04/2024-11:57:45] [TRT] [W] /model.23/Concat_4: DLA only supports concatenation on the C dimension.\n"
        "[12/04/2024-11:57:45] [TRT] [W] Layer '/model.23/Concat_4' (CONCATENATION): Unsupported on DLA. Switching this layer's device type to GPU.\n"
        "[12/04/2024-11:57:45] [TRT] [W] This version of DLA does not support reshape layers directly connected to Slice or Concat\n"
        "[12/04/2024-11:57:45] [TRT] [W] Validation failed for DLA layer: /m.0/attn/Reshape. Switching to GPU fallback.\n"
        "[12/04/2024-11:57:45] [TRT] [W] Splitting DLA subgraph at: /m.0/attn/Reshape because DLA validation failed for this layer.\n",
        ("MSG06", "MSG03", "MSG16", "MSG18", "MSG19"),
        refused=("/model.23/Concat_4", "/m.0/attn/Reshape"),
    ),
    "10.3 no fallback": Excerpt(
        "[E] Error[2]: Error Code 2: Internal Error (Assertion allowGPUFallback failed. Layer '644' is not supported on DLA but GPU fallback is not enabled.)\n"
        "[E] Error[4]: Error Code 4: Internal Error (DLA validation failed)\n",
        ("MSG04", "MSG51"),
        reason="MSG04",
        refused=("644",),
        failed=True,
    ),
    "10.3 dynamic shapes, DLA not asked for": Excerpt(
        "[03/11/2025-13:38:34] [TRT] [W] DLA requests all profiles have same min, max, and opt value. All dla layers are falling back to GPU\n",
        ("MSG49",),
    ),
    "10.3 verbose build without GPU layers": Excerpt(
        "[06/26/2025-20:38:43] [V] [TRT] ---------- Layers Running on GPU ----------\n"
        "[06/26/2025-20:38:43] [V] [TRT] No layer is running on GPU\n"
        "[06/26/2025-20:38:45] [V] [TRT] DLA Memory Pool Sizes: Managed SRAM = 1 MiB, Local DRAM = 1024 MiB, Global DRAM = 512 MiB\n"
        "[06/26/2025-20:38:51] [V] [TRT] {ForeignNode[/a...b]} successfully offloaded to DLA.\n",
        ("MSG28", "MSG26"),
    ),
    "10.16 the parser's own check": Excerpt(
        "[E] [TRT] ModelImporter.cpp:971: ERROR: ModelImporter.cpp:213 In function parseNode:\n[6] DLA validation failed for layer: /fc/Gemm\n",
        ("MSG25",),
        refused=("/fc/Gemm",),
        errors=1,
    ),
    "11.1 options that are on their way out": Excerpt(
        "[W] --noDataTransfers is deprecated. Data transfers are now disabled by default.\n"
        "[W] --buildOnly flag has been deprecated by --skipInference flag.\n"
        "&&&& PASSED TensorRT.trtexec [TensorRT v110100] # trtexec\n",
        ("LOG13",),
        version="11.1.0",
    ),
    "8.0 an option of a later version": Excerpt(
        "[E] Unknown option: --exportLayerInfo graph.json\n&&&& FAILED TensorRT.trtexec [TensorRT v8001] # trtexec\n",
        ("LOG10",),
        reason="LOG10",
        version="8.0.1",
        failed=True,
    ),
    "fallback allowed, so the refusal is not why it failed": Excerpt(
        "[W] [TRT] MatMul is unsupported on DLA, relax constraints or use Convolution layer instead.\n"
        "[E] Error[2]: [somewhere.cpp::f::1] Error Code 2: Internal Error (Assertion nobody knows failed.)\n"
        "[E] Engine could not be created from network\n"
        "&&&& RUNNING TensorRT.trtexec [TensorRT v8602] # trtexec --useDLACore=0 --allowGPUFallback\n",
        ("MSG14", "LOG04"),
        version="8.6.2",
        failed=True,
        errors=1,
    ),
}


@pytest.mark.parametrize("name", EXCERPTS)
def test_excerpts_of_versions(name: str) -> None:
    excerpt = EXCERPTS[name]
    report = read(excerpt.text)
    assert tuple(finding.kind.id for finding in report.findings) == excerpt.kinds
    assert (report.reason.kind.id if report.reason else "") == excerpt.reason
    assert report.refused == excerpt.refused
    assert report.version == excerpt.version
    assert report.failed == excerpt.failed
    assert (report.unknown, report.errors) == (excerpt.unknown, excerpt.errors)
    assert report.dla_regions == excerpt.regions
    assert report.gpu_layers == excerpt.gpu


def test_lists_of_layers_are_no_other_lines_that_come_between() -> None:
    between = "[W] [TRT] MatMul is unsupported on DLA, relax constraints or use Convolution layer instead.\n"
    lines = OLD_SUMMARY.splitlines(keepends=True)
    report = read(
        "".join([lines[0], between, *lines[1:3], "[I] [TRT] Detected 1 inputs and 3 output network tensors.\n"])
    )
    assert [finding.kind.id for finding in report.findings] == ["MSG14"]
    assert report.gpu_layers == ()
    assert report.dla_regions == ()


def test_the_corpus_is_large_enough() -> None:
    assert len(EXCERPTS) + len(WORDINGS) >= 60


def test_errors_that_nobody_has_documented_are_shown_and_not_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = EXCERPTS["fallback allowed, so the refusal is not why it failed"].text
    report = read(text)
    shown = log_text("log", report, None)
    assert "reason: nobody has documented it" in shown
    assert shown.index("nobody knows") < shown.index("A matrix multiplication")
    document = log_document("log", report, None)
    assert document["reason"] is None
    assert document["errors"]["lines"] == 1
    log = tmp_path / "build.log"
    log.write_text("[E] Error[3]: [x.cpp::f::1] Error Code 3: API Usage Error (something)\n")
    assert main(["explain-log", str(log)]) == 1
    assert "1 error that orinport does not know" in capsys.readouterr().out
    log.write_text("[E] something\n&&&& PASSED TensorRT.trtexec [TensorRT v8602] # trtexec\n")
    assert main(["explain-log", str(log)]) == 0


def read(text: str) -> LogReport:
    return read_log(io.StringIO(text))


WORDINGS = [
    (message.id, text) for message in log_messages().values() if message.id not in NOT_CLASSED for text in message.texts
]


@pytest.mark.parametrize(("name", "text"), WORDINGS, ids=[f"{name}-{i}" for i, (name, _) in enumerate(WORDINGS)])
def test_every_wording_is_recognised_in_every_frame(name: str, text: str) -> None:
    for prefix in PREFIXES:
        report = read(f"{prefix}{text}\n")
        assert [finding.kind.id for finding in report.findings] == [name], (prefix, text)
        assert report.unknown == 0


def test_there_are_enough_wordings() -> None:
    assert len(WORDINGS) >= 40


def test_every_kind_says_what_it_means_and_what_to_do() -> None:
    for kind in log_classes():
        assert kind.meaning
        assert kind.weight in ("refusal", "fatal", "consequence", "note")
        assert kind.help or kind.weight == "note"
        assert set(kind.codes) <= set(titles())


def test_a_build_that_passed() -> None:
    report = read(PASSED)
    assert (report.version, report.outcome) == ("8.6.2", "PASSED")
    assert report.reason is None
    assert report.refused == ("mul", "mul2")
    assert report.dla_regions == ("conv0...relu3",)
    assert report.gpu_layers == ("mul", "reshape_1 + transpose_2")
    (pools,) = [finding for finding in report.findings if finding.kind.id == "MSG28"]
    assert pools.values == {"sram_mib": "1", "local_mib": "1024", "global_mib": "512"}


def test_the_forums_log_ends_in_its_true_reason() -> None:
    report = read(FORUM)
    assert report.outcome == "FAILED"
    assert report.reason is not None
    assert report.reason.kind.id == "MSG14"
    text = log_text("log", report, None)
    assert text.index("reason:") < text.index("Internal Error" if "Internal Error" in text else "The build ended")
    assert "DLA010" in text


def test_a_failure_without_a_dla_message_names_its_own_reason() -> None:
    report = read(
        "[E] [TRT] ModelImporter.cpp:774: In node 3: No importer registered for op: DCNv4_Plugin\n[E] Parsing model failed\n"
    )
    assert report.failed
    assert report.reason is not None
    assert report.reason.kind.id == "LOG01"
    assert dict(report.reason.names) == {"DCNv4_Plugin": 1}


def test_unknown_lines_are_counted_and_shown_and_not_guessed_at() -> None:
    report = read("[W] [TRT] DLA does something that nobody has written about\n" * 30 + "hello\n")
    assert report.findings == ()
    assert report.unknown == 30
    assert len(report.unknown_examples) == 20
    assert report.reason is None


def network() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weights = helper.make_tensor("w", TensorProto.FLOAT, [16, 16, 3, 3], rng.standard_normal(16 * 16 * 9).tolist())
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu1"),
        helper.make_node("Softsign", ["b"], ["y"], name="sign2"),
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, 8, 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_logs_and_verdicts_that_agree() -> None:
    check = orinport.check(network())
    log = "Layer 'sign2' (ACTIVATION): Unsupported on DLA. Switching this layer's device type to GPU.\n[DlaLayer] {ForeignNode[conv0...relu1]}\n[GpuLayer] ACTIVATION: sign2\n"
    match = match_log(read(log), check)
    assert match.differences == ()
    assert match.unmatched == ()
    assert match.nodes["conv0...relu1"] == ("conv0", "relu1")
    assert match.causes["sign2"]
    assert "agree" in log_text("log", read(log), match)


def test_logs_and_verdicts_that_contradict_each_other() -> None:
    check = orinport.check(network())
    log = read(
        "Layer 'conv0' (CONVOLUTION): Unsupported on DLA. Switching this layer's device type to GPU.\n[DlaLayer] {ForeignNode[relu1...sign2]}\n"
    )
    match = match_log(log, check)
    assert {(d.layer, d.ours, d.log) for d in match.differences} >= {("conv0", "dla", "refused")}
    assert any(d.nodes == ("sign2",) and d.ours == "gpu" for d in match.differences)
    assert "disagree" in log_text("log", log, match)


def test_a_difference_is_a_report_that_can_be_sent() -> None:
    check = orinport.check(network(), target="orin-agx-64gb/jp6.0")
    line = "Layer 'conv0' (CONVOLUTION): Unsupported on DLA. Switching this layer's device type to GPU."
    log = read(f"[I] TensorRT version: 8.6.2\n[W] [TRT] {line}\n")
    match = match_log(log, check)
    (difference,) = match.differences
    report = log_document("log", log, match)["differences"][0]["report"].splitlines()
    assert report[0] == "### orinport says that the DLA takes a CONVOLUTION which the log has refused"
    assert f"- orinport {orinport.__version__}, target orin-agx-64gb/jp6.0, fp16" in report
    assert "- log of TensorRT 8.6.2" in report
    assert "kernel=(3, 3)" in next(row for row in report if row.startswith("- layer:"))
    assert "- tensors: fp32 1x16x8x8" in "\n".join(report)
    assert f"- evidence: MSG03: {line}" in report
    assert difference.nodes == ("conv0",)
    assert "\n".join(report) in log_text("log", log, match)


def test_what_lies_inside_a_region_of_the_log_is_compared_too() -> None:
    model = network()
    model.graph.node.add().CopyFrom(helper.make_node("Relu", ["y"], ["z"], name="relu3"))
    model.graph.output[0].name = "z"
    check = orinport.check(model)
    verdicts = {row.layer.name: row.verdict.value for row in check.layers}
    assert verdicts["sign2"] == "gpu"
    match = match_log(read("[DlaLayer] {ForeignNode[conv0...relu3]}\n"), check)
    assert [(d.layer, d.log) for d in match.differences] == [("sign2", "inside a DLA region")]
    fallen = match_log(read("[DlaLayer] {ForeignNode[conv0...relu3]}\n[GpuLayer] ACTIVATION: sign2\n"), check)
    assert fallen.differences == ()


LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


@pytest.mark.parametrize("name", ["densenet121", "inception_v2", "resnet50", "shufflenet", "squeezenet"])
def test_a_partition_like_our_own_agrees(name: str) -> None:
    check = orinport.check(LIGHT / f"light_{name}.onnx")
    lines = []
    for region in check.placement.regions:
        if region.device == "dla":
            lines.append(f"[DlaLayer] {{ForeignNode[{region.layers[0].name}...{region.layers[-1].name}]}}\n")
        else:
            lines += [f"[GpuLayer] {layer.kind.value}: {layer.name}\n" for layer in region.layers]
    match = match_log(read("".join(lines)), check)
    assert match.differences == ()
    assert match.unmatched == ()


def test_a_log_of_another_version_is_pointed_out() -> None:
    check = orinport.check(network(), target="orin-agx-64gb/jp6.0")
    for version, told in (("8.6.2", False), ("8.6.1", False), ("10.3.0", True)):
        log = read(f"[I] TensorRT version: {version}\n[GpuLayer] ACTIVATION: sign2\n")
        said = f"the log is of TensorRT {version}, and orin-agx-64gb/jp6.0 has 8.6.2"
        assert (said in log_text("log", log, match_log(log, check))) is told


def test_a_log_of_another_network_is_not_said_to_agree() -> None:
    check = orinport.check(network())
    log = read("Layer 'other' (POOLING): Unsupported on DLA. Switching this layer's device type to GPU.\n")
    text = log_text("log", log, match_log(log, check))
    assert "no layer of the log is in this network" in text
    assert "agree" not in text


def test_damaged_and_interleaved_logs_do_not_break_it() -> None:
    rng = random.Random(0)
    text = (
        PASSED
        + FORUM
        + "".join(excerpt.text for excerpt in EXCERPTS.values())
        + "".join(f"[W] [TRT] {wording}\n" for _, wording in WORDINGS)
    )
    for _ in range(300):
        lines = text.splitlines(keepends=True)
        rng.shuffle(lines)
        joined = "".join(line[: rng.randrange(len(line) + 1)] if rng.random() < 0.4 else line for line in lines)
        data = bytearray(joined.encode())
        for _ in range(rng.randrange(60)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        report = read(data.decode("utf-8", "replace"))
        json.dumps(log_document("log", report, None))
        assert "\x1b" not in log_text("log", report, None)


def test_a_line_without_end_takes_no_memory(tmp_path: Path) -> None:
    """256 MiB of zeros in one line, as a file with a hole; then a line that counts."""
    log = tmp_path / "hole.log"
    with log.open("wb") as file:
        file.truncate(1 << 28)
        file.seek(0, 2)
        file.write(b"\nMatMul is unsupported on DLA, relax constraints or use Convolution layer instead.\n")
    tracemalloc.start()
    with log.open(errors="replace") as lines:
        report = read_log(lines)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.lines == 2
    assert [finding.kind.id for finding in report.findings] == ["MSG14"]
    assert most < 1 << 20


def test_long_lines_are_cut() -> None:
    report = read("DLA " + "x" * 10_000_000 + "\n")
    assert report.unknown == 1
    assert len(report.unknown_examples[0]) <= 300


@pytest.mark.slow
def test_100_megabytes_in_time(tmp_path: Path) -> None:
    rng = random.Random(0)
    plain = [
        f"[09/01/2023-08:00:{i:02d}] [V] [TRT] Tactic: 0x{rng.getrandbits(64):016x} Time: {rng.random():.6f}\n"
        for i in range(60)
    ]
    with (tmp_path / "long.log").open("w") as file:
        while file.tell() < 100_000_000:
            file.writelines(plain * 20)
            file.write(PASSED)
    start = time.process_time()
    with (tmp_path / "long.log").open() as lines:
        report = read_log(lines)
    assert time.process_time() - start < 10
    assert report.refused == ("mul", "mul2")


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "build.log"
    log.write_text(FORUM)
    assert main(["explain-log", str(log)]) == 1
    assert "reason: A matrix multiplication is not taken." in capsys.readouterr().out
    onnx.save(network(), tmp_path / "net.onnx")
    assert main(["explain-log", str(log), "-m", str(tmp_path / "net.onnx"), "-f", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["reason"] == "MSG14"
    assert document["unmatched"] == ["product"]
    monkeypatch.setattr("sys.stdin", io.StringIO("nothing of interest\n"))
    assert main(["explain-log", "-"]) == 0
    assert main(["explain-log", str(tmp_path / "missing.log")]) == 2


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
def test_logs_that_powershell_has_redirected(tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str) -> None:
    log = tmp_path / "build.log"
    mark = codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b""
    log.write_bytes(mark + FORUM.replace("\n", "\r\n").encode(encoding))
    assert main(["explain-log", str(log)]) == 1
    told = capsys.readouterr().out
    assert "reason: A matrix multiplication is not taken." in told
    with log.open("rb") as stdin:
        done = subprocess.run(
            [sys.executable, "-m", "orinport", "explain-log", "-"],
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stdout == told.replace(str(log), "stdin")


def test_utf_16_that_breaks_off(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_bytes(FORUM.encode("utf-16")[:-1] + b"\xd8")
    assert main(["explain-log", str(log)]) == 1
    log.write_bytes(codecs.BOM_UTF16_LE)
    assert main(["explain-log", str(log)]) == 0


def test_a_long_line_in_utf_16_takes_little_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "build.log"
    log.write_bytes(("x" * 10_000_000 + "\n" + FORUM).encode("utf-16"))
    tracemalloc.start()
    try:
        assert main(["explain-log", str(log)]) == 1
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
