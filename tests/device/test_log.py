"""Logs of TensorRT: every wording on record, damaged logs, long logs, and logs beside our own verdicts."""

# ruff: noqa: E501 log lines are as long as they are

from __future__ import annotations

import io
import json
import random
import time
from pathlib import Path

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


def test_damaged_and_interleaved_logs_do_not_break_it() -> None:
    rng = random.Random(0)
    text = PASSED + FORUM + "".join(f"[W] [TRT] {wording}\n" for _, wording in WORDINGS)
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
