"""Files that do not end are refused, wherever a user may name one; files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from orinport.dcnv4.classifier import read_labels
from orinport.device.measured import read_measurement
from orinport.errors import OrinportError
from orinport.files import read_bounded, write_whole
from orinport.precision.cache import read_scales
from orinport.precision.preprocess import read_preprocessing

ENDLESS = Path("/dev/zero")


def test_reads_up_to_the_limit_and_no_byte_more(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abcd")
    assert read_bounded(file, 4) == b"abcd"
    with pytest.raises(OSError, match="larger than"):
        read_bounded(file, 3)


@pytest.mark.parametrize("read", [read_scales, read_labels, read_measurement, lambda p: read_preprocessing(p, ("x",))])
def test_an_endless_file_is_an_error_with_a_reason(read) -> None:
    with pytest.raises(OrinportError, match="larger than 256 MiB"):
        read(ENDLESS)


def test_an_interrupted_write_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report"
    write_whole(file, "old")
    file.chmod(0o600)

    def interrupted(self: Path, target: Path) -> Path:
        assert self.read_text() == "new"
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_whole(file, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    assert file.read_text() == "old"
    write_whole(file, "new")
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o600


def test_links_stay_links_and_devices_are_written_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"
    write_whole(Path("/dev/null"), "text")
    with pytest.raises(OSError, match="directory"):
        write_whole(tmp_path, "text")
