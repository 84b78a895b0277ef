"""The option --budget of the test suite: what it leaves out, and that it says so."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

_TESTS = """
import time

import pytest


@pytest.mark.slow
def test_first():
    time.sleep(1.2)


@pytest.mark.slow
def test_second():
    assert False


def test_quick():
    pass
"""


def _pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(Path(__file__).with_name("conftest.py"), folder / "conftest.py")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    (folder / "test_some.py").write_text(_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_what_has_not_begun_in_time_is_left_out(tmp_path: Path) -> None:
    done = _pytest(tmp_path, "--budget", "1")
    assert done.returncode == 0, done.stdout
    assert "2 passed, 1 skipped" in done.stdout
    assert "the time budget of 1 s is spent, slow tests left out: 1" in done.stdout
    assert "    1 test_some.py" in done.stdout


def test_several_processes_leave_it_out_too(tmp_path: Path) -> None:
    done = _pytest(tmp_path, "--budget", "1", "-n", "1")
    assert done.returncode == 0, done.stdout
    assert "2 passed, 1 skipped" in done.stdout
    assert "the time budget of 1 s is spent, slow tests left out: 1" in done.stdout


def test_without_a_budget_all_run(tmp_path: Path) -> None:
    done = _pytest(tmp_path)
    assert "1 failed, 2 passed" in done.stdout
    assert "left out" not in done.stdout
