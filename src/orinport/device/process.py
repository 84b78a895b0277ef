"""Running a program whose output is shown and kept."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["make_folder", "run_logged"]


def make_folder(folder: Path) -> None:
    """Make `folder` unless it is there. Raises OrinportError if that cannot be done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OrinportError(f"The folder {str(folder)!r} cannot be written: {error.strerror}.") from error


def run_logged(
    command: Sequence[str],
    log: Path,
    show: Callable[[str], None],
    environment: dict[str, str],
    hold: Callable[[subprocess.Popen[str]], None] | None = None,
    *,
    kept_open: bool = False,
) -> int:
    """Run `command`, its output line by line to `show` and to the file `log`; the status at its end.

    `kept_open` gives it a standard input that stays open as long as this process lives.
    """
    try:
        with log.open("w", encoding="utf-8", errors="replace") as file:
            process = subprocess.Popen(  # noqa: S603 a list, no shell
                list(command),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.PIPE if kept_open else subprocess.DEVNULL,
                text=True,
                errors="replace",
                env=environment,
            )
            try:
                if hold is not None:
                    hold(process)
                assert process.stdout is not None
                for line in process.stdout:
                    file.write(line)
                    show(line.rstrip("\n"))
                return process.wait()
            except BaseException:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                process.kill()
                raise
            finally:
                if process.stdin is not None:
                    process.stdin.close()
                if process.stdout is not None:
                    process.stdout.close()
    except OSError as error:
        raise OrinportError(f"{str(log)!r} cannot be written: {error.strerror}.") from error
