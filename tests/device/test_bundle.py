"""The folder for the board: written whole, never over something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from orinport.device.bundle import Workspace, require_free, write_bundle
from orinport.errors import OrinportError


def write(folder: Path, content: str = "m") -> tuple[str, ...]:
    with Workspace(folder) as scratch:
        (scratch / "model.onnx").write_text(content)
        return write_bundle(folder, scratch, {"build.sh": "#!/bin/sh\n", "report.json": "{}", "report.txt": "r"})


def test_a_new_folder_holds_the_bundle_and_nothing_else_is_left(tmp_path: Path) -> None:
    names = write(tmp_path / "out" / "net.orin")
    assert names == ("build.sh", "model.onnx", "report.json", "report.txt")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["net.orin"]
    assert (tmp_path / "out/net.orin/build.sh").stat().st_mode & 0o111


def test_an_existing_bundle_is_replaced_only_when_asked(tmp_path: Path) -> None:
    write(tmp_path / "b")
    (tmp_path / "b" / "model.onnx.data").write_text("old weights")
    (tmp_path / "b" / "mine.txt").write_text("keep")
    with pytest.raises(OrinportError, match="--force"):
        require_free(tmp_path / "b", force=False)
    require_free(tmp_path / "b", force=True)
    write(tmp_path / "b", "new")
    assert (tmp_path / "b/model.onnx").read_text() == "new"
    assert not (tmp_path / "b/model.onnx.data").exists()
    assert (tmp_path / "b/mine.txt").read_text() == "keep"


def test_force_does_not_touch_what_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/thesis.tex").write_text("years of work")
    with pytest.raises(OrinportError, match="holds no bundle"):
        require_free(tmp_path / "home", force=True)


def test_a_file_or_a_link_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        with pytest.raises(OrinportError, match="not a folder"):
            require_free(tmp_path / name, force=True)


def test_an_empty_or_missing_folder_is_free(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    require_free(tmp_path / "empty", force=False)
    require_free(tmp_path / "missing", force=False)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    (tmp_path / "empty" / "of the user").touch()
    with pytest.raises(OrinportError):
        require_free(tmp_path / "empty", force=False)


def test_the_scratch_folder_goes_away_after_a_failure(tmp_path: Path) -> None:
    def fail_half_way() -> None:
        with Workspace(tmp_path / "b") as scratch:
            (scratch / "model.onnx").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_takes_no_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(OrinportError, match="Nothing can be written"),
        Workspace(tmp_path / "file" / "below" / "out"),
    ):
        pass
