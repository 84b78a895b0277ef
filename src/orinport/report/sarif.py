"""SARIF 2.1.0 of `check`: one result a finding, for code hosts and editors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orinport
from orinport.rules.finding import Finding, Verdict

if TYPE_CHECKING:
    from orinport.results import CheckReport

__all__ = ["sarif_document"]

_LEVELS = {
    Verdict.BLOCKED: "error",
    Verdict.GPU: "error",
    Verdict.UNKNOWN: "warning",
    Verdict.DLA: "note",
    None: "note",
}


def sarif_document(report: CheckReport, titles: dict[str, str]) -> dict[str, Any]:
    """The SARIF log; `titles` gives a rule's title by code."""
    codes = sorted({finding.code for finding in report.findings})
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "orinport",
                        "version": orinport.__version__,
                        "rules": [{"id": code, "shortDescription": {"text": titles.get(code, code)}} for code in codes],
                    }
                },
                "results": [_result(finding, report.model, codes) for finding in report.findings],
            }
        ],
    }


def _result(finding: Finding, model: str, codes: list[str]) -> dict[str, Any]:
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": _uri(model)}}}
    if finding.layer:
        location["logicalLocations"] = [
            {"name": node, "kind": "element"} for node in (finding.nodes or (finding.layer,))
        ]
    text = f"{finding.message} {finding.help}".strip()
    return {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": _LEVELS[finding.verdict],
        "message": {"text": text},
        "locations": [location],
        "properties": {
            "value": finding.value,
            "limit": finding.limit,
            "source": finding.source,
            "confidence": finding.confidence.value,
            "layer": finding.layer,
        },
    }


def _uri(path: str) -> str:
    from urllib.parse import quote

    return quote(path)
