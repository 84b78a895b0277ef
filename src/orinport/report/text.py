"""Plain text for a terminal: findings grouped by reason, then what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.report.predict import queued_text, time_text
from orinport.report.style import PLAIN, Style, clean
from orinport.rules.finding import Finding, Verdict
from orinport.words import count, some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.predict.prediction import Prediction
    from orinport.results import CheckReport, PrepareReport, Reason
    from orinport.rewrites.log import Refused, VerifyReport
    from orinport.rules.finding import Fix

__all__ = ["check_text", "prepare_text", "verify_text"]

_NODES_SHOWN = 8


def check_text(report: CheckReport, style: Style = PLAIN) -> str:
    """The report of `check`: a headline, one paragraph a reason, one closing line."""
    lines = [
        style.bold(f"{clean(report.model)} on {report.target.name}, {report.precision.value}"),
        "",
        _counts(report, style),
    ]
    stopping = [reason for reason in report.reasons if reason.verdict is not None]
    notes = [reason for reason in report.reasons if reason.verdict is None]
    touched = sum(row.verdict is not Verdict.DLA for row in report.layers)
    if touched:
        lines.append(f"{count(touched, 'layer')} not on the DLA, {count(len(stopping), 'reason')}:")
    for reason in [*stopping, *notes]:
        lines += ["", *_reason(reason, style)]
    lines += ["", _closing(report, style)]
    return "\n".join(lines) + "\n"


def prepare_text(report: PrepareReport, style: Style = PLAIN) -> str:
    """The report of `prepare`: before, what was done, after, and the command to run on the board."""
    before, after = report.before, report.after
    lines = [
        style.bold(f"{clean(after.model)} on {after.target.name}, {after.precision.value}"),
        "",
        f"before: {_counts(before, style)}",
        f"after:  {_counts(after, style)}",
        "",
        *_rewrites(report, style),
        *_tail(report),
        *_edges(report),
        *_proof(report.proof, style),
        *_predicted(report.prediction),
        *(clean(f"note: {note}") for note in report.notes),
    ]
    for reason in after.reasons:
        lines += ["", *_reason(reason, style, report.log.refused)]
    if report.files:
        lines += ["", f"written to {clean(str(report.folder))}: {', '.join(map(clean, report.files))}"]
        lines.append("On the board, in that folder: sh build.sh")
    return "\n".join(lines) + "\n"


def verify_text(report: VerifyReport, style: Style = PLAIN) -> str:
    """The report of `verify`: one line an output."""
    lines = [f"{clean(report.candidate)} against {clean(report.reference)}, {count(report.cases, 'random input')}"]
    for row in report.rows:
        word = style.good("equal") if row.equal else style.bad("DIFFERS")
        if row.undecided:
            word = style.warn("undecided (it counts or chooses, and what is allowed before it changes that)")
        lines.append(
            f"  {clean(row.output)} {list(row.shape)}: {word}, largest difference {row.max_abs:.3g}"
            f" ({row.max_rel:.3g} of the largest value; tolerance {row.tolerance:.3g})"
        )
    if report.diverges_at:
        lines.append(f"  first tensor that differs: {clean(report.diverges_at)}")
    return "\n".join(lines) + "\n"


def _counts(report: CheckReport, style: Style) -> str:
    parts = [f"{report.count(Verdict.DLA)} dla"]
    for verdict, paint in (
        (Verdict.GPU, style.warn),
        (Verdict.UNKNOWN, style.warn),
        (Verdict.BLOCKED, style.bad),
    ):
        number = report.count(verdict)
        parts.append(paint(f"{number} {verdict.value}") if number else f"{number} {verdict.value}")
    loadables = count(report.placement.loadables, "DLA loadable")
    return f"{count(len(report.layers), 'layer')}: {', '.join(parts)}; {loadables}"


def _predicted(prediction: Prediction | None) -> list[str]:
    if prediction is None:
        return []
    low, high = time_text(prediction.band.low), time_text(prediction.band.high)
    one = f"one inference {time_text(prediction.total_us)} (between {low} and {high})"
    return [f"predicted: {one}; {queued_text(prediction)}"]


def _reason(reason: Reason, style: Style, refused: Sequence[Refused] | None = None) -> list[str]:
    """One reason; `refused` are the rewrites that have been tried, without them all are still to come."""
    first = reason.findings[0]
    word = {
        Verdict.BLOCKED: style.bad("blocked"),
        Verdict.GPU: style.warn("gpu"),
        Verdict.UNKNOWN: style.warn("unknown"),
        None: "note",
        Verdict.DLA: "note",
    }[reason.verdict]
    layers = len({finding.layer for finding in reason.findings if finding.layer})
    where = f"  ({count(layers, 'layer')})" if layers else ""
    lines = [f"{style.bold(reason.code)} {word}{where}: {clean(first.message)}"]
    others = sorted({clean(finding.message) for finding in reason.findings[1:]} - {clean(first.message)})
    lines += [f"  also: {message}" for message in others[:3]]
    if len(others) > 3:
        lines.append(f"  also: {len(others) - 3} more messages of this kind, all in the JSON report")
    if first.help:
        lines.append(f"  help: {clean(first.help)}")
    if first.fix is not None:
        lines.append(f"  fix: {_fix(first.fix, reason.findings, refused)}")
    lines.append(f"  source: {clean(first.source)} ({first.confidence.value})")
    if layers:
        lines.append(f"  nodes: {_nodes(reason.findings)}")
    return lines


def _fix(fix: Fix, findings: Sequence[Finding], refused: Sequence[Refused] | None) -> str:
    if refused is None:
        return f"orinport prepare applies {fix.rewrite} ({fix.safety})"
    nodes = {node for finding in findings for node in finding.nodes}
    told = next((each for each in refused if each.rewrite == fix.rewrite and each.node in nodes), None)
    where = "" if told is None else f" to {clean(told.node)}: {clean(told.reason)}"
    return f"{fix.rewrite} ({fix.safety}) was not applied{where}"


def _nodes(findings: Sequence[Finding]) -> str:
    names = dict.fromkeys(clean(node) for finding in findings for node in finding.nodes)
    return some(list(names), _NODES_SHOWN)


def _closing(report: CheckReport, style: Style) -> str:
    if report.all_dla:
        return style.good("Every layer is one that the DLA takes.")
    fixable = any(finding.fix for finding in report.findings)
    step = "orinport prepare applies the fixes named above" if fixable else "no rewrite is known for what remains"
    return f"{step}; orinport explain CODE tells more about a code."


def _rewrites(report: PrepareReport, style: Style) -> list[str]:
    counts = report.log.counts()
    if not counts:
        return ["no rewrite was applied"]
    done = ", ".join(f"{name} x{number}" for name, number in counts.items())
    lines = [f"rewrites, each proved in ONNX Runtime: {done}"]
    lines += [style.bad(f"rolled back, a defect of orinport: {clean(str(entry))}") for entry in report.log.rolled_back]
    return lines


def _edges(report: PrepareReport) -> list[str]:
    return [
        clean(
            f"edge moved: {edge.kind} {edge.name} was {list(edge.original_shape)}, on the board {list(edge.shape)}"
            " (mapping in report.json under io)"
        )
        for edge in report.edges
    ]


def _tail(report: PrepareReport) -> list[str]:
    tail = report.tail
    if tail is None:
        return []
    made, taken = ", ".join(tail.outputs), ", ".join(tail.inputs)
    return [
        clean(
            f"tail cut: tail.onnx makes {made} from {taken}; {count(len(tail.nodes), 'node')},"
            f" {tail.share:.2%} of the MACs"
        )
    ]


def _proof(proof: VerifyReport | None, style: Style) -> list[str]:
    if proof is None:
        return ["whole network: not run, see the notes"]
    word = style.good("equal") if proof.equal else style.bad("DIFFERS") if proof.refuted else style.warn("undecided")
    return [f"whole network before and after in ONNX Runtime: {word}, largest relative difference {proof.worst:.2g}"]
