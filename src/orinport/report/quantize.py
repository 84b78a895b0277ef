"""The report of `quantize`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.report.style import PLAIN, Style, clean
from orinport.words import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.quantization import QuantizeReport
    from orinport.rules.finding import Finding

__all__ = ["quantize_text"]

_SHOWN = 3


def quantize_text(report: QuantizeReport, style: Style = PLAIN) -> str:
    """A headline, coverage by region, and one paragraph for each kind of finding."""
    done = report.coverage
    method = f" ({report.scales.method})" if report.scales.method else ""
    paint = style.good if done.complete else style.warn
    lines = [
        style.bold(f"{clean(report.model.name)} on {report.target.name}, int8"),
        "",
        f"{count(len(report.scales), 'scale')}{clean(method)}",
        paint(f"{done.covered} of {count(len(done.tensors), 'tensor')} on the DLA have one"),
    ]
    if done.fp16_layers:
        lines.append(f"{count(len(done.fp16_layers), 'layer')} will run in FP16 for want of a scale")
    groups: dict[str, list[Finding]] = {}
    for finding in report.findings:
        groups.setdefault(finding.code, []).append(finding)
    for code, found in sorted(groups.items()):
        lines += ["", *_paragraph(code, found, style)]
    return "\n".join(lines) + "\n"


def _paragraph(code: str, findings: Sequence[Finding], style: Style) -> list[str]:
    lines = [f"{style.bold(code)}  ({count(len(findings), 'finding')}): {clean(findings[0].message)}"]
    lines += [f"  also: {clean(finding.message)}" for finding in findings[1 : 1 + _SHOWN]]
    if len(findings) > 1 + _SHOWN:
        lines.append(f"  also: {len(findings) - 1 - _SHOWN} more of this kind")
    lines += [
        f"  help: {clean(findings[0].help)}",
        f"  source: {clean(findings[0].source)} ({findings[0].confidence.value})",
    ]
    return lines
