"""Measuring a bundle's engine: trtexec is a stand-in here, which copies exports that were written for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from boards import SCRIPT, ssh_options, ssh_server, user, write_keys, write_program
from orinport.cli import main
from orinport.device.measure import built_core, measure_arguments, measure_here, measure_remotely
from orinport.errors import OrinportError
from orinport.targets.version import Version

PROFILE = """[
  { "count" : 100 }
, { "name" : "{ForeignNode[conv0...conv1]}", "timeMs" : 50.0, "averageMs" : 0.5, "medianMs" : 0.48, "percentage" : 100 }
]
"""
TIMES = '[{"latencyMs" : 0.6, "computeMs" : 0.5, "h2dMs" : 0.05, "d2hMs" : 0.05}]'


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle with an engine, and the stand-in with its exports beside it."""
    folder = tmp_path / "net.orin"
    folder.mkdir()
    weights = [helper.make_tensor(f"w{i}", TensorProto.FLOAT, [16, 16, 3, 3], [0.01] * 16 * 16 * 9) for i in range(2)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["t"], name="conv0", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["t", "w1"], ["y"], name="conv1", pads=[1, 1, 1, 1]),
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, 32, 32]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    (folder / "build.sh").write_text(SCRIPT)
    record = {"schema_version": 1, "target": "orin-nx-16gb/jp6.0", "precision": "fp16", "after": {}}
    (folder / "report.json").write_text(json.dumps(record))
    (folder / "model.engine").write_text("engine")
    (tmp_path / "profile.json").write_text(PROFILE)
    (tmp_path / "times.json").write_text(TIMES)
    monkeypatch.setenv("TRTEXEC", str(write_program(tmp_path / "trtexec")))
    for name in ("FAIL", "SLEEP"):
        monkeypatch.delenv(name, raising=False)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_exports_are_asked_for_as_the_version_spells_it() -> None:
    older, newer = measure_arguments(Version.parse("8.6.2"), 1), measure_arguments(Version.parse("11.4.1"))
    assert {"--loadEngine=model.engine", "--useDLACore=1", "--separateProfileRun"} <= set(older)
    assert "--separateProfileRun" not in newer
    assert {"--exportProfile=profile.json", "--exportTimes=times.json", "--exportLayerInfo=layers.json"} <= set(newer)


def test_the_core_is_the_one_that_was_built_for(bundle: Path) -> None:
    script = bundle / "build.sh"
    script.write_text("trtexec --onnx=model.onnx --useDLACore=1 --fp16")
    assert built_core(bundle) == 1
    script.write_text("trtexec --onnx=model.onnx --fp16")
    assert built_core(bundle) is None
    assert not any("useDLACore" in word for word in measure_arguments(Version.parse("8.6.2"), built_core(bundle)))


def test_measured_here(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(bundle), "-f", "json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (document["target"], document["precision"]) == ("orin-nx-16gb/jp6.0", "fp16")
    assert document["measured_us"] == pytest.approx(480.0)
    assert document["times_us"]["compute"] == pytest.approx(500.0)
    assert document["outside_layers_us"] == pytest.approx(20.0)
    assert document["rows"][0]["nodes"] == ["conv0", "conv1"]
    assert "[I] argument --loadEngine=model.engine" in err
    kept = {"layers.json", "profile.json", "profile.log", "times.json"}
    assert set(names(bundle)) == kept | {"build.sh", "model.engine", "model.onnx", "report.json"}
    assert main(["profile", str(bundle), str(bundle / "profile.json"), "--quiet", "-t", "orin-agx-64gb/jp6.0"]) == 0


def test_a_run_that_fails_is_explained_and_leaves_its_log(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = names(bundle)
    monkeypatch.setenv("FAIL", "1")
    assert main(["profile", str(bundle), "--quiet"]) == 1
    assert "trtexec ended with status 1 and measured nothing" in capsys.readouterr().out
    assert names(bundle) == sorted([*before, "profile.log"])


def test_without_trtexec_without_an_engine_and_with_a_loadable(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = names(bundle)
    monkeypatch.setenv("TRTEXEC", "/nowhere/trtexec")
    assert main(["profile", str(bundle)]) == 2
    assert "--host" in capsys.readouterr().err
    assert names(bundle) == before
    (bundle / "model.engine").rename(bundle / "model.loadable")
    assert main(["profile", str(bundle)]) == 2
    assert "layer statistics" in capsys.readouterr().err
    (bundle / "model.loadable").unlink()
    assert main(["profile", str(bundle)]) == 2
    assert "orinport build" in capsys.readouterr().err
    assert main(["profile", str(bundle / "model.onnx")]) == 2
    err = capsys.readouterr().err
    assert "There is no measurement" in err
    assert main(["profile", "nosuch.json"]) == 2
    assert capsys.readouterr().err == "orinport: There is no file or bundle 'nosuch.json'.\n"
    assert len(err.splitlines()) == 1


def test_interruption_leaves_no_exports(bundle: Path) -> None:
    before = names(bundle)
    process = subprocess.Popen(
        [sys.executable, "-m", "orinport", "profile", str(bundle)],
        env={**os.environ, "SLEEP": "30"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell ignores it
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "exportLayerInfo" in line:
            break
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(20) == 130
    assert names(bundle) == sorted([*before, "profile.log"])


def test_measured_over_a_real_ssh(bundle: Path, tmp_path: Path) -> None:
    write_keys(tmp_path)
    lines: list[str] = []
    with ssh_server(tmp_path, tmp_path / "trtexec") as port:
        ssh = ("ssh", *ssh_options(tmp_path), "-p", str(port))
        arguments = [*measure_arguments(Version.parse("8.6.2")), "it's two words"]
        done = measure_remotely(bundle, f"{user()}@127.0.0.1", arguments, lines.append, ssh=ssh)
    assert done.status == 0, lines
    assert done.profile == bundle / "profile.json"
    assert done.profile.read_text() == PROFILE
    assert done.times == bundle / "times.json"
    assert done.layers == bundle / "layers.json"
    assert "[I] argument it's two words" in lines
    folder = next(line for line in lines if line.startswith("[I] folder ")).removeprefix("[I] folder ")
    assert not Path(folder).exists()


def test_a_board_without_trtexec_says_so(bundle: Path, tmp_path: Path) -> None:
    write_keys(tmp_path)
    lines: list[str] = []
    with ssh_server(tmp_path, Path("/nowhere/trtexec")) as port:
        ssh = ("ssh", *ssh_options(tmp_path), "-p", str(port))
        done = measure_remotely(bundle, f"{user()}@127.0.0.1", [], lines.append, ssh=ssh)
    assert (done.status, done.profile) == (127, None)
    assert lines == ["trtexec was not found; set TRTEXEC to its path"]


def test_what_trtexec_did_not_write_is_none(bundle: Path, tmp_path: Path) -> None:
    done = measure_here(bundle, ["--exportTimes=times.json"], lambda _: None)
    assert (done.status, done.profile, done.times) == (0, None, bundle / "times.json")
    with pytest.raises(OrinportError, match="no engine"):
        measure_here(tmp_path, [], lambda _: None)


def test_a_board_runs_the_engine_that_it_has_built(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keys(tmp_path)
    own = bundle / "boards" / f"{user()}@127.0.0.1"
    own.mkdir(parents=True)
    (own / "model.engine").write_text("this board's engine")
    program = tmp_path / "trtexec"
    program.write_text(program.read_text().replace('engine=""', 'echo "[I] engine: $(cat model.engine)"\nengine=""', 1))
    with ssh_server(tmp_path, program) as port:
        words = " ".join(f"'{word}'" for word in ssh_options(tmp_path))
        folder = tmp_path / "bin"
        folder.mkdir()
        write_program(folder / "ssh", f'#!/bin/sh\nexec /usr/bin/ssh {words} -p {port} "$@"\n')
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        assert main(["profile", str(bundle), "--host", own.name, "--quiet"]) == 0
    assert "[I] engine: this board's engine" in (own / "profile.log").read_text()
    assert {"profile.json", "times.json", "layers.json"} <= set(names(own))
    assert "profile.json" not in names(bundle)
