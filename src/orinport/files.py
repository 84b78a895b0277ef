"""Reading files that come from strangers, and writing files whole or not at all."""

from __future__ import annotations

import codecs
import errno
import io
import shutil
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

if TYPE_CHECKING:
    from importlib.abc import Traversable
    from pathlib import Path

__all__ = ["as_text", "decode_json", "read_bounded", "write_whole"]

_LARGEST = 1 << 28
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def as_text(file: io.BufferedReader) -> io.TextIOWrapper:
    """A file as text: UTF-16 if it begins with that byte order mark (Windows PowerShell's redirection), else UTF-8.

    Bytes that are no text are replaced; nothing but the mark is read ahead.
    """
    begin = file.peek(3)
    encoding = next((name for mark, name in _MARKS.items() if begin.startswith(mark)), "utf-8")
    return io.TextIOWrapper(file, encoding=encoding, errors="replace")


def decode_json(data: bytes) -> Any:
    """The JSON document in `data`. Raises ValueError, in one line, for what is none or nested without end."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_bounded(path: Path | Traversable, limit: int = _LARGEST) -> bytes:
    """The content of a file of at most `limit` bytes, also of a pipe. Raises OSError, also for one that is larger."""
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit >> 20} MiB", str(path))
    return data


def write_whole(path: Path, content: str | bytes) -> None:
    """Write `content`, text in UTF-8, so that the file has either its old content or the new one, whatever interrupts.

    A link keeps pointing where it does; what is no plain file (a device, a pipe) is written directly. Raises OSError.
    """
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    target = path.resolve()
    partial = target.with_name(f".{target.name[:200]}.{uuid4().hex}.partial")
    try:
        partial.write_bytes(data)
        if target.exists():
            shutil.copymode(target, partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
