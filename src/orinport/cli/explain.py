"""`orinport explain`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

__all__ = ["explain"]


def explain(
    code: Annotated[str, Parameter(help="A code such as DLA121; without one, all codes are listed.")] = "",
    /,
) -> int:
    """Print the documentation of a finding's code: rule, reason, example, what to do, source.

    Exit status: 0, or 2 if there is no such code.
    """
    import sys

    from orinport import rules
    from orinport.precision import pages as scales
    from orinport.predict import pages

    if not code:
        for name, title in sorted({**rules.titles(), **pages.titles(), **scales.titles()}.items()):
            sys.stdout.write(f"{name}  {title}\n")
        return 0
    wanted = code.strip().upper()
    text = pages.page(wanted) or scales.page(wanted) or rules.explain(code)
    sys.stdout.write(text.rstrip() + "\n")
    return 0
