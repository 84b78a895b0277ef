"""`orinport build`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from orinport.cli.options import style

if TYPE_CHECKING:
    from orinport.device.board import BuildResult

__all__ = ["build"]


def build(
    bundle: Annotated[Path, Parameter(help="A bundle's folder.")],
    /,
    *arguments: Annotated[str, Parameter(help="Further arguments for trtexec, after --.", allow_leading_hyphen=True)],
    host: Annotated[
        tuple[str, ...],
        Parameter(
            consume_multiple=False,
            help="Build on this board over ssh: user@board; given several times, on all at once (extra 'fleet').",
        ),
    ] = (),
    scheduler: Annotated[
        str, Parameter(help="Address of a dask scheduler whose workers reach the boards (extra 'fleet').")
    ] = "",
    builder: Annotated[
        Literal["auto", "trtexec", "python"],
        Parameter(
            name="--with", help="What builds here: trtexec, TensorRT's Python package, or trtexec if it is there."
        ),
    ] = "auto",
    quiet: Annotated[bool, Parameter(negative="", help="Do not show the build's output; it is in build.log.")] = False,
) -> int:
    """Build a bundle with trtexec or TensorRT's Python package, here or on a board over ssh, and explain a failure.

    Exit status: 0 if the build made an engine or loadable, 1 if it failed, 2 if there is nothing to build with.
    """
    if len(host) > 1 or scheduler:
        return _on_boards(bundle, host, arguments, scheduler, quiet)
    from orinport.device.board import build_here, build_remotely

    def show(line: str) -> None:
        if not quiet:
            sys.stderr.write(line + "\n")

    if host:
        return _told(build_remotely(bundle, host[0], arguments, show))
    return _told(build_here(bundle, arguments, show, builder=builder))


def _on_boards(bundle: Path, hosts: tuple[str, ...], arguments: tuple[str, ...], scheduler: str, quiet: bool) -> int:
    from orinport.device.fleet import build_on_boards
    from orinport.errors import OrinportError
    from orinport.report.style import clean

    if not hosts:
        raise OrinportError("A scheduler builds on boards, and none is named.", "Add --host user@board.")

    def show(name: str, line: str) -> None:
        if not quiet:
            sys.stderr.write(f"[{clean(name)}] {line}\n")

    results = []
    for board in build_on_boards(bundle, hosts, arguments, show, scheduler=scheduler):
        results.append(board)
        outcome = "built" if board.built else "failed"
        sys.stderr.write(f"[{clean(board.host)}] {outcome}, {len(results)} of {len(hosts)} boards done\n")
    for board in sorted(results, key=lambda board: hosts.index(board.host)):
        sys.stdout.write(style().bold(f"== {clean(board.host)}") + "\n")
        if board.result is None:
            sys.stdout.write(f"{clean(board.error)}\n")
        else:
            _told(board.result)
    failed = [board.host for board in results if not board.built]
    sys.stdout.write(f"{len(results) - len(failed)} of {len(hosts)} boards built; they are in {bundle / 'boards'}\n")
    return 1 if failed else 0


def _told(result: BuildResult) -> int:
    """Explain the log of a build and name what it made; the exit status."""
    from orinport.device.log import read_log
    from orinport.report.log import log_text

    with result.log.open(encoding="utf-8", errors="replace") as lines:
        report = read_log(lines)
    sys.stdout.write(log_text(str(result.log), report, None, style()))
    if result.product is None:
        sys.stdout.write(f"the build ended with status {result.status} and made no engine\n")
        return 1
    size = result.product.stat().st_size / 1e6
    sys.stdout.write(f"{result.product}: {size:.1f} MB\n")
    if result.beside:
        sys.stdout.write(f"beside it: {', '.join(path.name for path in result.beside)}\n")
    return 0
