"""Compile the C kernels at first use, and find them again.

A library is identified by the hash of its sources, compiler, flags and processor. It lives in
`$ORINPORT_CACHE`, else in `$XDG_CACHE_HOME/orinport`, else in `~/.cache/orinport`, in a folder that only the
user may write. `CC` names another compiler; `ORINPORT_COMPILE=0` forbids compiling.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import warnings
from functools import lru_cache
from pathlib import Path

from orinport.dcnv4.cache import CacheFolderError, private_folder
from orinport.dcnv4.cpu.library import Library

__all__ = ["CompileError", "cache_folder", "compile_library", "kernels"]

_SOURCES = tuple(Path(__file__).with_name(name) for name in ("deform.c", "deform_type.h"))
_FLAGS = ("-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
_TIMEOUT_S = 120


class CompileError(Exception):
    """The kernels cannot be had on this machine; the text says why."""


@lru_cache(maxsize=1)
def kernels() -> Library | None:
    """The compiled kernels; None, after one warning that says why, if there are none."""
    try:
        return Library(compile_library())
    except (CompileError, OSError) as error:
        warnings.warn(
            f"the C kernels of DCNv4 are not available ({error}); slower PyTorch operations take their place",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def compile_library() -> Path:
    """The shared library for this machine, compiled unless it is in the cache. Raises CompileError."""
    if os.environ.get("ORINPORT_COMPILE") == "0":
        raise CompileError("ORINPORT_COMPILE=0 forbids compiling")
    compiler = _compiler()
    version = _run([*compiler, "--version"])
    folder = cache_folder()
    for flags in _flag_sets():
        path = folder / f"deform-{_digest(compiler, version, flags)}.so"
        if path.exists() or _compile(compiler, flags, path):
            return path
    raise CompileError(f"{compiler[0]} does not compile them: {_reason(compiler)}")


def cache_folder() -> Path:
    """The folder for compiled kernels, made if need be. Raises CompileError if others may write to it."""
    try:
        return private_folder("cpu")
    except CacheFolderError as error:
        raise CompileError(str(error)) from error


def _compiler() -> list[str]:
    named = shlex.split(os.environ.get("CC", ""))
    for command in [named] if named else [["cc"], ["gcc"], ["clang"]]:
        if path := shutil.which(command[0]):
            return [path, *command[1:]]
    raise CompileError(f"there is no C compiler {named[0]!r}" if named else "there is no C compiler (cc, gcc, clang)")


def _flag_sets() -> list[tuple[str, ...]]:
    """Preferred first: for exactly this processor and with OpenMP, down to neither."""
    native = "-march=native" if platform.machine() in {"x86_64", "AMD64"} else "-mcpu=native"
    return [(*_FLAGS, native, "-fopenmp"), (*_FLAGS, "-fopenmp"), (*_FLAGS, native), _FLAGS]


def _digest(compiler: list[str], version: str, flags: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for part in (*compiler, version, *flags, platform.machine(), _processor()):
        digest.update(part.encode() + b"\0")
    for source in _SOURCES:
        digest.update(source.read_bytes() + b"\0")
    return digest.hexdigest()[:24]


def _processor() -> str:
    """What the kernel says about the processor's instruction set; empty where it says nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "CPU part"))}))


def _compile(compiler: list[str], flags: tuple[str, ...], path: Path) -> bool:
    """Compile into a temporary file and move it into place, so that nobody ever loads half a library."""
    handle, name = tempfile.mkstemp(suffix=".so", dir=path.parent)
    os.close(handle)
    try:
        _run([*compiler, *flags, "-o", name, str(_SOURCES[0]), "-lm"])
        Library(Path(name))
        Path(name).replace(path)
    except (CompileError, OSError):
        Path(name).unlink(missing_ok=True)
        return False
    return True


def _reason(compiler: list[str]) -> str:
    """The compiler's own words about the plainest set of flags."""
    try:
        _run([*compiler, *_FLAGS, "-o", os.devnull, str(_SOURCES[0]), "-lm"])
    except CompileError as error:
        return str(error)
    return "the result cannot be loaded"


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
