"""Building a bundle on several boards at once, with dask.distributed (the extra `fleet`).

Each board is one task; without a scheduler of the user's the tasks run in threads of this process. Lines come back in
bundles as events, so that a long log costs few messages, and an interruption reaches every process that waits
for a board.
"""

from __future__ import annotations

import logging
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import inf
from tempfile import TemporaryDirectory
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from orinport.device.board import BuildResult, board_folders, build_remotely, require_bundle
from orinport.device.remote import require_host
from orinport.errors import MissingExtraError, OrinportError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

__all__ = ["BoardResult", "build_on_boards"]

_EVENT_SECONDS = 0.2
_LINES_SECONDS = 5.0
_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class BoardResult:
    """How the build on one board ended: its result, or the reason why there is none."""

    host: str
    folder: Path
    result: BuildResult | None
    error: str = ""

    @property
    def built(self) -> bool:
        """The board made an engine or a loadable."""
        return self.result is not None and self.result.product is not None


def build_on_boards(
    folder: Path,
    hosts: Sequence[str],
    arguments: Sequence[str],
    show: Callable[[str, str], None],
    *,
    ssh: Sequence[str] = ("ssh",),
    scheduler: str = "",
) -> Iterator[BoardResult]:
    """Build on every board at once; gives each board's result as soon as it has one.

    `show` gets host and line. What a board makes goes to `boards/HOST` in the bundle. `scheduler` is the address
    of a dask scheduler whose workers reach the boards (they need orinport, ssh, and the bundle under the same path).
    A board that fails or cannot be reached does not touch the others. Ended early, it ends the builds that still run.
    Raises OrinportError for a folder that is no bundle and hosts that are none, MissingExtraError without the extra.
    """
    require_bundle(folder)
    for host in hosts:
        require_host(host, ssh)
    folders = board_folders(folder.absolute(), hosts)
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise MissingExtraError("distributed", "fleet", "Building on several boards at once") from error
    with ExitStack() as stack:
        address = scheduler or stack.enter_context(_own_cluster(len(hosts)))
        try:
            client = stack.enter_context(Client(address, timeout=20, set_as_default=False))
        except (OSError, ValueError, TimeoutError) as error:
            raise OrinportError(f"The dask scheduler {scheduler!r} does not answer: {first_line(error)}.") from error
        quiet = (*ssh, "-o", "BatchMode=yes")  # several questions for passwords at once cannot be told apart
        yield from _collect(client, folder.absolute(), folders, tuple(arguments), quiet, show)


@contextmanager
def _own_cluster(threads: int) -> Iterator[Any]:
    """A cluster in this process that leaves nothing behind; its pages can be reached from this machine only."""
    from distributed import LocalCluster

    with (
        TemporaryDirectory(prefix="orinport-") as scratch,
        LocalCluster(
            n_workers=1,
            threads_per_worker=threads,
            processes=False,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            local_directory=scratch,
            silence_logs=logging.CRITICAL,
        ) as cluster,
    ):
        yield cluster


def _collect(
    client: Any,
    folder: Path,
    folders: dict[str, Path],
    arguments: tuple[str, ...],
    ssh: tuple[str, ...],
    show: Callable[[str, str], None],
) -> Iterator[BoardResult]:
    """Hand out the builds and take in lines and results; whatever ends it ends the builds too."""
    topic = f"orinport-{uuid4().hex}"
    told: set[str] = set()
    client.subscribe_topic(topic, lambda event: _shown(event[1], show, told))
    pending = {
        host: client.submit(_build, str(folder), host, arguments, str(path), ssh, topic, pure=False)
        for host, path in folders.items()
    }
    try:
        while pending:
            _wait(lambda: any(future.done() for future in pending.values()))
            for host in [host for host, future in pending.items() if future.done()]:
                future = pending.pop(host)
                _wait(lambda host=host: host in told, _LINES_SECONDS)  # type: ignore[misc]
                yield _result(host, folders[host], future)
    finally:
        if pending:
            client.run(_stop, topic)
            _wait(lambda: all(future.done() for future in pending.values()), _STOP_SECONDS)
        client.unsubscribe_topic(topic)


def _result(host: str, folder: Path, future: Any) -> BoardResult:
    error = future.exception()
    if error is not None:
        return BoardResult(host, folder, None, f"The build ended with {type(error).__name__}: {first_line(error)}.")
    outcome = future.result()
    return BoardResult(host, folder, None, outcome) if isinstance(outcome, str) else BoardResult(host, folder, outcome)


def _wait(holds: Callable[[], bool], seconds: float = inf) -> None:
    """Until `holds()`, but no longer than that: the last lines of a board, or its copy that is taken away."""
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)


def _shown(message: dict[str, Any], show: Callable[[str, str], None], told: set[str]) -> None:
    for line in message["lines"]:
        show(message["host"], line)
    if message["last"]:
        told.add(message["host"])


_LOCK = Lock()
_RUNNING: dict[str, list[subprocess.Popen[str]]] = {}
_STOPPED: set[str] = set()


def _build(
    folder: str, host: str, arguments: tuple[str, ...], output: str, ssh: tuple[str, ...], topic: str
) -> BuildResult | str:
    """The build on one board, in a thread of whatever worker takes it; a sentence if the board has no result."""
    from pathlib import Path

    def hold(process: subprocess.Popen[str]) -> None:
        with _LOCK:
            _RUNNING.setdefault(topic, []).append(process)
            if topic in _STOPPED:
                process.terminate()

    with _Lines(topic, host) as take:
        if topic in _STOPPED:
            return "The build was interrupted before it began."
        try:
            return build_remotely(Path(folder), host, arguments, take, ssh=ssh, output=Path(output), hold=hold)
        except OrinportError as error:
            return str(error)


def _stop(topic: str) -> None:
    """End what this process waits for."""
    with _LOCK:
        _STOPPED.add(topic)
        for process in _RUNNING.get(topic, ()):
            process.terminate()


class _Lines:
    """Lines of one board on their way to who asked for the build, a few times a second."""

    def __init__(self, topic: str, host: str) -> None:
        self._topic, self._host = topic, host
        self._lines: list[str] = []
        self._ended = Event()
        self._thread = Thread(target=self._run, args=(_worker_log(),), daemon=True)

    def __enter__(self) -> Callable[[str], None]:
        self._thread.start()
        return self._lines.append

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self, log: Callable[[str, Any], None]) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(_EVENT_SECONDS)
            number = len(self._lines)
            if number or ended:
                log(self._topic, {"host": self._host, "lines": self._lines[:number], "last": ended})
                del self._lines[:number]


def _worker_log() -> Callable[[str, Any], None]:
    """The function by which the task's worker sends events."""
    from distributed import get_worker

    log: Callable[[str, Any], None] = get_worker().log_event
    return log
