"""The command line: exit status, one line for what a user got wrong, nothing imported that is not needed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_ir import DataType

from orinport import cli
from orinport.cli import main
from orinport.model.load import load

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
COMMANDS = tuple(cli._COMMANDS)


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    """A network that the DLA takes as it is."""
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, 8, 8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="relu")], "g", info[:1], info[1:])
    path = tmp_path / "relu.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_clean_network_exits_0(relu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "check", relu)
    assert status == 0
    assert "Every layer is one that the DLA takes." in out
    assert err == ""


def test_findings_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "check", LIGHT / "light_resnet50.onnx", "-f", "json")
    assert status == 1
    document = json.loads(out)
    summary = document["summary"]
    assert summary["layers"] == summary["dla"] + summary["gpu"] + summary["unknown"] + summary["blocked"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "missing.onnx"], "missing.onnx"),
        (["check"], "MODEL"),
        (["nonsense"], "nonsense"),
        (["check", "RELU", "--target", "toaster/jp6.2"], "toaster"),
        (["check", "RELU", "--target", "orin-agx-64gb/jp99"], "jp99"),
        (["check", "RELU", "--precision", "int4"], "int4"),
        (["check", "RELU", "--format", "xml"], "xml"),
        (["check", "RELU", "--shapes", "y:1x2"], "y"),
        (["explain", "DLA9999"], "DLA9999"),
        (["prepare", "RELU", "--output", "RELU"], "not a folder"),
        (["prepare", "RELU", "--precision", "int8"], "INT8"),
        (["prepare", "RELU", "--dla-core", "7"], "core 7"),
        (["verify", "RELU", "missing"], "missing"),
        (["verify", "RELU", "RELU", "--cases", "0"], "0 random inputs"),
        (["verify", "RELU", "--as", "dla-fp16", "--min-snr", "nan"], "--min-snr is no number"),
        (["verify", "RELU", "--as", "dla-fp16", "--cases", "-1"], "cannot be negative"),
        (["verify", "RELU", "--as", "dla-fp16", "--scales", "s.json"], "FP16 has no scales"),
        (["verify", "RELU", "--as", "dla-fp16", "--rank"], "INT8 are ranked"),
        (["verify", "RELU", "--as", "dla-fp16", "--preprocess", "p.toml"], "not preprocessed"),
        (["verify", "RELU", "--as", "dla-int8", "--tolerance", "0.1"], "for two networks"),
        (["run", "RELU", "--min-snr", "nan"], "--min-snr is no number"),
        (["run", "RELU", "--backend", "onnxruntime", "--dla-core", "9"], "has no use for --dla-core"),
        (["predict", "RELU", "--rows", "-1"], "-1 rows"),
        (["targets", "nothing"], "nothing"),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else None,
)
def test_what_a_user_gets_wrong_is_one_line(
    arguments: list[str], says: str, relu: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, *(str(relu) if a == "RELU" else a for a in arguments))
    assert status == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert says in err


def test_a_defect_is_said_to_be_one(
    relu: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("orinport.api.check_model", broken)
    status, _, err = run(capsys, "check", relu)
    assert status == 3
    assert "defect of orinport" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"), "Set TMPDIR to a folder"),
        (OSError(errno.ENOSPC, "No space left on device"), "A file cannot be written: No space left on device."),
        (OSError(errno.EROFS, "Read-only file system", "/a/b"), "'/a/b' cannot be written: Read-only file system."),
    ],
    ids=["no folder", "full", "read-only"],
)
def test_what_the_machine_lacks_is_no_defect(
    relu: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: OSError, says: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("orinport.api.check_model", broken)
    status, _, err = run(capsys, "check", relu)
    assert status == 2
    assert says in err
    assert len(err.splitlines()) == 1


def test_interruption_exits_130(
    relu: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("orinport.api.check_model", interrupted)
    assert run(capsys, "check", relu)[0] == 130


def test_prepare_then_verify(relu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = relu.read_bytes()
    assert run(capsys, "prepare", relu)[0] == 0
    assert relu.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["relu.onnx", "relu.orin"]
    assert sorted(p.name for p in (tmp_path / "relu.orin").iterdir()) == [
        "build.sh",
        "model.onnx",
        "report.html",
        "report.json",
        "report.txt",
    ]
    status, _, err = run(capsys, "prepare", relu)
    assert status == 2
    assert "--force" in err
    assert run(capsys, "prepare", relu, "--force")[0] == 0
    assert run(capsys, "verify", relu, tmp_path / "relu.orin")[0] == 0


def test_verify_of_another_function_exits_1(relu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onnx.load(relu)  # noqa: TID251 written above
    model.graph.node[0].op_type = "Sigmoid"
    onnx.save(model, tmp_path / "other.onnx")
    status, out, _ = run(capsys, "verify", relu, tmp_path / "other.onnx")
    assert status == 1
    assert "DIFFERS" in out


def test_select_changes_what_is_shown_and_not_the_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    model = LIGHT / "light_resnet50.onnx"
    every = json.loads(run(capsys, "check", model, "-f", "json")[1])
    some = json.loads(run(capsys, "check", model, "-f", "json", "--select", "DLA0", "--ignore", "DLA03")[1])
    assert some["summary"] == every["summary"]
    assert some["findings"]
    assert all(f["code"].startswith("DLA0") and not f["code"].startswith("DLA03") for f in some["findings"])
    assert len(some["findings"]) < len(every["findings"])


def test_output_goes_to_a_file(relu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "check", relu, "-f", "json", "-o", tmp_path / "r.json")
    assert (status, out) == (0, "")
    assert json.loads((tmp_path / "r.json").read_text())["schema_version"] == 1


def test_an_output_that_cannot_be_written_is_one_line(
    relu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, "check", relu, "-o", tmp_path / "no" / "r.txt")
    assert status == 2
    assert "cannot be written" in err


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, *([command] if command else []), "--help")
    assert status == 0
    assert "Usage" in out


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_help_starts_quickly_and_check_imports_little(relu: Path) -> None:
    best = min(
        int(line.split("|")[1])
        for _ in range(3)
        for line in python("-X", "importtime", "-m", "orinport", "--help").stderr.splitlines()
        if line.rstrip().endswith("| orinport.cli") or line.rstrip().endswith("| runpy")
    )
    assert best < 300_000
    code = f"from orinport.cli import main; main(['check', {str(relu)!r}]); import sys; print(*sys.modules)"
    loaded = set(python("-c", code).stdout.split())
    assert "onnx" in loaded
    assert not {"onnxruntime", "onnxscript", "torch", "tensorrt_rtx", "jinja2"} & loaded


def test_help_under_300_ms_of_imports() -> None:
    """The sum of all imports, as `python -X importtime` shows them; the best of some runs, for a busy machine."""
    totals: list[int] = []
    while len(totals) < 12 and (not totals or min(totals) >= 300_000):
        lines = python("-X", "importtime", "-m", "orinport", "--help").stderr.splitlines()
        own = [line.split("|")[0].removeprefix("import time:").strip() for line in lines if "|" in line]
        totals.append(sum(int(text) for text in own if text.isdigit()))
    assert min(totals) < 300_000


def test_colour_follows_no_color(relu: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orinport", "check", str(relu)],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
        check=False,
    )
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("command", sorted(set(cli._COMMANDS) - {"dcnv4"}))
def test_help_tells_the_exit_status(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, command, "--help")
    assert status == 0
    assert "Exit status:" in " ".join(out.split())
    assert "--empty-" not in out


def test_a_closed_pipe_is_no_defect(relu: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m orinport explain | head -1"], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("DLA")
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["check", "predict"])
def test_an_output_never_replaces_the_network(command: str, relu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = relu.read_bytes()
    other = relu.with_name("other.onnx")
    other.symlink_to(relu)
    for output in (relu, other):
        status, _, err = run(capsys, command, relu, "--format", "json", "-o", output)
        assert status == 2
        assert "is the input file, which is never changed" in err
        assert relu.read_bytes() == content


def test_a_plan_never_replaces_the_values_that_it_is_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = tmp_path / "values.npy"
    np.save(values, np.ones((32, 32), np.float32))
    content = values.read_bytes()
    status, _, err = run(capsys, "matmul", "32", "32", "32", "--values", values, "--write", values, "--force")
    assert status == 2
    assert "is the input file, which is never changed" in err
    assert values.read_bytes() == content


def test_a_missing_folder_is_told_before_the_work(relu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "rewrite", relu, "-o", relu.parent / "nowhere" / "new.onnx")
    assert (status, out) == (2, "")
    assert "does not exist" in err


def test_an_output_never_replaces_the_log_or_its_network(
    relu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "build.log"
    log.write_text("[I] nothing\n", encoding="utf-8")
    for output in (log, relu):
        content = output.read_bytes()
        status, _, err = run(capsys, "explain-log", log, "--model", relu, "-o", output)
        assert (status, output.read_bytes()) == (2, content)
        assert "is the input file" in err


def test_an_output_never_replaces_what_report_reads(
    relu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "relu.orin"
    assert run(capsys, "prepare", relu, "-o", bundle)[0] == 0
    for name in ("report.json", "model.onnx"):
        content = (bundle / name).read_bytes()
        assert run(capsys, "report", bundle, "-f", "csv", "-o", bundle / name)[0] == 2
        assert (bundle / name).read_bytes() == content


@pytest.mark.parametrize("command", ["explain-log", "report"])
def test_a_device_is_refused_at_once(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orinport", command, "/dev/zero"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_a_pipe_is_no_report(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report.json")
    done = python("-m", "orinport", "report", str(tmp_path))
    assert done.returncode == 2
    assert "no plain file" in done.stderr


def test_verify_takes_bundles_in_half_precision(relu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = tmp_path / "relu.orin"
    assert run(capsys, "prepare", relu, "--target", "orin-agx-64gb/jp7.2.2", "-o", bundle)[0] == 0
    assert load(bundle / "model.onnx").graph.inputs[0].dtype == DataType.FLOAT16
    status, _, err = run(capsys, "verify", relu, bundle)
    assert (status, err) == (0, "")


@pytest.mark.parametrize("option", ["--tolerance=nan", "--tolerance=inf", "--tolerance=-1", "--seed=-1"])
def test_verify_refuses_numbers_that_say_nothing(option: str, relu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "verify", relu, relu, option)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "defect" not in err


def test_verify_allows_for_inputs_in_half_precision_without_a_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = []
    for name, dtype in (("single", TensorProto.FLOAT), ("half", TensorProto.FLOAT16)):
        info = helper.make_tensor_value_info("x", dtype, [1, 3, 4, 4])
        graph = helper.make_graph([], "g", [info], [info])
        paths.append(tmp_path / f"{name}.onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), paths[-1])
    assert run(capsys, "verify", *paths)[0] == 0


def test_approximations_need_consent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, 8, 8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Softplus", ["x"], ["y"], name="softplus")], "g", info[:1], info[1:])
    path = tmp_path / "softplus.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    assert run(capsys, "prepare", path, "-o", tmp_path / "exact")[0] == 1
    status, out, _ = run(capsys, "prepare", path, "-o", tmp_path / "near", "--allow", "tolerance")
    assert status == 0
    assert "activation-to-sigmoid" in out


def test_a_run_never_replaces_its_data(relu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = tmp_path / "data.py"
    shape = load(relu).inputs[0].shape
    code.write_text(f"import numpy as np\ndef samples():\n    yield np.ones({shape}, np.float32)\n", encoding="utf-8")
    array = tmp_path / "a.npy"
    np.save(array, np.ones(shape, np.float32))
    for data, output in ((array, array), (f"{code}:samples", code)):
        content = output.read_bytes()
        status, _, err = run(capsys, "run", relu, "--backend", "onnxruntime", "--data", data, "-o", output)
        assert (status, output.read_bytes()) == (2, content)
        assert "is the input file" in err


@pytest.mark.parametrize("command", ["check", "predict"])
def test_a_report_never_replaces_the_profile_of_its_target(
    command: str, relu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "mine.toml"
    profile.write_text('base = "orin-agx-64gb/jp6.2"\n', encoding="utf-8")
    status, _, err = run(capsys, command, relu, "--target", profile, "-o", profile)
    assert status == 2, err
    assert profile.read_text(encoding="utf-8") == 'base = "orin-agx-64gb/jp6.2"\n'


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "MODEL", "--as", "dla-int8", "--scales", "LONG"),
        ("verify", "LONG", "--as", "dla-fp16"),
        ("run", "LONG"),
        ("run", "MODEL", "--backend", "onnxruntime", "--save", "LONG"),
        ("prepare", "MODEL", "-o", "LONG"),
        ("prepare", "MODEL", "-o", "LONG", "--force"),
        ("quantize", "MODEL", "--data", "DATA", "--state", "LONG"),
        ("quantize", "MODEL", "--data", "LONG"),
        ("check", "MODEL", "-o", "LONG"),
        ("check", "LONG"),
    ],
)
def test_paths_that_are_too_long(
    arguments: tuple[str, ...], relu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = load(relu).inputs[0].shape
    np.save(tmp_path / "a.npy", np.ones(shape, np.float32))
    names = {"MODEL": relu, "LONG": tmp_path / ("x" * 300), "DATA": tmp_path / "a.npy"}
    status, _, err = run(capsys, *(names.get(each, each) for each in arguments))
    assert status == 2, err
    assert "too long" in err
    assert len(err.splitlines()) == 1
