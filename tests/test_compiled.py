"""Where compiled libraries are kept: nobody else may put one there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from orinport.compiled import CacheFolderError, private_folder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shared" / "cache"
    folder.mkdir(parents=True)
    monkeypatch.setenv("ORINPORT_CACHE", str(folder))
    return folder


def test_a_folder_of_the_user_alone_is_taken(cache: Path) -> None:
    assert private_folder("cpu") == cache / "cpu"
    assert (cache / "cpu").stat().st_mode & 0o777 == 0o700
    assert private_folder("cpu") == cache / "cpu"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write_to_is_refused(cache: Path, mode: int) -> None:
    (cache / "cpu").mkdir()
    (cache / "cpu").chmod(mode)
    with pytest.raises(CacheFolderError, match="others may write"):
        private_folder("cpu")


def test_a_folder_that_others_may_replace_is_refused(cache: Path) -> None:
    cache.parent.chmod(0o777)
    with pytest.raises(CacheFolderError, match="others may write"):
        private_folder("cpu")
    cache.parent.chmod(0o1777)
    assert private_folder("cpu") == cache / "cpu"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_someone_else_is_refused(cache: Path) -> None:
    (cache / "cpu").mkdir(mode=0o700)
    os.chown(cache / "cpu", 65534, 65534)
    with pytest.raises(CacheFolderError, match="others may write"):
        private_folder("cpu")


def test_a_folder_that_takes_no_files_is_said_and_not_raised_as_a_defect(cache: Path, monkeypatch, tmp_path) -> None:
    from orinport import compiled

    def full(**_options: object) -> None:
        raise OSError(30, "Read-only file system")

    source = tmp_path / "empty.c"
    source.write_text("", encoding="utf-8")
    monkeypatch.setattr(compiled, "_compiler", lambda: ["cc"])
    monkeypatch.setattr(compiled, "_run", lambda _command: "cc 1")
    monkeypatch.setattr(compiled.tempfile, "mkstemp", full)
    with pytest.raises(compiled.CompileError, match="nothing can be written"):
        compiled.Compilation("x", "cpu", (source,), ((),), lambda path: path).library()
