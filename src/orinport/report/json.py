"""JSON of `check` and `prepare`: versioned, and fields are only ever added."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from orinport.rules.finding import Finding, Verdict

if TYPE_CHECKING:
    from orinport.placement.placement import Placement
    from orinport.results import CheckReport, PrepareReport, VerifyReport

__all__ = ["SCHEMA_VERSION", "check_document", "dumps", "finding_document", "prepare_document", "verify_document"]

SCHEMA_VERSION = 1


def dumps(document: dict[str, Any]) -> str:
    """`document` as indented JSON text with a final newline."""
    return msgspec.json.format(msgspec.json.encode(_plain(document)), indent=2).decode() + "\n"


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


def prepare_document(report: PrepareReport) -> dict[str, Any]:
    """The `report.json` of a bundle."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": report.after.model,
        "target": report.after.target.name,
        "precision": report.after.precision.value,
        "files": list(report.files),
        "io": [edge.document() for edge in report.edges],
        "formats": _formats(report.after.placement),
        "rewrites": report.log.document(),
        "proof": None if report.proof is None else verify_document(report.proof),
        "notes": list(report.notes),
        "before": check_document(report.before),
        "after": check_document(report.after),
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


def _formats(placement: Placement) -> dict[str, Any]:
    return {
        side: [
            {"name": f.name, "type": f.dtype.value, "format": f.format, "reason": f.reason}
            for f in getattr(placement, side)
        ]
        for side in ("inputs", "outputs")
    }


def _plain(value: Any) -> Any:
    """`value` with enumerations, tuples and non-finite numbers turned into what JSON has."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return str(value)
    if hasattr(value, "item"):
        return value.item()
    return value
