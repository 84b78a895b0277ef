"""Processes of a calibration: results, errors, ends from outside and interruptions."""

from __future__ import annotations

import math
import multiprocessing
import os
import subprocess
import sys
import time

import pytest

from orinport.errors import OrinportError
from orinport.precision.processes import in_processes


def test_every_part_comes_with_its_result() -> None:
    assert sorted(in_processes(math.sqrt, [0, 4, 16, 36], 2)) == [(0, 0.0), (4, 2.0), (16, 4.0), (36, 6.0)]
    assert not multiprocessing.active_children()


def test_what_a_part_raises_is_raised_here() -> None:
    with pytest.raises(ValueError, match=r"math domain error|nonnegative"):
        list(in_processes(math.sqrt, [4, -1], 2))


def test_a_process_that_is_ended_from_outside_is_told() -> None:
    with pytest.raises(OrinportError, match="ended from outside"):
        list(in_processes(os._exit, [3, 3, 3], 2))


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError])
def test_an_interruption_ends_the_processes_at_once(stop: type[BaseException]) -> None:
    began = time.monotonic()

    def consume() -> None:
        for _ in in_processes(time.sleep, [0.0, 60.0, 60.0], 2):
            raise stop

    with pytest.raises(stop):
        consume()
    assert time.monotonic() - began < 30
    end = time.monotonic() + 10
    while multiprocessing.active_children() and time.monotonic() < end:
        time.sleep(0.05)
    assert not multiprocessing.active_children()


_INTERRUPTED = """
import os, signal, time
from orinport.precision.processes import _uninterrupted
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell started this in the background
try:
    with _uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        print("started")
except KeyboardInterrupt:
    print("interrupted", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def test_an_interruption_waits_until_processes_are_started() -> None:
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["started", "interrupted", "True"]
