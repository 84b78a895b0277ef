"""`orinport build`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from orinport.cli.options import style

__all__ = ["build"]


def build(
    bundle: Annotated[Path, Parameter(help="A bundle's folder.")],
    /,
    *arguments: Annotated[str, Parameter(help="Further arguments for trtexec, after --.", allow_leading_hyphen=True)],
    host: Annotated[str | None, Parameter(help="Build on this board over ssh: user@board.")] = None,
    quiet: Annotated[bool, Parameter(negative="", help="Do not show trtexec's output; it is in build.log.")] = False,
) -> int:
    """Build a bundle with trtexec, here or on a board over ssh, keep the log, and explain a failure.

    Exit status: 0 if the build made an engine or loadable, 1 if it failed, 2 if there is nothing to build with.
    """
    from orinport.device.board import build_here, build_remotely
    from orinport.device.log import read_log
    from orinport.report.log import log_text

    def show(line: str) -> None:
        if not quiet:
            sys.stderr.write(line + "\n")

    here = host is None
    result = build_here(bundle, arguments, show) if here else build_remotely(bundle, str(host), arguments, show)
    with result.log.open(encoding="utf-8", errors="replace") as lines:
        report = read_log(lines)
    sys.stdout.write(log_text(str(result.log), report, None, style()))
    if result.product is None:
        sys.stdout.write(f"trtexec ended with status {result.status} and made no engine\n")
        return 1
    size = result.product.stat().st_size / 1e6
    sys.stdout.write(f"{result.product}: {size:.1f} MB\n")
    return 0
