"""Workflow commands of GitHub Actions: one annotation a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.report.style import clean
from orinport.rules.finding import Verdict
from orinport.words import some

if TYPE_CHECKING:
    from orinport.results import CheckReport, Reason

__all__ = ["github_text"]

_COMMANDS = {
    Verdict.BLOCKED: "error",
    Verdict.GPU: "error",
    Verdict.UNKNOWN: "warning",
    Verdict.DLA: "notice",
    None: "notice",
}
_NODES_SHOWN = 5


def github_text(report: CheckReport) -> str:
    """One `::error file=...::message` line a reason; empty if there is none."""
    return "".join(f"{_line(reason, report.model)}\n" for reason in report.reasons)


def _line(reason: Reason, model: str) -> str:
    first = reason.findings[0]
    names = list(dict.fromkeys(node for finding in reason.findings for node in finding.nodes))
    where = f" Nodes: {some(names, _NODES_SHOWN)}" if names else ""
    message = f"{first.message} {first.help}{where} ({first.source})"
    return (
        f"::{_COMMANDS[reason.verdict]} file={_property(model)},title={_property('orinport ' + reason.code)}"
        f"::{_data(message)}"
    )


def _data(text: str) -> str:
    """`text` on one line: line breaks and other control characters made visible, `%` escaped."""
    return clean(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
