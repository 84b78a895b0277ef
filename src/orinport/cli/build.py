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
            negative="",
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
    check: Annotated[
        bool,
        Parameter(
            negative="",
            help="Keep nothing: let NVIDIA's parser and builder on x86-64 take what they can (extra 'tensorrt').",
        ),
    ] = False,
    quiet: Annotated[bool, Parameter(negative="", help="Do not show the build's output; it is in build.log.")] = False,
) -> int:
    """Build a bundle with trtexec or TensorRT's Python package, here or on a board over ssh, and explain a failure.

    The parts of a bundle (prepare --cores 2) are built too, one after the other.
    Exit status: 0 if the build made an engine or loadable (with --check: if the whole network builds), 1 if not, 2 if
    there is nothing to build with.
    """
    if check:
        return _check(bundle, host, arguments)
    from orinport.device.board import part_folders
    from orinport.report.style import clean

    parts = part_folders(bundle)
    status = 0
    for folder in (bundle, *parts):
        if parts:
            sys.stdout.write(style().bold(f"== {clean(str(folder))}") + "\n")
        status = max(status, _built(folder, host, arguments, scheduler, builder, quiet))
    return status


def _built(
    bundle: Path,
    host: tuple[str, ...],
    arguments: tuple[str, ...],
    scheduler: str,
    builder: str,
    quiet: bool,
) -> int:
    """Build one bundle, or one part of it; the exit status."""
    if len(host) > 1 or scheduler:
        return _on_boards(bundle, host, arguments, scheduler, quiet)
    from orinport.device.board import build_here, build_remotely

    def show(line: str) -> None:
        if not quiet:
            sys.stderr.write(line + "\n")

    if host:
        return _told(build_remotely(bundle, host[0], arguments, show))
    return _told(build_here(bundle, arguments, show, builder=builder))


def _check(bundle: Path, hosts: tuple[str, ...], arguments: tuple[str, ...]) -> int:
    from orinport.device.board import require_bundle
    from orinport.device.build_check import build_parts
    from orinport.device.tensorrt_rtx import REFERENCE_VERSION, Session
    from orinport.errors import OrinportError
    from orinport.model.load import load
    from orinport.report.style import clean
    from orinport.words import count

    if hosts or arguments:
        raise OrinportError("A check builds here and takes no arguments.", "Leave out --check, or the others.")
    require_bundle(bundle)
    with Session(timeout=600) as session:
        found = build_parts(load(bundle / "model.onnx"), session)
    sys.stdout.write(
        f"NVIDIA's parser and builder (TensorRT {REFERENCE_VERSION} in kind, strongly typed, for a desktop GPU;"
        " they know nothing of the DLA)\n"
    )
    for node in found.refused:
        sys.stdout.write(f"refused: {clean(node.name)} ({clean(node.operator)}): {clean(node.message)[:300]}\n")
    for part in found.parts:
        span = clean(part.nodes[0]) + (f" to {clean(part.nodes[-1])}" if len(part.nodes) > 1 else "")
        outcome = f"built in {part.seconds:.1f} s" if part.built else f"not built: {clean(part.message)[:300]}"
        sys.stdout.write(f"{count(len(part.nodes), 'node')}, {span}: {outcome}\n")
    return 0 if found.built else 1


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
    where = "" if len(failed) == len(results) else f"; what they made is in {bundle / 'boards'}"
    sys.stdout.write(f"{len(results) - len(failed)} of {len(hosts)} boards built{where}\n")
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
