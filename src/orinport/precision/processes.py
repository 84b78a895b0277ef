"""Parts of a work in several processes, which end when it ends, however it does."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["in_processes"]

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


def in_processes(
    function: Callable[[_Part], _Result], parts: Sequence[_Part], jobs: int
) -> Iterator[tuple[_Part, _Result]]:
    """`function` of every part, as they are done, in at most `jobs` fresh processes.

    What a part raises is raised here. An interruption ends the processes at once, whatever they are at. Raises
    OrinportError if a process is ended from outside, as a system does that runs out of memory.
    """
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(jobs, len(parts)), mp_context=multiprocessing.get_context("spawn"))
    try:
        with _uninterrupted():
            futures = {pool.submit(function, part): part for part in parts}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BaseException as error:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        if isinstance(error, BrokenProcessPool):
            raise OrinportError(
                "A process was ended from outside before its part was done.",
                "If memory ran out, use fewer processes (--jobs).",
            ) from error
        raise
    finally:
        pool.shutdown()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put Ctrl-C off: a process that is just being started would wait for ever for what it is to do."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def note(*_: object) -> None:
        nonlocal came
        came = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if came:
            signal.raise_signal(signal.SIGINT)
