"""C sources of the package, compiled on the user's machine at first use and found again.

A library is identified by the hash of its sources, compiler, flags and processor. It lives in a folder of
`$ORINPORT_CACHE`, else of `$XDG_CACHE_HOME/orinport`, else of `~/.cache/orinport`. What lies there is loaded and run,
so nobody but the user may write to it. `CC` names another compiler; `ORINPORT_COMPILE=0` forbids compiling.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CacheFolderError", "Compilation", "CompileError", "native_flag", "private_folder"]

_TIMEOUT_S = 120


class CacheFolderError(Exception):
    """The folder cannot be had; the text says why."""


class CompileError(Exception):
    """The library cannot be had on this machine; the text says why."""


def private_folder(name: str) -> Path:
    """The folder `name` of the cache, made if need be.

    Raises CacheFolderError if anyone but the user may write to it, or may put another folder in its place.
    """
    named = os.environ.get("ORINPORT_CACHE")
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
        folder = (Path(named) if named else base / "orinport") / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
        above = [parent.stat().st_mode for parent in folder.resolve().parents]
    except (OSError, RuntimeError) as error:
        raise CacheFolderError(f"the cache folder {name!r} cannot be made: {error}") from error
    replaceable = any(mode & stat.S_IWOTH and not mode & stat.S_ISVTX for mode in above)
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or replaceable:
        raise CacheFolderError(f"others may write to the cache folder {str(folder)!r}")
    return folder


def native_flag() -> str:
    """The compiler's flag for exactly this processor."""
    return "-march=native" if platform.machine() in {"x86_64", "AMD64"} else "-mcpu=native"


@dataclass(frozen=True, slots=True)
class Compilation:
    """What is compiled to a shared library, and how."""

    name: str
    """Of the library's file."""
    folder: str
    """Of the cache."""
    sources: tuple[Path, ...]
    """The first is compiled; the others are what it includes."""
    flag_sets: tuple[tuple[str, ...], ...]
    """Tried in this order; the last is the plainest one."""
    load: Callable[[Path], object]
    """Raises OSError if the library cannot be used."""

    def library(self) -> Path:
        """The shared library for this machine, compiled unless it is in the cache. Raises CompileError."""
        if os.environ.get("ORINPORT_COMPILE") == "0":
            raise CompileError("ORINPORT_COMPILE=0 forbids compiling")
        compiler = _compiler()
        version = _run([*compiler, "--version"])
        folder = self.cache_folder()
        for flags in self.flag_sets:
            path = folder / f"{self.name}-{self._digest(compiler, version, flags)}.so"
            if path.exists() or self._compile(compiler, flags, path):
                return path
        raise CompileError(f"{compiler[0]} does not compile them: {self._reason(compiler)}")

    def cache_folder(self) -> Path:
        """The folder for the library, made if need be. Raises CompileError if others may write to it."""
        try:
            return private_folder(self.folder)
        except CacheFolderError as error:
            raise CompileError(str(error)) from error

    def _digest(self, compiler: list[str], version: str, flags: tuple[str, ...]) -> str:
        digest = hashlib.sha256()
        for part in (*compiler, version, *flags, platform.machine(), _processor()):
            digest.update(part.encode() + b"\0")
        for source in self.sources:
            digest.update(source.read_bytes() + b"\0")
        return digest.hexdigest()[:24]

    def _compile(self, compiler: list[str], flags: tuple[str, ...], path: Path) -> bool:
        """Compile into a temporary file and move it into place, so that nobody ever loads half a library."""
        try:
            handle, name = tempfile.mkstemp(suffix=".so", dir=path.parent)
        except OSError as error:
            raise CompileError(f"nothing can be written to {str(path.parent)!r}: {error.strerror}") from error
        os.close(handle)
        try:
            _run([*compiler, *flags, "-o", name, str(self.sources[0]), "-lm"])
            self.load(Path(name))
            Path(name).replace(path)
        except (CompileError, OSError):
            Path(name).unlink(missing_ok=True)
            return False
        return True

    def _reason(self, compiler: list[str]) -> str:
        """The compiler's own words about the plainest set of flags."""
        try:
            _run([*compiler, *self.flag_sets[-1], "-o", os.devnull, str(self.sources[0]), "-lm"])
        except CompileError as error:
            return str(error)
        return "the result cannot be loaded"


def _compiler() -> list[str]:
    named = shlex.split(os.environ.get("CC", ""))
    for command in [named] if named else [["cc"], ["gcc"], ["clang"]]:
        if path := shutil.which(command[0]):
            return [path, *command[1:]]
    raise CompileError(f"there is no C compiler {named[0]!r}" if named else "there is no C compiler (cc, gcc, clang)")


def _processor() -> str:
    """What the kernel says about the processor's instruction set; empty where it says nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "CPU part"))}))


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own compiler
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"{command[0]} cannot be run: {error}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"status {done.returncode}"]
        raise CompileError(next((line for line in lines if "error" in line), lines[-1]))
    return done.stdout
