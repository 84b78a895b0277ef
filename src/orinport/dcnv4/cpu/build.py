"""The C kernels, compiled at first use with the system's compiler; see `orinport.compiled`."""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path

from orinport.compiled import Compilation, CompileError, native_flag
from orinport.dcnv4.cpu.library import Library

__all__ = ["CompileError", "cache_folder", "compile_library", "kernels"]

_FLAGS = ("-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
_KERNELS = Compilation(
    name="deform",
    folder="cpu",
    sources=tuple(Path(__file__).with_name(name) for name in ("deform.c", "deform_type.h")),
    flag_sets=((*_FLAGS, native_flag(), "-fopenmp"), (*_FLAGS, "-fopenmp"), (*_FLAGS, native_flag()), _FLAGS),
    load=Library,
)
"""Preferred first: for exactly this processor and with OpenMP, down to neither."""


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
    return _KERNELS.library()


def cache_folder() -> Path:
    """The folder for compiled kernels, made if need be. Raises CompileError if others may write to it."""
    return _KERNELS.cache_folder()
