"""Reading files of NumPy arrays that come from strangers."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

from orinport.errors import OrinportError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["read_arrays"]

_PLAIN, _ARCHIVE = b"\x93NUMPY", b"PK"
_MAX_UNPACKED = 1 << 34
"""An archive is read at once; those that unpack to more bytes are refused."""
_DAMAGED = (
    ValueError,
    EOFError,
    KeyError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    TypeError,
    SyntaxError,
    IndexError,
    AttributeError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What NumPy and zipfile raise over damaged, encrypted and foreign files."""


def read_arrays(path: Path, *, mapped: bool = False) -> dict[str, NDArray[Any]]:
    """The arrays of a .npy or .npz file by name, that of a .npy file without one (`""`).

    What the file holds decides, whatever it is called. A .npy file may be mapped into memory instead of read. Raises
    OrinportError if the file cannot be read, is damaged, holds Python objects, or is an archive of more than 16 GiB.
    """
    import numpy as np

    shown = repr(str(path))
    try:
        with path.open("rb") as file:
            start = file.read(len(_PLAIN))
            file.seek(0)
            if start == _PLAIN:
                return {"": np.load(path if mapped else file, mmap_mode="r" if mapped else None, allow_pickle=False)}
            if not start.startswith(_ARCHIVE):
                raise ValueError("it is neither a .npy nor a .npz file")
            with np.load(file, allow_pickle=False) as archive:
                _require_bounded(archive, shown)
                held = {name: archive[name] for name in archive.files}
    except OSError as error:
        raise OrinportError(f"{shown} cannot be read: {error.strerror or error}.") from error
    except MemoryError as error:
        raise OrinportError(f"An array of {shown} is larger than the memory.", "Divide it into files.") from error
    except _DAMAGED as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise OrinportError(f"{shown} holds no plain arrays: {reason}.") from error
    foreign = [name for name, array in held.items() if not isinstance(array, np.ndarray)]
    if foreign:
        raise OrinportError(f"{shown} holds no plain arrays: {foreign[0]!r} in it is none.")
    return held


def _require_bounded(archive: Any, shown: str) -> None:
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in archive.zip.infolist()):
        raise ValueError("it is compressed in a way that NumPy does not use")
    unpacked = sum(member.file_size for member in archive.zip.infolist())
    if unpacked > _MAX_UNPACKED:
        raise OrinportError(
            f"{shown} unpacks to {unpacked} bytes, more than the {_MAX_UNPACKED} that are read.",
            "Save .npy files, which are not read at once, or divide it.",
        )
