"""Files that do not end are refused, wherever a user may name one."""

from __future__ import annotations

from pathlib import Path

import pytest

from orinport.dcnv4.classifier import read_labels
from orinport.device.measured import read_measurement
from orinport.errors import OrinportError
from orinport.files import read_bounded
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
