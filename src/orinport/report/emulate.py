"""Text and JSON of `verify --as`."""

from __future__ import annotations

from collections import Counter
from math import isnan
from typing import TYPE_CHECKING, Any

from orinport.report.json import SCHEMA_VERSION, finding_document
from orinport.report.style import PLAIN, Style, clean
from orinport.words import count

if TYPE_CHECKING:
    from orinport.emulation import EmulationReport
    from orinport.precision.emulate_measure import TensorRow

__all__ = ["LIMITS", "emulation_document", "emulation_text"]

LIMITS = {
    "int8": (
        "This is NVDLA v1's arithmetic. Orin's DLA post-processes in a format (FP19) that NVIDIA has not published, so"
        " values on a board may differ, and by how much is not known before a board is measured; layers off the DLA are"
        " computed in FP32 here."
    ),
    "fp16": (
        "Every result is rounded to FP16 once and sums are kept in FP32. Orin's DLA post-processes in a format (FP19)"
        " that NVIDIA has not published; layers off the DLA are computed in FP32 here."
    ),
}
"""What an emulation cannot know, by precision."""

TYPED = {
    "int8": (
        "This is NVDLA v1's arithmetic, for what Q/DQ layers put into INT8; the rest is rounded to FP16 once a layer."
        " Which Q/DQ patterns the DLA takes is not documented, and Orin's DLA post-processes in a format (FP19) that"
        " NVIDIA has not published, so values on a board may differ."
    ),
    "fp16": (
        "Every result is rounded to FP16 once and sums are kept in FP32, wherever a layer runs. Orin's DLA"
        " post-processes in a format (FP19) that NVIDIA has not published."
    ),
}
"""The same where the network's types decide, from TensorRT 11 on."""

_STORED = (
    "The network holds its weights in {}, and FP32 computes with these too: what their rounding costs is not in the"
    " figures. Name the network that it was made from in front of it, and it is."
)

_FAULTS = frozenset({"Q001", "Q002", "Q003", "Q004", "Q006", "Q007", "Q009", "Q012"})
"""Findings that say of scales that they are missing, wrong, or of no effect."""
_SHOWN = 10
_TOLD = 0.05
"""Share of values that become zero from which it is worth a word: scores beside coordinates in one tensor do."""
_WASTED = 1 / 8
"""A range that is used below this loses three of seven bits."""


def emulation_text(report: EmulationReport, style: Style = PLAIN) -> str:
    """Outputs, the first tensor that goes wrong, bad ranges, the ranking, and what is not known."""
    typed = report.target.stack.strongly_typed
    single = f"{report.fp32} in fp32, as their types say" if typed else f"{report.fp32} not on the DLA (fp32)"
    computing = f"{report.int8} nodes in int8, {report.fp16} in fp16, {single}"
    lines = [
        style.bold(f"{clean(report.model)} as {report.target.name} computes it, {report.precision.value}"),
        f"{computing}; {count(report.samples, 'sample')} of {clean(report.source)}",
        *([f"against {clean(report.reference)} in fp32"] if report.reference else []),
        "",
    ]
    for row in report.output_rows:
        word = style.bad("WRONG") if report.wrong(row) else style.good("fine")
        lines.append(f"  output {clean(row.name)}: {word}, {_figures(row)}")
    first = report.first_wrong
    if first is not None:
        lines.append(f"first tensor below {report.min_snr:g} dB: {_place(first)}, {_figures(first)}")
    lines += _ranges(report)
    lines += _ranking(report, style)
    lines += _scales(report)
    lines += ["", _limits(report)]
    if report.stored is not None:
        lines.append(_STORED.format(report.stored.value.upper()))
    if report.source == "random inputs":
        lines.append("Random inputs show defects, not accuracy: give real ones with --data.")
    return "\n".join(lines) + "\n"


def _limits(report: EmulationReport) -> str:
    return (TYPED if report.target.stack.strongly_typed else LIMITS)[report.precision.value]


def _figures(row: TensorRow) -> str:
    rest = " of the others" if row.broken else ""
    parts = [f"SNR {row.snr_db:.1f} dB"]
    if not isnan(row.cosine):
        parts += [f"cosine {row.cosine:.6f}{rest}", f"largest difference {row.max_abs:.3g}{rest}"]
    if row.saturated:
        parts.append(f"{_share(row.saturated)} beyond its range")
    if row.vanished >= _TOLD:
        parts.append(f"{row.vanished:.1%} of its values become zero")
    if row.nonfinite:
        parts.append(f"{count(row.nonfinite, 'value')} not finite in fp32, left out")
    if row.broken:
        parts.append(f"{count(row.broken, 'value')} finite in fp32 alone")
    return ", ".join(parts)


def _share(part: float) -> str:
    return f"{part:.2%}" if part >= 1e-4 else "less than 0.01%"


def _place(row: TensorRow) -> str:
    return f"{clean(row.name)} ({clean(row.node)}, {row.arithmetic.value})" if row.node else clean(row.name)


def _ranges(report: EmulationReport) -> list[str]:
    saturated = sorted((row for row in report.rows if row.range and row.saturated > 0), key=lambda row: -row.saturated)
    wasted = sorted(
        (row for row in report.rows if row.used is not None and row.used < _WASTED), key=lambda row: row.used or 0.0
    )
    lines = []
    if saturated:
        worst = saturated[0]
        lines.append(
            f"{count(len(saturated), 'tensor')} {'saturates' if len(saturated) == 1 else 'saturate'}, most"
            f" {clean(worst.name)}: {_share(worst.saturated)} of its values lie beyond {worst.range:.4g},"
            f" the largest is {worst.largest:.4g}"
        )
    if wasted:
        worst = wasted[0]
        lines.append(
            f"{count(len(wasted), 'tensor')} {'uses' if len(wasted) == 1 else 'use'} less than an eighth of the range,"
            f" least {clean(worst.name)}:"
            f" {worst.largest:.4g} of {worst.range:.4g}, {worst.vanished:.1%} of its values become zero"
        )
    return lines


def _scales(report: EmulationReport) -> list[str]:
    """What is wrong with the scales: else a network without any is fine, in FP16."""
    faults = Counter(finding.code for finding in report.findings if finding.code in _FAULTS)
    lacking = faults.pop("Q001", 0)
    lines = []
    if lacking:
        verb = "runs" if lacking == 1 else "run"
        lines.append(f"{count(lacking, 'layer')} {verb} in FP16 for want of a scale (Q001)")
    if faults:
        lines.append(f"{count(sum(faults.values()), 'finding')} about scales: {', '.join(sorted(faults))}")
    return [f"{line}; orinport quantize tells which" for line in lines]


def _ranking(report: EmulationReport, style: Style) -> list[str]:
    if report.ranking is None:
        return [] if report.good or not report.int8 else ["--rank tries every layer in FP16 and says which is worth it"]
    useful = [each for each in report.ranking if each.gain_db > 0]
    if not useful:
        return ["no layer alone gains anything in FP16"]
    lines = ["", style.bold("worth FP16, each alone (SNR of the worst output; predicted cost):")]
    for each in useful[:_SHOWN]:
        cost = "cost not known" if each.extra_us is None else f"{each.extra_us:+.1f} us"
        lines.append(f"  {clean(each.layer)}: {each.gain_db:+.2f} dB to {each.snr_db:.1f} dB, {cost}")
    if len(useful) > _SHOWN:
        lines.append(f"  and {len(useful) - _SHOWN} more, all in the JSON report")
    return lines


def emulation_document(report: EmulationReport) -> dict[str, Any]:
    """JSON of an emulation; fields are only added."""
    first = report.first_wrong
    return {
        "schema_version": SCHEMA_VERSION,
        "model": report.model,
        "target": report.target.name,
        "precision": report.precision.value,
        "samples": report.samples,
        "source": report.source,
        "reference": report.reference or None,
        "stored": None if report.stored is None else report.stored.value,
        "min_snr_db": report.min_snr,
        "good": report.good,
        "nodes": {"int8": report.int8, "fp16": report.fp16, "fp32": report.fp32},
        "outputs": list(report.outputs),
        "first_wrong": None if first is None else first.name,
        "tensors": [
            {
                "name": row.name,
                "node": row.node,
                "arithmetic": row.arithmetic.value,
                "range": row.range,
                "used": row.used,
                "snr_db": row.snr_db,
                "cosine": row.cosine,
                "largest": row.largest,
                "max_abs": row.max_abs,
                "saturated": row.saturated,
                "vanished": row.vanished,
                "nonfinite": row.nonfinite,
                "broken": row.broken,
            }
            for row in report.rows
        ],
        "ranking": None
        if report.ranking is None
        else [
            {
                "layer": each.layer,
                "nodes": list(each.nodes),
                "snr_db": each.snr_db,
                "gain_db": each.gain_db,
                "extra_us": each.extra_us,
            }
            for each in report.ranking
        ],
        "findings": [finding_document(finding) for finding in report.findings],
        "limits": _limits(report),
    }
