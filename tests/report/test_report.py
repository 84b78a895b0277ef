"""Reports against golden files; UPDATE_GOLDEN=1 rewrites them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import orinport
from builders import network, node
from orinport.report.github import github_text
from orinport.report.json import check_document, dumps, verify_document
from orinport.report.predict import time_text
from orinport.report.sarif import sarif_document
from orinport.report.style import COLOUR, clean
from orinport.report.text import check_text, prepare_text, verify_text
from values import HOSTILE, check_report, verify_report

GOLDEN = Path(__file__).parents[1] / "golden"
TITLES = {"DLA001": "matrix product", "DLA099": "undocumented layer", "DLA190": "kernel limit"}


def compare(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_check_text() -> None:
    compare("check.txt", check_text(check_report()))


def test_check_json() -> None:
    compare("check.json", dumps(check_document(check_report())))


def test_check_sarif() -> None:
    compare("check.sarif", dumps(sarif_document(check_report(), TITLES)).replace(_version(), "VERSION"))


def test_check_github() -> None:
    compare("check.github.txt", github_text(check_report()))


def test_verify_text() -> None:
    compare("verify.txt", verify_text(verify_report()) + verify_text(verify_report(equal=False)))


def test_verify_json() -> None:
    document = json.loads(dumps(verify_document(verify_report(equal=False))))
    assert document["equal"] is False
    assert document["outputs"][0]["max_rel"] == 0.25
    assert document["diverges_at"] == "mid"


def _version() -> str:
    import orinport

    return orinport.__version__


@pytest.mark.parametrize("render", [check_text, github_text], ids=["text", "github"])
def test_hostile_names_stay_on_their_line(render: object) -> None:
    text = render(check_report(hostile=True))  # type: ignore[operator]
    assert "\x1b" not in text
    assert len(text.splitlines()) <= len(render(check_report()).splitlines())  # type: ignore[operator]


def test_hostile_names_survive_json() -> None:
    for document in (check_document(check_report(hostile=True)), sarif_document(check_report(hostile=True), TITLES)):
        assert HOSTILE in json.dumps(json.loads(dumps(document)), ensure_ascii=False) or any(
            HOSTILE in str(value) for value in _strings(json.loads(dumps(document)))
        )


def _strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return [str(value)]


def test_github_escapes_what_ends_a_command() -> None:
    text = github_text(check_report(hostile=True))
    for line in text.splitlines():
        properties = line.split("::")[1]
        assert line.startswith("::")
        assert "\n" not in properties


def test_every_layer_of_the_document_has_the_documented_fields() -> None:
    document = check_document(check_report())
    assert document["schema_version"] == 1
    assert {"layers", "dla", "gpu", "unknown", "blocked", "loadables"} <= document["summary"].keys()
    for row in document["layers"]:
        assert {"name", "kind", "nodes", "verdict", "codes"} <= row.keys()
    for row in document["findings"]:
        assert {
            "code",
            "layer",
            "nodes",
            "message",
            "value",
            "limit",
            "help",
            "fix",
            "source",
            "confidence",
        } <= row.keys()


def test_non_finite_numbers_become_text() -> None:
    assert json.loads(dumps({"a": float("nan"), "b": float("inf"), "c": (1, 2.5)})) == {
        "a": "nan",
        "b": "inf",
        "c": [1, 2.5],
    }


def test_colour_only_when_asked() -> None:
    assert "\x1b[" not in check_text(check_report())
    assert "\x1b[1m" in check_text(check_report(), COLOUR)


def test_clean_keeps_printable_text() -> None:
    assert clean("Faltung_ß 卷积") == "Faltung_ß 卷积"
    assert clean("a\nb\x1b[0m\u202e") == "a\\nb\\x1b[0m\\u202e"


def test_prepare_text_says_what_is_predicted_and_why_a_fix_was_not_applied(tmp_path: Path) -> None:
    proto = network([node("LogSoftmax", ["x"], "y", axis=1)], {"x": (1, 8, 4, 4)}, ["y"])
    proto.graph.node[0].name = "head"
    report = orinport.prepare(proto, output=tmp_path / "b")
    text = prepare_text(report)
    assert text == (tmp_path / "b/report.txt").read_text(encoding="utf-8")
    assert report.prediction is not None
    assert f"predicted: one inference {time_text(report.prediction.total_us)} (between " in text
    assert "images/s on one DLA, " in text
    assert "fix: log-softmax-to-softmax (tolerance) was not applied to head: changes results" in text
    assert "orinport prepare applies" not in text
