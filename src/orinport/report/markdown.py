"""A bundle's report as Markdown, short enough for a pull request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from orinport.report.document import proof_word, reading_report
from orinport.report.predict import time_text
from orinport.report.style import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["report_markdown"]

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-!|<>~&@])")
_COUNTS = ("layers", "dla", "gpu", "unknown", "blocked", "loadables")
_LONGEST = 10


def report_markdown(document: Mapping[str, Any]) -> str:
    """The Markdown page of a `report.json` document. Raises OrinportError if it is none."""
    with reading_report():
        return "\n".join(_lines(document)) + "\n"


def escaped(text: object) -> str:
    """`text` as plain text inside Markdown: no markup, no HTML, no mentions, one line."""
    return _SPECIAL.sub(r"\\\1", clean(str(text)))


def _lines(document: Mapping[str, Any]) -> list[str]:
    before, after = document["before"]["summary"], document["after"]["summary"]
    lines = [
        f"### {escaped(document['model'])} on {escaped(document['target'])}, {escaped(document['precision'])}",
        "",
        "| | " + " | ".join(_COUNTS) + " |",
        "|---|" + "---|" * len(_COUNTS),
        "| before | " + " | ".join(str(int(before[name])) for name in _COUNTS) + " |",
        "| after | " + " | ".join(str(int(after[name])) for name in _COUNTS) + " |",
        "",
    ]
    reasons: dict[tuple[str, str], int] = {}
    for finding in document["after"]["findings"]:
        if finding["verdict"]:
            key = (str(finding["code"]), clean(str(finding["message"])))
            reasons[key] = reasons.get(key, 0) + 1
    for (code, message), number in list(reasons.items())[:20]:
        lines.append(f"- **{escaped(code)}** ({number}): {escaped(message)}")
    if len(reasons) > 20:
        lines.append(f"- and {len(reasons) - 20} more reasons in report.json")
    counts: dict[str, int] = {}
    for entry in document["rewrites"]["applied"]:
        counts[str(entry["rewrite"])] = counts.get(str(entry["rewrite"]), 0) + 1
    if counts:
        lines += ["", "Rewrites, each proved: " + ", ".join(f"{escaped(k)} x{v}" for k, v in counts.items())]
    proof = document["proof"]
    if proof is not None:
        worst = max((float(row["max_rel"]) for row in proof["outputs"]), default=0.0)
        word = "equal" if proof["equal"] else f"**{proof_word(proof)}**"
        lines += ["", f"Whole network before and after: {word}, largest relative difference {worst:.2g}"]
    if document.get("prediction") is not None:
        lines += ["", *_prediction(document["prediction"])]
    return lines


def _prediction(prediction: Mapping[str, Any]) -> list[str]:
    low, high = (float(value) for value in prediction["band_us"])
    longest = sorted(prediction["layers"], key=lambda layer: -float(layer["us"]))[:_LONGEST]
    return [
        f"Predicted: one inference {time_text(float(prediction['total_us']))}"
        f" ({time_text(low)} to {time_text(high)}), {float(prediction['fps']['dla1']):.0f} images/s on one DLA,"
        f" {float(prediction['fps']['dla2']):.0f} on two",
        "",
        "| layer | us | bound | MAC util | GB/s |",
        "|---|---|---|---|---|",
        *(
            f"| {escaped(layer['name'])} | {float(layer['us']):.1f} | {escaped(layer['bound'])} |"
            f" {100 * float(layer['mac_utilisation']):.1f} % | {float(layer['gbps']):.1f} |"
            for layer in longest
        ),
        *("\n- **" + escaped(each["code"]) + "** " + escaped(each["message"]) for each in prediction["findings"]),
        "",
        escaped(prediction["caveat"]),
    ]
