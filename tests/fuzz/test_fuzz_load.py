"""Damaged files end in a verdict or in one clear line: no traceback, no hang, no file written, no crash."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HANG = 10.0
"""Seconds that one case may take."""
STARTUP = 120.0
GROWTH = 700
"""MiB by which one case may raise the peak memory of the process."""
BATCH = 250


def run_batch(folder: Path, first: int, last: int) -> dict[int, dict[str, object]]:
    """Outcomes by case, restarting behind each case that kills or stops the child."""
    outcomes: dict[int, dict[str, object]] = {}
    while first < last:
        current = _run_child(folder, first, last, outcomes)
        first = last if current is None else current + 1
    return outcomes


def _run_child(folder: Path, first: int, last: int, outcomes: dict[int, dict[str, object]]) -> int | None:
    """Run one child; returns the case in which it died or hung, None if it came to its end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parent}"}
    noise = tempfile.TemporaryFile()  # noqa: SIM115, closed below
    child = subprocess.Popen(
        [sys.executable, str(HERE / "worker.py"), str(folder), str(first), str(last)],
        stdout=subprocess.PIPE,
        stderr=noise,
        env=environment,
    )
    assert child.stdout is not None
    current, deadline, buffer = None, time.monotonic() + STARTUP, b""
    try:
        while True:
            ready, _, _ = select.select([child.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                outcomes[first if current is None else current] = {"kind": "hang", "text": f"more than {HANG} s"}
                return first if current is None else current
            data = os.read(child.stdout.fileno(), 1 << 16)
            if not data:
                break
            buffer += data
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                entry = json.loads(line)
                current = None if "kind" in entry else entry["case"]
                deadline = time.monotonic() + (STARTUP if current is None else HANG)
                if "kind" in entry:
                    outcomes[entry["case"]] = entry
        child.wait()
        if child.returncode == 0:
            return None
        seed = max(outcomes, default=first - 1) + 1 if current is None else current
        noise.seek(0)
        last_words = noise.read().decode(errors="replace")[-800:]
        outcomes[seed] = {"kind": "crash", "text": f"exit status {child.returncode}\n{last_words}"}
        return seed
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        noise.close()


def complaints(outcomes: dict[int, dict[str, object]]) -> list[str]:
    """One line for each case that did not end as it should."""
    found = []
    for seed, entry in sorted(outcomes.items()):
        if entry["kind"] not in ("verdict", "error"):
            found.append(f"case {seed}: {entry['kind']}: {entry['text']}")
            continue
        text = str(entry["text"])
        if entry["kind"] == "error" and (not text.strip() or "\n" in text or len(text) > 2000):
            found.append(f"case {seed}: not one clear line: {text[:200]!r}")
        if entry["written"] or entry["changed"]:
            found.append(f"case {seed}: wrote {entry['written']} or changed its input")
        if float(str(entry["seconds"])) > HANG:
            found.append(f"case {seed}: took {entry['seconds']} s")
        if int(str(entry["grown_mib"])) > GROWTH:
            found.append(f"case {seed}: peak memory grew by {entry['grown_mib']} MiB")
    return found


def assert_all_well(folder: Path, first: int, last: int) -> None:
    outcomes: dict[int, dict[str, object]] = {}
    for start in range(first, last, BATCH):
        outcomes |= run_batch(folder, start, min(start + BATCH, last))
    assert sorted(outcomes) == list(range(first, last))
    found = complaints(outcomes)
    kinds = Counter(entry["kind"] for entry in outcomes.values())
    assert not found, f"{len(found)} of {last - first} cases ({dict(kinds)}):\n" + "\n".join(found[:20])
    assert kinds["verdict"] > 0.1 * (last - first)
    assert kinds["error"] > 0.1 * (last - first)


def test_damaged_files(tmp_path: Path) -> None:
    assert_all_well(tmp_path, 0, 300)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(300, 5300, 500))
def test_many_damaged_files(tmp_path: Path, first: int) -> None:
    assert_all_well(tmp_path, first, first + 500)
