"""JSON of `check` and `verify`: versioned, and fields are only ever added."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from orinport.rules.finding import Finding, Verdict

if TYPE_CHECKING:
    from orinport.results import CheckReport
    from orinport.rewrites.log import VerifyReport

__all__ = ["SCHEMA_VERSION", "check_document", "dumps", "finding_document", "plain", "verify_document"]

SCHEMA_VERSION = 1


def dumps(document: dict[str, Any]) -> str:
    """`document` as indented JSON text with a final newline."""
    return msgspec.json.format(msgspec.json.encode(plain(document)), indent=2).decode() + "\n"


def check_document(report: CheckReport) -> dict[str, Any]:
    """The `check` document of schema version 1."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": report.model,
        "target": report.target.name,
        "precision": report.precision.value,
        "summary": {
            "layers": len(report.layers),
            **{verdict.value: report.count(verdict) for verdict in Verdict},
            "loadables": report.placement.loadables,
            "transitions": report.placement.transitions,
        },
        "layers": [
            {
                "name": row.layer.name,
                "kind": row.layer.kind.value,
                "nodes": list(row.layer.nodes),
                "verdict": row.verdict.value,
                "codes": list(row.codes),
            }
            for row in report.layers
        ],
        "findings": [finding_document(finding) for finding in report.findings],
    }


def verify_document(report: VerifyReport) -> dict[str, Any]:
    """The document of `verify`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "reference": report.reference,
        "candidate": report.candidate,
        "equal": report.equal,
        "cases": report.cases,
        "seed": report.seed,
        "diverges_at": report.diverges_at,
        "outputs": [
            {
                "name": row.output,
                "shape": list(row.shape),
                "max_abs": row.max_abs,
                "max_rel": row.max_rel,
                "tolerance": row.tolerance,
                "equal": row.equal,
                "undecided": row.undecided,
            }
            for row in report.rows
        ],
    }


def finding_document(finding: Finding) -> dict[str, Any]:
    """One finding."""
    return {
        "code": finding.code,
        "layer": finding.layer,
        "nodes": list(finding.nodes),
        "message": finding.message,
        "value": finding.value,
        "limit": finding.limit,
        "help": finding.help,
        "fix": None if finding.fix is None else {"rewrite": finding.fix.rewrite, "safety": finding.fix.safety},
        "source": finding.source,
        "confidence": finding.confidence.value,
        "verdict": None if finding.verdict is None else finding.verdict.value,
        "rows": list(finding.rows),
    }


_AS_THEY_ARE = frozenset({str, int, bool})


def plain(value: Any) -> Any:
    """`value` with enumerations, tuples and non-finite numbers turned into what JSON has."""
    if value is None or type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return str(value)
    if hasattr(value, "item"):
        return value.item()
    return value
