"""Finding and loading TensorRT's package: what is there, what is broken, and what is said."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from orinport.device.tensorrt_package import has_package, import_package
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is searched first; `tensorrt` is forgotten before and after."""
    kept = sys.modules.pop("tensorrt", None)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("tensorrt", None)
    if kept is not None:
        sys.modules["tensorrt"] = kept


def test_a_package_is_found_without_being_loaded(site: Path) -> None:
    (site / "tensorrt.py").write_text("__version__ = '10.3.0.26'\nBuilder = Runtime = object\n")
    assert has_package()
    assert "tensorrt" not in sys.modules
    assert import_package().__version__ == "10.3.0.26"


def test_a_folder_of_that_name_is_no_package(site: Path) -> None:
    (site / "tensorrt").mkdir()
    assert not has_package()
    with pytest.raises(OrinportError, match="not installed") as failure:
        import_package()
    assert "python3-libnvinfer" in failure.value.hint


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("raise ImportError('libnvinfer.so.10: cannot open shared object file')", "libnvinfer.so.10"),
        ("raise AttributeError('module numpy has no attribute bool')", "numpy"),
        ("__version__ = '1'", "Builder"),
    ],
)
def test_a_broken_package_is_said_to_be_one(site: Path, text: str, says: str) -> None:
    (site / "tensorrt.py").write_text(text + "\n")
    with pytest.raises(OrinportError, match=says) as failure:
        import_package()
    assert "libnvinfer" in failure.value.hint
