"""TensorRT's Python package, wherever it is: looked for and imported only when it is needed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from orinport.errors import OrinportError, first_line

__all__ = ["has_package", "import_package"]

_NAME = "tensorrt"


def has_package() -> bool:
    """Whether the package is installed; it is not imported. A mere folder of that name is none."""
    found = find_spec(_NAME)
    return found is not None and found.origin is not None


def import_package() -> Any:
    """The module `tensorrt`. Raises OrinportError with what can be done instead."""
    if not has_package():
        raise OrinportError(
            "TensorRT's Python package is not installed on this machine.",
            "On a Jetson: apt-get install python3-libnvinfer, and use the system's Python or a virtual environment "
            "with --system-site-packages.",
        )
    try:
        module = import_module(_NAME)
        module.Builder, module.Runtime, module.__version__  # noqa: B018 what a broken package lacks
    except (AttributeError, ImportError, OSError, RuntimeError) as error:
        raise OrinportError(
            f"TensorRT's Python package cannot be loaded: {first_line(error)}.",
            "Its version has to be that of the installed libnvinfer.",
        ) from error
    return module
