"""One hypothesis profile for all tests, and the marks that depend on the machine."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
from functools import lru_cache

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "orinport",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("orinport")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, and say why."""
    for item in items:
        for mark, reason_of in _REASONS.items():
            if item.get_closest_marker(mark) and (reason := reason_of()):
                item.add_marker(pytest.mark.skip(reason=reason))


@lru_cache(maxsize=1)
def _no_gpu() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "no NVIDIA GPU: nvidia-smi is not installed"
    try:
        listed = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no NVIDIA GPU: {error}"
    return "" if "GPU" in listed.stdout else "no NVIDIA GPU: nvidia-smi lists none"


def _no_torch() -> str:
    return "" if importlib.util.find_spec("torch") else "the extra 'torch' is not installed"


def _no_tensorrt() -> str:
    if platform.machine() != "x86_64":
        return "tensorrt-rtx has wheels for x86-64 only"
    return "" if importlib.util.find_spec("tensorrt_rtx") else "the extra 'tensorrt' is not installed"


_REASONS = {"gpu": _no_gpu, "torch": _no_torch, "tensorrt": _no_tensorrt}
