"""Absurd shapes and attributes of every operator: `load` gives a model or one clear error, and the process lives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).parent / "shapes_worker.py"


def assert_all_end(first: int, last: int) -> None:
    child = subprocess.run(
        [sys.executable, str(WORKER), str(first), str(last)], capture_output=True, text=True, timeout=240, check=False
    )
    said = child.stdout.split("\n")
    assert child.returncode == 0, f"case {said[-2]}: exit status {child.returncode}\n{child.stderr[-800:]}"
    word, loaded, refused = said[-2].split()
    assert word == "end"
    assert int(loaded) > 0.1 * (last - first)
    assert int(refused) > 0.05 * (last - first)


def test_absurd_shapes() -> None:
    assert_all_end(0, 2000)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(2000, 42000, 8000))
def test_many_absurd_shapes(first: int) -> None:
    assert_all_end(first, first + 8000)
