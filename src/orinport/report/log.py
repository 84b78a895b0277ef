"""What a log says, as text and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orinport import __version__
from orinport.report.json import SCHEMA_VERSION, finding_document
from orinport.report.style import PLAIN, Style, clean
from orinport.words import count

if TYPE_CHECKING:
    from orinport.device.log import LogFinding, LogReport
    from orinport.device.log_match import Difference, LogMatch

__all__ = ["difference_report", "log_document", "log_text"]

_NAMES_SHOWN = 8


def log_document(name: str, report: LogReport, match: LogMatch | None) -> dict[str, Any]:
    """The document of `explain-log`, schema version 1."""
    reason = report.reason
    return {
        "schema_version": SCHEMA_VERSION,
        "log": name,
        "lines": report.lines,
        "tensorrt": report.version,
        "command": report.command,
        "outcome": report.outcome,
        "reason": None if reason is None else reason.kind.id,
        "findings": [_finding(finding, match) for finding in report.findings],
        "dla_regions": list(report.dla_regions),
        "gpu_layers": list(report.gpu_layers),
        "unknown": {"lines": report.unknown, "examples": list(report.unknown_examples)},
        "errors": {"lines": report.errors, "examples": list(report.error_examples)},
        "differences": []
        if match is None
        else [
            {
                "layer": d.layer,
                "nodes": list(d.nodes),
                "ours": d.ours,
                "log": d.log,
                "codes": list(d.codes),
                "report": difference_report(d, report, match),
            }
            for d in match.differences
        ],
        "unmatched": [] if match is None else list(match.unmatched),
        "causes": {}
        if match is None
        else {name: [finding_document(f) for f in findings] for name, findings in match.causes.items()},
    }


def _finding(finding: LogFinding, match: LogMatch | None) -> dict[str, Any]:
    kind = finding.kind
    return {
        "message": kind.id,
        "weight": kind.weight,
        "meaning": kind.meaning,
        "help": kind.help,
        "codes": list(kind.codes),
        "lines": finding.lines,
        "first_line": finding.first_line,
        "text": finding.text,
        "layers": [
            {"name": name, "lines": number, "nodes": list(match.nodes.get(name, ())) if match else []}
            for name, number in finding.names.items()
        ],
        "values": dict(finding.values),
        "source": kind.source,
    }


def log_text(name: str, report: LogReport, match: LogMatch | None, style: Style = PLAIN) -> str:
    """The reason of a failure first, then every kind of message, the partition, and what is not known."""
    version = f"TensorRT {report.version}" if report.version else "an unknown version of TensorRT"
    outcome = {"PASSED": style.good("passed"), "FAILED": style.bad("failed")}.get(report.outcome, "outcome not stated")
    lines = [style.bold(f"{clean(name)}: {count(report.lines, 'line')} of {version}, {outcome}")]
    if report.reason is not None:
        lines += ["", style.bad("reason: ") + clean(report.reason.kind.meaning), *_lines(report.reason, match)]
    elif report.failed and report.errors:
        lines += [
            "",
            style.bad("reason: ") + "nobody has documented it; the first error that orinport does not know is",
        ]
        lines.append(f"  {clean(report.error_examples[0])}")
    for finding in report.findings:
        if finding is not report.reason:
            lines += ["", clean(finding.kind.meaning), *_lines(finding, match)]
    if report.dla_regions or report.gpu_layers:
        lines += [
            "",
            f"partition: {count(len(report.dla_regions), 'DLA region')}, {count(len(report.gpu_layers), 'GPU layer')}",
            *(f"  DLA: {clean(region)}" for region in report.dla_regions[:_NAMES_SHOWN]),
            *(f"  GPU: {clean(layer)}" for layer in report.gpu_layers[:_NAMES_SHOWN]),
        ]
    if report.errors:
        lines += ["", f"{count(report.errors, 'error')} that orinport does not know, for instance:"]
        lines += [f"  {clean(line)}" for line in report.error_examples[:3]]
    if report.unknown:
        lines += ["", f"{count(report.unknown, 'line')} about the DLA that orinport does not know, for instance:"]
        lines += [f"  {clean(line)}" for line in report.unknown_examples[:3]]
    if match is not None:
        lines += ["", *_match(match, report, style)]
    if not report.findings and not report.unknown and not report.errors:
        lines += ["", "nothing in it speaks of the DLA"]
    return "\n".join(lines) + "\n"


def _lines(finding: LogFinding, match: LogMatch | None) -> list[str]:
    kind = finding.kind
    lines = [f"  {kind.id}, {count(finding.lines, 'line')}, first in line {finding.first_line}: {clean(finding.text)}"]
    if finding.names:
        shown = [_named(name, match) for name in list(finding.names)[:_NAMES_SHOWN]]
        more = len(finding.names) - len(shown)
        lines.append(f"  layers: {', '.join(shown)}{f' and {more} more' if more else ''}")
    if kind.help:
        lines.append(f"  help: {clean(kind.help)}")
    if kind.codes:
        lines.append(f"  the same in orinport check: {', '.join(kind.codes)} (orinport explain {kind.codes[0]})")
    return lines


def _named(name: str, match: LogMatch | None) -> str:
    nodes = match.nodes.get(name, ()) if match else ()
    return clean(name) if not nodes or nodes == (name,) else f"{clean(name)} ({', '.join(map(clean, nodes))})"


def _match(match: LogMatch, report: LogReport, style: Style) -> list[str]:
    lines = _other_version(match, report, style)
    for name, findings in list(match.causes.items())[:_NAMES_SHOWN]:
        for finding in findings[:2]:
            lines += [f"{clean(name)}: {finding.code}: {clean(finding.message)}", f"  help: {clean(finding.help)}"]
            if finding.fix is not None:
                lines.append(f"  fix: orinport prepare applies {finding.fix.rewrite} ({finding.fix.safety})")
    return [*lines, *([""] if lines else []), *_agreement(match, report, style)]


def _other_version(match: LogMatch, report: LogReport, style: Style) -> list[str]:
    """Rules hold for versions: verdicts of another one prove nothing."""
    if not report.version or report.version.split(".")[:2] == match.tensorrt.split(".")[:2]:
        return []
    return [
        style.warn(f"the log is of TensorRT {report.version}, and {match.target} has {match.tensorrt}: choose --target")
    ]


def _agreement(match: LogMatch, report: LogReport, style: Style) -> list[str]:
    if match.unmatched and not match.nodes:
        return [style.warn("no layer of the log is in this network: is it the one that was built?")]
    if not match.differences:
        return [style.good("the log and orinport's verdicts agree")]
    lines = [
        style.warn(f"{count(len(match.differences), 'layer')} on which the log and orinport disagree; please report:")
    ]
    for difference in match.differences[:_NAMES_SHOWN]:
        codes = f" ({', '.join(difference.codes)})" if difference.codes else ""
        lines.append(f"  {clean(difference.layer)}: orinport says {difference.ours}{codes}, the log {difference.log}")
    if len(match.differences) > _NAMES_SHOWN:
        lines.append(f"  and {len(match.differences) - _NAMES_SHOWN} more; --format json has a report for each")
    return [*lines, "", "report for the first of them:", "", difference_report(match.differences[0], report, match)]


def difference_report(difference: Difference, report: LogReport, match: LogMatch) -> str:
    """A report of one difference in Markdown, ready to be sent: versions, layer, tensors, both verdicts. No weights."""
    version = report.version or "unknown"
    says = {"dla": "takes", "gpu": "does not take"}[difference.ours]
    lines = [
        f"### orinport says that the DLA {says} a {difference.kind} which the log has {difference.log}",
        "",
        f"- orinport {__version__}, target {match.target}, {match.precision}",
        f"- log of TensorRT {version}",
        f"- layer: {difference.kind}, {clean(difference.attributes) or 'no attributes'}",
        f"- tensors: {clean(difference.tensors)}",
        f"- codes: {', '.join(difference.codes) or 'none'}",
        f"- evidence: {clean(difference.evidence)}",
    ]
    return "\n".join(lines)
