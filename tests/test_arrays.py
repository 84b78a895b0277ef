"""Files of arrays: what they hold decides, and whatever is wrong with them is an OrinportError."""

from __future__ import annotations

import contextlib
import io
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

from orinport import arrays
from orinport.arrays import read_arrays
from orinport.errors import OrinportError
from orinport.precision.state import State, read_state, write_state

if TYPE_CHECKING:
    from pathlib import Path


def npy(array: np.ndarray) -> bytes:
    held = io.BytesIO()
    np.save(held, array)
    return held.getvalue()


def npz(**held: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **held)
    return file.getvalue()


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a"])
def test_the_content_decides_and_not_the_name(tmp_path: Path, name: str, mapped: bool) -> None:
    path = tmp_path / name
    path.write_bytes(npy(np.arange(6.0).reshape(2, 3)))
    [(key, array)] = read_arrays(path, mapped=mapped).items()
    assert (key, array.tolist()) == ("", [[0, 1, 2], [3, 4, 5]])
    path.write_bytes(npz(x=np.arange(2), y=np.float16(1)))
    held = read_arrays(path, mapped=mapped)
    assert {key: array.tolist() for key, array in held.items()} == {"x": [0, 1], "y": 1.0}


def test_a_plain_file_is_mapped_only_where_that_is_asked(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(npy(np.arange(6.0)))
    assert isinstance(read_arrays(tmp_path / "a", mapped=True)[""], np.memmap)
    assert not isinstance(read_arrays(tmp_path / "a")[""], np.memmap)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "neither a .npy nor a .npz"),
        (b"nothing", "neither a .npy nor a .npz"),
        (b"PK\x03\x04garbage", "holds no plain arrays"),
        (b"\x93NUMPY", "holds no plain arrays"),
        (npy(np.arange(100))[:200], "holds no plain arrays"),
        (npz(x=np.arange(100))[:-30], "holds no plain arrays"),
    ],
)
@pytest.mark.parametrize("mapped", [False, True])
def test_damaged_files(tmp_path: Path, content: bytes, words: str, mapped: bool) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(OrinportError, match=words):
        read_arrays(tmp_path / "a", mapped=mapped)


def test_python_objects_are_not_read(tmp_path: Path) -> None:
    for name, save in (("a.npy", np.save), ("b.npz", np.savez)):
        save(tmp_path / name, np.array([{}], object))
        for mapped in (False, True):
            with pytest.raises(OrinportError, match="holds no plain arrays"):
                read_arrays(tmp_path / name, mapped=mapped)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(OrinportError, match="No such file"):
        read_arrays(tmp_path / "missing")
    with pytest.raises(OrinportError, match="Is a directory"):
        read_arrays(tmp_path)


def test_members_that_are_no_arrays(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", npy(np.arange(3)))
        archive.writestr("readme", "not an array")
    with pytest.raises(OrinportError, match="'readme' in it is none"):
        read_arrays(tmp_path / "a.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archives_compressed_otherwise(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", method) as archive:
        archive.writestr("x.npy", npy(np.arange(3)))
    with pytest.raises(OrinportError, match="a way that NumPy does not use"):
        read_arrays(tmp_path / "a.npz")


def test_archives_that_unpack_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.npz").write_bytes(npz(x=np.zeros(10000)))
    monkeypatch.setattr(arrays, "_MAX_UNPACKED", 80127)
    with pytest.raises(OrinportError, match="unpacks to 80128 bytes"):
        read_arrays(tmp_path / "a.npz")
    monkeypatch.setattr(arrays, "_MAX_UNPACKED", 80128)
    assert read_arrays(tmp_path / "a.npz")["x"].size == 10000


@pytest.mark.parametrize("content", [npy(np.arange(6.0).reshape(2, 3)), npz(x=np.arange(20), y=np.ones((2, 2)))])
def test_random_bytes_never_escape(tmp_path: Path, content: bytes) -> None:
    """Whatever bytes follow a genuine beginning: arrays or an OrinportError."""
    generator = np.random.default_rng(0)
    refused = 0
    for number in range(400):
        broken = bytearray(content)
        for place in generator.integers(4, len(content), generator.integers(1, 12)):
            broken[place] = generator.integers(256)
        (tmp_path / "a").write_bytes(bytes(broken[: generator.integers(20, len(content) + 1)]))
        try:
            held = read_arrays(tmp_path / "a", mapped=bool(number % 2))
        except OrinportError:
            refused += 1
        else:
            assert all(isinstance(array, np.ndarray) for array in held.values())
    assert refused > 200


def test_states_of_other_content(tmp_path: Path) -> None:
    """Arrays that are no state, and states with arrays of other shapes, are refused as such."""
    path = tmp_path / "state"
    write_state(path, "signature", State({0: 4}, {}))
    with np.load(path) as file:
        good = {name: file[name] for name in file.files}
    assert read_state(path, "signature") == State({0: 4}, {})
    path.write_bytes(npy(np.arange(3)))
    with pytest.raises(OrinportError, match="is not the state"):
        read_state(path, "signature")
    for name in good:
        for other in (None, np.zeros(()), np.zeros(3), np.full((2, 2), "a"), np.array([255], np.uint8)):
            changed = {**good, name: other}
            if other is None:
                del changed[name]
            path.write_bytes(npz(**changed))
            with contextlib.suppress(OrinportError):  # and nothing else; equal values in another shape may pass
                read_state(path, "signature")
