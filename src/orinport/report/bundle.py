"""The `report.json` of a bundle: everything that `prepare` found, did, proved and predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orinport.report.json import SCHEMA_VERSION, check_document, verify_document
from orinport.report.predict import predict_document

if TYPE_CHECKING:
    from orinport.placement.placement import Placement
    from orinport.results import PrepareReport

__all__ = ["parts_document", "prepare_document"]


def prepare_document(report: PrepareReport) -> dict[str, Any]:
    """The `report.json` of a bundle."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": report.after.model,
        "target": report.after.target.name,
        "precision": report.after.precision.value,
        "files": list(report.files),
        "tail": _tail(report),
        "parts": parts_document(report) if report.parts else None,
        "io": [edge.document() for edge in report.edges],
        "formats": _formats(report.after.placement),
        "rewriting": None if report.rewriting is None else report.rewriting.document(),
        "rewrites": report.log.document(),
        "proof": None if report.proof is None else verify_document(report.proof),
        "notes": list(report.notes),
        "build": report.build,
        "prediction": None if report.prediction is None else predict_document(report.prediction),
        "split": None if report.split is None else predict_document(report.split),
        "before": check_document(report.before),
        "after": check_document(report.after),
    }


def parts_document(report: PrepareReport) -> dict[str, Any]:
    """`parts.json`: the engines in an order in which they can run, and what leads from one to the other."""
    return {
        "schema_version": SCHEMA_VERSION,
        "us": 0.0 if report.split is None else report.split.total_us,
        "parts": [
            {
                "folder": f"parts/{part.folder}",
                "device": part.device,
                "core": part.core if part.device == "dla" else None,
                "inputs": [
                    {"name": name, "from": f"parts/{source}" if source else None} for name, source in part.inputs
                ],
                "outputs": list(part.outputs),
                "start_us": part.start_us,
                "us": part.us,
            }
            for part in report.parts
        ],
    }


def _tail(report: PrepareReport) -> dict[str, Any] | None:
    tail = report.tail
    if tail is None:
        return None
    return {
        "file": "tail.onnx",
        "inputs": list(tail.inputs),
        "outputs": list(tail.outputs),
        "nodes": list(tail.nodes),
        "share": tail.share,
    }


def _formats(placement: Placement) -> dict[str, Any]:
    return {
        side: [
            {"name": f.name, "type": f.dtype.value, "format": f.format, "reason": f.reason}
            for f in getattr(placement, side)
        ]
        for side in ("inputs", "outputs")
    }
