"""TensorRT's Python package, wherever it is: looked for and imported only when it is needed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from orinport.errors import OrinportError, first_line
from orinport.targets.version import Version

__all__ = ["has_package", "import_package", "package_version"]

_NAME = "tensorrt"


def has_package() -> bool:
    """Whether the package is installed; it is not imported."""
    return find_spec(_NAME) is not None


def import_package() -> Any:
    """The module `tensorrt`. Raises OrinportError with what can be done instead."""
    if not has_package():
        raise OrinportError(
            "TensorRT's Python package is not installed on this machine.",
            "On a Jetson: apt-get install python3-libnvinfer, and use the system's Python or a virtual environment "
            "with --system-site-packages.",
        )
    try:
        return import_module(_NAME)
    except (ImportError, OSError, RuntimeError) as error:
        raise OrinportError(
            f"TensorRT's Python package cannot be loaded: {first_line(error)}.",
            "Its version has to be that of the installed libnvinfer.",
        ) from error


def package_version(module: Any) -> Version:
    """The version of the imported package: major, minor and patch."""
    return Version.parse(".".join(str(module.__version__).split(".")[:3]))
