"""What a code means: `explain(code)` prints the rule's page, `titles()` lists all codes."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from inspect import cleandoc
from typing import TYPE_CHECKING

from orinport.errors import OrinportError
from orinport.rules.catalogue import rules
from orinport.targets.catalogue import catalogue_rows

if TYPE_CHECKING:
    from orinport.rules.rule import Rule
    from orinport.targets.target import RuleRow

__all__ = ["SECTIONS", "explain", "page", "titles"]

SECTIONS = ("What it checks", "Why it matters", "Example", "What to do", "Fix safety", "Source")
"""Headings of a rule's documentation, in order."""


def titles() -> dict[str, str]:
    """Every code and its title."""
    return {rule.code: rule.title for rule in rules()}


def explain(code: str) -> str:
    """The documentation of `code`; raises OrinportError with the nearest codes if there is none such."""
    by_code = {rule.code: rule for rule in rules()}
    rule = by_code.get(code.strip().upper())
    if rule is None:
        close = get_close_matches(code.strip().upper(), by_code, n=3)
        hint = f"Did you mean {', '.join(close)}?" if close else "orinport explain lists all codes."
        raise OrinportError(f"There is no code {code!r}.", hint)
    return page(rule)


def page(rule: Rule) -> str:
    """A rule's page as Markdown: title, documentation, and the catalogue rows that it puts into effect."""
    documentation = cleandoc(sys.modules[type(rule).__module__].__doc__ or "")
    rows = [catalogue_rows()[row] for row in rule.rows]
    lines = [f"# {rule.code}: {rule.title}", "", documentation, ""]
    if rows:
        lines += ["## Rows of the catalogue", "", *(_row_line(row) for row in rows), ""]
    return "\n".join(lines)


def _row_line(row: RuleRow) -> str:
    where = " and ".join(platform.value.capitalize() for platform in row.platforms) or "neither Xavier nor Orin"
    precisions = ", ".join(precision.value.upper() for precision in row.precisions) or "any precision"
    return (
        f"- {row.id} ({row.kind}; TensorRT {_versions(row)}; {where}; {precisions}; {row.confidence.value}): "
        f"{row.text} Source: {row.source}."
    )


def _versions(row: RuleRow) -> str:
    since = f"from {row.since}" if row.since else "from an unknown version"
    if row.until is None:
        return f"{since} on"
    until = f"before {row.until}" if row.until_exclusive else f"to {row.until}"
    return f"{since} {until}" + (", beyond that inferred" if row.open_ended else "")
