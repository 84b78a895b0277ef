"""The folders in which kernels compiled on the user's machine are kept.

`$ORINPORT_CACHE`, else `$XDG_CACHE_HOME/orinport`, else `~/.cache/orinport`. What lies there is loaded and run, so
nobody but the user may write to it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["CacheFolderError", "private_folder"]


class CacheFolderError(Exception):
    """The folder cannot be had; the text says why."""


def private_folder(name: str) -> Path:
    """The folder `name` of the cache, made if need be. Raises CacheFolderError if others may write to it."""
    named = os.environ.get("ORINPORT_CACHE")
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
        folder = (Path(named) if named else base / "orinport") / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
    except (OSError, RuntimeError) as error:
        raise CacheFolderError(f"the cache folder {name!r} cannot be made: {error}") from error
    if status.st_uid != os.getuid() or status.st_mode & stat.S_IWOTH:
        raise CacheFolderError(f"others may write to the cache folder {str(folder)!r}")
    return folder
