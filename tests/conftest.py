"""One hypothesis profile for all tests, the marks that depend on the machine, and a time budget for slow tests."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import time
from collections import Counter
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import orinport  # noqa: F401  before any test loads ONNX Runtime, whose usage events it turns off

settings.register_profile(
    "orinport",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("orinport")


_START = time.monotonic()
_SPENT = "the time budget of {:g} s is spent"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    text = "Skip the slow tests that have not begun this many seconds after the start; 0: none."
    parser.addoption("--budget", type=float, default=0.0, metavar="SECONDS", help=text)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave a slow test out once the budget is spent."""
    budget: float = item.config.getoption("--budget")
    if budget and item.get_closest_marker("slow") and time.monotonic() - _START > budget:
        pytest.skip(_SPENT.format(budget))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what the budget left out, file by file."""
    reason = _SPENT.format(config.getoption("--budget"))
    skipped = terminalreporter.stats.get("skipped", ())
    left_out = Counter(each.nodeid.partition("::")[0] for each in skipped if reason in str(each.longrepr))
    if left_out:
        terminalreporter.section(f"{reason}, slow tests left out: {left_out.total()}")
        for file, number in sorted(left_out.items()):
            terminalreporter.write_line(f"{number:5} {file}")


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
    missing = [name for name in ("torch", "onnxscript") if not importlib.util.find_spec(name)]
    return f"the extra 'torch' is not installed, or not whole: {missing[0]} is missing" if missing else ""


def _no_tensorrt() -> str:
    if platform.machine() != "x86_64":
        return "tensorrt-rtx has wheels for x86-64 only"
    return "" if importlib.util.find_spec("tensorrt_rtx") else "the extra 'tensorrt' is not installed"


_REASONS = {"gpu": _no_gpu, "torch": _no_torch, "tensorrt": _no_tensorrt}
