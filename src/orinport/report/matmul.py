"""Plans for a matrix product as text and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orinport.report.json import SCHEMA_VERSION, finding_document
from orinport.report.predict import time_text
from orinport.report.style import PLAIN, Style, clean
from orinport.words import count

if TYPE_CHECKING:
    from orinport.matmul.planner import MatmulReport, Plan

__all__ = ["matmul_document", "matmul_text"]


def matmul_document(report: MatmulReport) -> dict[str, Any]:
    """The document of `matmul`, schema version 1."""
    product = report.product
    return {
        "schema_version": SCHEMA_VERSION,
        "product": {
            "m": product.m,
            "k": product.k,
            "n": product.n,
            "count": product.count,
            "constant": product.constant.value,
            "distinct": product.distinct,
        },
        "target": report.target.name,
        "power_mode": report.target.power_mode.name,
        "precision": report.precision.value,
        "gpu_us": report.gpu_us,
        "break_even": report.break_even,
        "proof": None
        if report.proof is None
        else {
            "max_error": report.proof.max_error,
            "tolerance": report.proof.tolerance,
            "equal": report.proof.equal,
        },
        "plans": [_plan(plan) for plan in report.plans],
    }


def _plan(plan: Plan) -> dict[str, Any]:
    candidate = plan.candidate
    return {
        "name": candidate.name,
        "explanation": candidate.explanation,
        "dla": plan.all_dla,
        "total_us": plan.total_us if plan.prediction else None,
        "inference_us": None if plan.prediction is None else plan.prediction.total_us,
        "band_us": None if plan.prediction is None else [plan.prediction.band.low, plan.prediction.band.high],
        "inferences": plan.inferences,
        "products_per_inference": candidate.products,
        "inputs": {name: feed.document() for name, feed in candidate.inputs.items()},
        "outputs": {
            name: {"layout": layout.document(), "columns": [part.start, part.stop]}
            for name, (layout, part) in candidate.outputs.items()
        },
        "findings": [finding_document(finding) for finding in (*plan.findings, *plan.notes)],
    }


def matmul_text(report: MatmulReport, style: Style = PLAIN) -> str:
    """The plans, the fastest that the DLA takes first, and how they compare with the GPU."""
    product = report.product
    known = {"rhs": "right-hand side constant", "lhs": "left-hand side constant", "none": "both operands at run time"}
    lines = [
        style.bold(
            f"{product}, {known[product.constant.value]}{', each its own' if product.distinct else ''}, on"
            f" {report.target.name}, {report.target.power_mode.name}, {report.precision.value}"
        ),
        f"{product.macs / 1e6:.6g} million multiply-accumulates",
    ]
    if not report.plans:
        lines += ["", "There is no plan for the DLA: no dimension may exceed its limit, K least of all."]
    for number, plan in enumerate(report.plans, start=1):
        lines += ["", *_lines(number, plan, style)]
    lines.append("")
    if report.proof is not None:
        lines.append(
            f"plan 1 against NumPy in ONNX Runtime: {style.good('equal')}, largest error {report.proof.max_error:.2g}"
            f" of the largest value (tolerance {report.proof.tolerance:.2g}), in FP32"
        )
    lines.append(f"the GPU, all products in one launch: about {time_text(report.gpu_us)}, give or take a factor of 3")
    if report.best is not None:
        lines.append(_break_even(report))
    return "\n".join(lines) + "\n"


def _lines(number: int, plan: Plan, style: Style) -> list[str]:
    candidate = plan.candidate
    if plan.prediction is None:
        reasons = list(dict.fromkeys(f"{finding.code}: {clean(finding.message)}" for finding in plan.findings))
        return [
            f"{number}. {candidate.name}: {style.warn('not all of it runs on the DLA')}",
            f"   {candidate.explanation}",
            *(f"   {reason}" for reason in reasons[:3]),
        ]
    prediction = plan.prediction
    layers = [layer for layer in prediction.layers if not layer.fused_into]
    worst = max(layers, key=lambda layer: layer.us)
    return [
        f"{number}. {candidate.name}: {time_text(plan.total_us)} in {count(plan.inferences, 'inference')}",
        f"   {candidate.explanation}",
        f"   an inference: launch {time_text(sum(r.launch_us for r in prediction.regions))},"
        f" {count(len(layers), 'operation')} {time_text(sum(layer.us for layer in layers))}; the longest"
        f" {time_text(worst.us)}, bound by {worst.bound.value}, {100 * worst.mac_utilisation:.1f} % of the multipliers",
        *(f"   {style.warn(f'{note.code} note')}: {clean(note.message)}" for note in plan.notes),
        *(f"   help: {advice}" for advice in dict.fromkeys(note.help for note in plan.notes)),
    ]


def _break_even(report: MatmulReport) -> str:
    if report.product.distinct:
        return "no break-even with the GPU is given for constants that differ from product to product"
    if report.break_even is None:
        return "however many products are submitted at once, the DLA is not predicted to be faster than the GPU"
    if report.break_even == 1:
        return "the DLA is predicted to be no slower than the GPU even for one product"
    number = report.break_even
    return f"from about {number} products in one submission on the DLA is predicted to be no slower than the GPU"
