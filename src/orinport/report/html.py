"""One self-contained HTML page of a bundle's report, made from its JSON document.

The document may come from a stranger's bundle: everything is escaped by the template, data for the script
is JSON inside a script element with `<` written as an escape, and the page forbids itself any network.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

import orinport
from orinport.report.document import proof_word, reading_report
from orinport.report.predict import time_text
from orinport.report.style import clean
from orinport.words import some

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["report_html"]

_COUNTS = ("layers", "dla", "gpu", "unknown", "blocked", "loadables")
_NODES_SHOWN = 20
_MESSAGES_SHOWN = 8
_COLUMNS: tuple[tuple[str, str, int | None], ...] = (
    # title, key, digits (None: text)
    ("layer", "name", None),
    ("kind", "kind", None),
    ("verdict", "verdict", None),
    ("us", "us", 1),
    ("bound", "bound", None),
    ("MMAC", "mmac", 1),
    ("util %", "util", 1),
    ("MB read", "mb_read", 3),
    ("MB written", "mb_written", 3),
    ("GB/s", "gbps", 1),
    ("codes", "codes", None),
    ("nodes", "nodes", None),
)


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("orinport.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("report.html.j2")


def report_html(document: Mapping[str, Any]) -> str:
    """The page of a `report.json` document. Raises OrinportError if it is none."""
    from jinja2 import TemplateError

    with reading_report():
        try:
            return _template().render(_context(document)) + "\n"
        except TemplateError as error:  # a member of something that has none
            raise ValueError(error) from error


def _context(document: Mapping[str, Any]) -> dict[str, Any]:
    from markupsafe import Markup

    after, prediction = document["after"], document.get("prediction")
    split = document.get("split")
    data = _data(after, prediction, split)
    encoded = msgspec.json.encode(data).decode().replace("<", "\\u003c").replace("\u2028", "\\u2028")
    log = document["rewrites"]
    proof = document["proof"]
    return {
        "title": f"{document['model']} on {document['target']}",
        "version": orinport.__version__,
        "model": clean(str(document["model"])),
        "target": str(document["target"]),
        "power_mode": str(prediction["power_mode"]) if prediction else "",
        "precision": str(document["precision"]),
        "cards": _cards(after["summary"], prediction),
        "notes": [clean(str(note)) for note in document["notes"]],
        "counts": _COUNTS,
        "before": document["before"]["summary"],
        "after": after["summary"],
        "reasons": _reasons(after["findings"]),
        "prediction": prediction,
        "parts": [] if split is None else [_part(entry) for entry in document["parts"]["parts"]],
        "split_us": "" if split is None else time_text(float(split["total_us"])),
        "advice": [] if prediction is None else [_cleaned(each) for each in prediction["findings"]],
        "rewrites": [_applied(entry) for entry in log["applied"]],
        "rolled_back": [clean(f"{e['rewrite']}: {e['reason']}") for e in log["rolled_back"]],
        "proof": None if proof is None else _proof(proof),
        "io": [_edge(entry) for entry in document["io"]],
        "command": clean_lines(str(document.get("build", ""))),
        "data": Markup(encoded),  # noqa: S704 escaped above: no `<` is left in it
    }


def clean_lines(text: str) -> str:
    """`clean` of every line."""
    return "\n".join(clean(line) for line in text.split("\n"))


def _cleaned(finding: Mapping[str, Any]) -> dict[str, str]:
    return {key: clean(str(finding[key])) for key in ("code", "message", "help", "source")}


def _cards(summary: Mapping[str, Any], prediction: Mapping[str, Any] | None) -> list[dict[str, str]]:
    def card(label: str, value: str, style: str = "", note: str = "") -> dict[str, str]:
        return {"label": label, "value": value, "style": style, "note": note}

    cards = [
        card("layers that the DLA takes", f"{int(summary['dla'])} of {int(summary['layers'])}", "dla"),
        *(
            card(f"{name} layers", str(int(summary[name])), name)
            for name in ("gpu", "unknown", "blocked")
            if summary[name]
        ),
        card("DLA loadables", str(int(summary["loadables"]))),
    ]
    if prediction is None:
        return cards
    low, high = prediction["band_us"]
    return [
        *cards,
        card(
            "one inference",
            time_text(float(prediction["total_us"])),
            note=f"{time_text(float(low))} to {time_text(float(high))}",
        ),
        card(
            "images a second",
            f"{float(prediction['fps']['dla1']):.0f}",
            note=f"two DLAs: {float(prediction['fps']['dla2']):.0f}; batch {int(prediction['batch'])}",
        ),
    ]


def _reasons(findings: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for finding in findings:
        groups.setdefault((str(finding["code"]), str(finding["verdict"] or "")), []).append(finding)
    order = {"blocked": 0, "gpu": 1, "unknown": 2}
    ranked = sorted(groups.items(), key=lambda item: (order.get(item[0][1], 3), -len(item[1]), item[0][0]))
    return [_reason(code, verdict, found) for (code, verdict), found in ranked]


def _reason(code: str, verdict: str, found: list[Mapping[str, Any]]) -> dict[str, Any]:
    first = found[0]
    messages = list(dict.fromkeys(clean(str(finding["message"])) for finding in found))
    nodes = list(dict.fromkeys(clean(str(node)) for finding in found for node in finding["nodes"]))
    more = messages[1:_MESSAGES_SHOWN]
    if len(messages) > _MESSAGES_SHOWN:
        more.append(f"and {len(messages) - _MESSAGES_SHOWN} more of this kind, all in report.json")
    fix = first["fix"]
    return {
        "code": code,
        "verdict": verdict if verdict in ("blocked", "gpu", "unknown") else "",
        "layers": len({finding["layer"] for finding in found if finding["layer"]}),
        "message": messages[0],
        "more": more,
        "help": clean(str(first["help"])),
        "fix": "" if fix is None else f"{fix['rewrite']} ({fix['safety']})",
        "source": clean(str(first["source"])),
        "confidence": str(first["confidence"]),
        "nodes": some(nodes, _NODES_SHOWN),
    }


def _applied(entry: Mapping[str, Any]) -> dict[str, Any]:
    proof = entry["proof"]
    return {
        "rewrite": str(entry["rewrite"]),
        "safety": str(entry["safety"]),
        "replaced": ", ".join(clean(str(node)) for node in entry["replaced"]),
        "cases": int(proof["cases"]),
        "error": f"{float(proof['max_error']):.2g}",
        "tolerance": f"{float(proof['tolerance']):.2g}",
        "engine": str(proof["engine"]),
    }


def _proof(proof: Mapping[str, Any]) -> dict[str, Any]:
    worst = max((float(row["max_rel"]) for row in proof["outputs"]), default=0.0)
    return {"word": proof_word(proof), "cases": int(proof["cases"]), "worst": f"{worst:.2g}"}


def _edge(entry: Mapping[str, Any]) -> str:
    return clean(
        f"{entry['kind']} {entry['name']} was {list(entry['original_shape'])}, on the board {list(entry['shape'])}"
    )


def _part(entry: Mapping[str, Any]) -> dict[str, str]:
    device = str(entry["device"])
    return {
        "folder": clean(str(entry["folder"])),
        "device": f"DLA {int(entry['core'])}" if device == "dla" else "GPU",
        "reads": ", ".join(clean(str(each["name"])) for each in entry["inputs"]),
        "gives": ", ".join(clean(str(name)) for name in entry["outputs"]),
        "start": time_text(float(entry["start_us"])),
        "us": time_text(float(entry["us"])),
    }


def _data(
    after: Mapping[str, Any], prediction: Mapping[str, Any] | None, split: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What the page's script draws: rows of the table, and what the drawings need."""
    timed = {} if prediction is None else {str(layer["name"]): layer for layer in prediction["layers"]}
    rows = [_row(layer, timed.get(str(layer["name"]))) for layer in after["layers"]]
    columns = [
        {"title": title, "text": digits is None, "digits": digits or 0, "name": key in ("name", "nodes")}
        for title, key, digits in _COLUMNS
    ]
    return {
        "columns": columns,
        "verdict": [key for _, key, _ in _COLUMNS].index("verdict"),
        "rows": rows,
        "prediction": None if prediction is None else _drawn(prediction),
        "split": None if split is None else _drawn(split),
    }


def _row(layer: Mapping[str, Any], timed: Mapping[str, Any] | None) -> list[Any]:
    known: dict[str, Any] = {
        "name": clean(str(layer["name"])),
        "kind": str(layer["kind"]),
        "verdict": str(layer["verdict"]),
        "codes": " ".join(map(str, layer["codes"])),
        "nodes": ", ".join(clean(str(node)) for node in layer["nodes"]),
        "bound": "",
    }
    if timed is not None:
        known |= {
            "us": float(timed["us"]),
            "bound": f"with {clean(str(timed['fused_into']))}" if timed["fused_into"] else str(timed["bound"]),
            "mmac": float(timed["macs"]) / 1e6,
            "util": 100 * float(timed["mac_utilisation"]),
            "mb_read": float(timed["bytes_read"]) / 1e6,
            "mb_written": float(timed["bytes_written"]) / 1e6,
            "gbps": float(timed["gbps"]),
        }
    return [known.get(key) for _, key, _ in _COLUMNS]


def _drawn(prediction: Mapping[str, Any]) -> dict[str, Any]:
    layers = {str(layer["name"]): layer for layer in prediction["layers"]}
    regions = []
    at = 0.0
    for region in prediction["regions"]:
        times = [
            [clean(str(name)), float(layers[name]["us"])] for name in region["layers"] if not layers[name]["fused_into"]
        ]
        device = "dla" if region["device"] == "dla" else "gpu"
        start = float(region.get("start_us", at))
        at = start + float(region["us"])
        regions.append(
            {
                "device": device,
                "row": f"{device} {int(region['core'])}" if device == "dla" and prediction.get("split") else device,
                "start_us": start,
                "us": float(region["us"]),
                "launch_us": float(region["launch_us"]),
                "reformat_us": float(region["reformat_us"]),
                "layers": len(region["layers"]),
                "times": times,
            }
        )
    points = [
        [
            clean(str(layer["name"])),
            float(layer["macs_per_byte"]),
            float(layer["macs"]) / float(layer["us"]) / 1e3,
            "dla" if layer["device"] == "dla" else "gpu",
        ]
        for layer in prediction["layers"]
        if float(layer["macs"]) > 0 and float(layer["us"]) > 0 and float(layer["macs_per_byte"]) > 0
    ]
    return {"regions": regions, "points": points, "roof": prediction["roof"]}
