"""`orinport targets`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from orinport.cli.options import TextFormat

__all__ = ["targets"]


def targets(
    name: Annotated[str, Parameter(help="A target such as orin-agx-64gb/jp6.0, to show in full.")] = "",
    /,
    *,
    format: TextFormat = "text",
) -> int:
    """List the boards and software releases that orinport knows, or show one with the source of every number.

    Exit status: 0, or 2 if there is no such target.
    """
    import sys

    from orinport.report.json import dumps
    from orinport.report.targets import list_document, list_text, target_document, target_text
    from orinport.targets import list_targets, load_target

    if name:
        target = load_target(name)
        sys.stdout.write(dumps(target_document(target)) if format == "json" else target_text(target))
        return 0
    found = list_targets()
    sys.stdout.write(dumps(list_document(found)) if format == "json" else list_text(found))
    return 0
