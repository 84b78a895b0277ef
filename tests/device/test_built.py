"""What an engine was built from: an engine that an earlier bundle has left is never taken for the present one's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import orinport
from boards import write_program
from orinport.cli import main
from orinport.device.board import build_here
from orinport.device.built import outdated_builds, record_build, require_current
from orinport.errors import OrinportError


def network(value: float) -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.full((16, 16, 1, 1), value, np.float32), "w")
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, 8, 8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "g", info[:1], info[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle that was built."""
    folder = tmp_path / "net.orin"
    orinport.prepare(network(1.0), output=folder)
    monkeypatch.setenv("TRTEXEC", str(write_program(tmp_path / "trtexec")))
    for name in ("FAIL", "SLEEP"):
        monkeypatch.delenv(name, raising=False)
    assert build_here(folder, [], lambda _: None).product == folder / "model.engine"
    return folder


def test_the_same_bundle_keeps_its_engine(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = orinport.prepare(network(1.0), output=bundle, force=True)
    assert not [note for note in report.notes if "built" in note]
    require_current(bundle, bundle / "model.engine")
    assert outdated_builds(bundle) == ()


@pytest.mark.parametrize("by_hand", [False, True])
def test_an_engine_of_an_earlier_bundle_is_kept_and_not_used(
    bundle: Path, capsys: pytest.CaptureFixture[str], by_hand: bool
) -> None:
    if by_hand:
        (bundle / "build.json").unlink()  # as `sh build.sh` leaves it
    report = orinport.prepare(network(2.0), output=bundle, force=True)
    assert [note for note in report.notes if note.endswith("to be built again: model.engine")]
    assert (bundle / "model.engine").read_text() == "engine"
    for command in ("run", "profile"):
        assert main([command, str(bundle)]) == 2
        err = capsys.readouterr().err
        assert "model.engine' was built before the bundle changed (model.onnx)" in err
        assert len(err.splitlines()) == 1
    assert main(["run", str(bundle), "-b", "onnxruntime", "--cases", "1", "--repeat", "1"]) == 0
    assert main(["build", str(bundle), "--quiet"]) == 0
    require_current(bundle, bundle / "model.engine")


def test_a_bundle_that_is_copied_over_an_old_one(bundle: Path, tmp_path: Path) -> None:
    orinport.prepare(network(2.0), output=tmp_path / "new.orin")
    shutil.copytree(tmp_path / "new.orin", bundle, dirs_exist_ok=True)
    assert outdated_builds(bundle) == (bundle / "model.engine",)


def test_engines_of_boards_and_parts(bundle: Path) -> None:
    own = bundle / "boards" / "user@board"
    part = bundle / "parts" / "0-dla0"
    own.mkdir(parents=True)
    shutil.copy(bundle / "model.engine", own)
    shutil.copytree(bundle, part, ignore=shutil.ignore_patterns("parts", "boards", "build.json"))
    (bundle / "parts" / "link").symlink_to(bundle, target_is_directory=True)
    orinport.prepare(network(2.0), output=bundle, force=True)
    engines = {path.relative_to(bundle).parent.as_posix() for path in outdated_builds(bundle)}
    assert engines == {".", "boards/user@board", "parts/0-dla0"}


def test_an_engine_of_the_users_own_passes(bundle: Path) -> None:
    (bundle / "model.engine").write_text("another one")
    (bundle / "model.onnx").write_bytes(b"another network")
    require_current(bundle, bundle / "model.engine")
    require_current(bundle, bundle / "model.loadable")
    assert not outdated_builds(bundle)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"builds": 3}', '{"builds": {"model.engine": {"sha256": 1}}}'])
def test_a_record_that_is_none(bundle: Path, text: str) -> None:
    (bundle / "build.json").write_text(text)
    require_current(bundle, bundle / "model.engine")
    record_build(bundle / "model.engine", {"model.onnx": "0"})
    with pytest.raises(OrinportError, match=r"build.sh, model.onnx"):
        require_current(bundle, bundle / "model.engine")


def test_engine_and_loadable_have_a_record_each(bundle: Path) -> None:
    (bundle / "model.loadable").write_text("loadable")
    record_build(bundle / "model.loadable", {"model.onnx": "0"})
    assert set(json.loads((bundle / "build.json").read_text())["builds"]) == {"model.engine", "model.loadable"}
    assert outdated_builds(bundle) == (bundle / "model.loadable",)
