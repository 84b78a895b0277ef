"""The HTML page and what else is rendered from a bundle's report: escaped, self-contained, and alive in a browser."""

from __future__ import annotations

import copy
import html
import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import orinport
from browser import CHROMIUM, Browser
from builders import light_path
from orinport.cli import main
from orinport.errors import OrinportError
from orinport.report.bundle import prepare_document
from orinport.report.document import read_report
from orinport.report.html import report_html
from orinport.report.json import plain
from orinport.report.markdown import report_markdown
from orinport.report.trace import explorer_document, trace_document
from values import HOSTILE

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--enable-logging=stderr", "--log-level=0"),
]


def network(name: str = "conv") -> onnx.ModelProto:
    """Convolution, ReLU, and a function that no DLA takes; every name is `name` with a suffix."""
    weights = np.random.default_rng(0).standard_normal((32, 3, 3, 3), dtype=np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name=f"{name}0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name=f"{name}1"),
        helper.make_node("Erf", ["b"], ["c"], name=f"{name}2"),
        helper.make_node("Relu", ["c"], ["y"], name=f"{name}3"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 16, 16])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    report = orinport.prepare(network(HOSTILE), output=tmp_path_factory.mktemp("bundle") / "b")
    return json.loads(json.dumps(plain(prepare_document(report))))


def many_layers(document: dict[str, Any], number: int) -> dict[str, Any]:
    """The document with its layers repeated under new names."""
    big = copy.deepcopy(document)
    prediction = big["prediction"]
    layers, timed = big["after"]["layers"], prediction["layers"]
    big["after"]["layers"] = [
        {**layers[i % len(layers)], "name": f"{layers[i % len(layers)]['name']} {i}"} for i in range(number)
    ]
    prediction["layers"] = [
        {**timed[i % len(timed)], "name": f"{timed[i % len(timed)]['name']} {i}", "us": 1 + i % 97, "fused_into": ""}
        for i in range(number)
    ]
    names = [layer["name"] for layer in prediction["layers"]]
    step = max(1, number // 20)
    prediction["regions"] = [
        {
            **prediction["regions"][0],
            "device": "dla" if k % 2 == 0 else "gpu",
            "start_us": k * prediction["regions"][0]["us"],
            "layers": names[i : i + step],
        }
        for k, i in enumerate(range(0, number, step))
    ]
    return big


PROBE = """
<script>
window.problems = [];
window.addEventListener("error", e => window.problems.push(String(e.message)));
window.addEventListener("load", () => {
  const out = {};
  const rows = () => [...document.querySelectorAll("#layers tbody tr")];
  const cells = i => rows().map(r => r.children[i].textContent);
  const click = i => document.querySelectorAll("#layers thead button")[i].click();
  const wait = ms => new Promise(done => setTimeout(done, ms));
  const settle = async () => {  // the page draws its rows in parts
    let before = -1, calm = 0;
    while (calm < 4) {
      await wait(250);
      calm = rows().length === before ? calm + 1 : 0;
      before = rows().length;
    }
  };
  const titles = [...document.querySelectorAll("#layers thead button")].map(b => b.textContent);
  const us = titles.indexOf("us");
  (async () => {
    await settle();
    out.rows = rows().length;
    click(us);
    await settle();
    out.down = cells(us).filter(t => t !== "").map(Number);
    click(us);
    await settle();
    out.up = cells(us).filter(t => t !== "").map(Number);
    out.aria = document.querySelectorAll("#layers th")[us].getAttribute("aria-sort");
    click(0);
    await settle();
    out.names = cells(0).slice(0, 5);
    const filter = document.getElementById("filter");
    filter.value = "activation";
    filter.dispatchEvent(new Event("input"));
    await settle();
    out.filtered = [...new Set(cells(1))];
    filter.value = "";
    const verdict = document.getElementById("verdict");
    verdict.value = "dla";
    verdict.dispatchEvent(new Event("change"));
    await settle();
    out.verdicts = [...new Set(cells(2))];
    out.foreign = document.querySelectorAll("main script, main iframe, main img").length;
    out.drawings = document.querySelectorAll("main svg").length;
    out.dots = document.querySelectorAll("#roofline circle").length;
    out.problems = window.problems;
    const pre = document.createElement("pre");
    pre.id = "probe";
    pre.textContent = JSON.stringify(out);
    document.body.appendChild(pre);
  })();
});
</script>
</head>"""


def browse(page: str, folder: Path) -> tuple[dict[str, Any], str]:
    """The page in headless Chromium with the probe in it: what the probe saw, and the console."""
    file = folder / "page.html"
    file.write_text(page.replace("</head>", PROBE, 1), encoding="utf-8")
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM,
            *FLAGS,
            f"--user-data-dir={folder / 'profile'}",
            "--virtual-time-budget=20000",
            "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2000:]
    return json.loads(html.unescape(found.group(1))), done.stderr


needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@needs_chromium
def test_the_page_lives_in_a_browser(document: dict[str, Any], tmp_path: Path) -> None:
    seen, console = browse(report_html(document), tmp_path)
    assert seen["problems"] == []
    assert "CONSOLE" not in console
    assert seen["rows"] == len(document["after"]["layers"])
    assert seen["down"] == sorted(seen["down"], reverse=True)
    assert seen["up"] == sorted(seen["up"])
    assert seen["aria"] == "ascending"
    assert seen["filtered"] == ["ACTIVATION"]
    assert seen["verdicts"] == ["dla"]
    assert seen["foreign"] == 0
    assert seen["drawings"] == 3
    assert seen["dots"] >= 1
    assert any("<script>alert(1)</script>" in name for name in seen["names"])


@needs_chromium
def test_parts_have_a_timeline_of_their_own(tmp_path: Path) -> None:
    report = orinport.prepare(light_path("squeezenet"), output=tmp_path / "b")
    document = json.loads(json.dumps(plain(prepare_document(report))))
    split = copy.deepcopy(document["prediction"]) | {"split": True}
    first = split["regions"][0]
    split["regions"] = [
        {**first, "core": core, "start_us": start, "device": device}
        for device, core, start in (("dla", 0, 0.0), ("dla", 1, 10.0), ("gpu", 0, 20.0))
    ]
    part = {"folder": HOSTILE, "device": "dla", "core": 1, "inputs": [{"name": HOSTILE, "from": None}], "outputs": []}
    parts = {"us": 1.0, "parts": [{**part, "start_us": 0.0, "us": 1.0}]}
    page = report_html({**document, "split": split, "parts": parts})
    tops = "[...new Set([...document.querySelectorAll('#split rect')].map(each => each.getAttribute('y')))]"
    with Browser(tmp_path) as browser:
        browser.open(page, tmp_path)
        assert browser.evaluate(tops) == ["24", "70", "116"]
        assert browser.evaluate("document.querySelectorAll('main script').length") == 0
        assert browser.evaluate("document.getElementById('s-par').textContent") == "In parts"
        browser.width(390)
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert browser.problems == []
    events = trace_document({**document, "split": split, "parts": parts})["traceEvents"]
    assert {event["tid"] for event in events if event["pid"] == 2 and event["ph"] == "X"} == {1, 2, 3}
    assert min(event["ts"] for event in events if (event["pid"], event["tid"], event["ph"]) == (2, 2, "X")) == 10.0


@needs_chromium
def test_five_thousand_layers(document: dict[str, Any], tmp_path: Path) -> None:
    """In real time, the best of three: the page is there, sorts and filters."""
    page = report_html(many_layers(document, 5000))
    assert len(page.encode()) < 10_000_000
    clicks = """(() => {
        const start = performance.now();
        document.querySelectorAll("#layers thead button")[3].click();
        const sorted = performance.now();
        const verdict = document.getElementById("verdict");
        verdict.value = "dla";
        verdict.dispatchEvent(new Event("change"));
        return [sorted - start, performance.now() - sorted];
    })()"""
    times = []
    with Browser(tmp_path) as browser:
        for _ in range(3):
            loaded = browser.open(page, tmp_path)
            times.append([1e3 * loaded, *browser.evaluate(clicks)])
            assert browser.evaluate("JSON.parse(document.getElementById('data').textContent).rows.length") == 5000
        assert browser.problems == []
    assert [min(each) < 2000 for each in zip(*times, strict=True)] == [True] * 3, times


@needs_chromium
def test_the_keyboard_reaches_and_does_everything(document: dict[str, Any], tmp_path: Path) -> None:
    focused = "document.activeElement.id || document.activeElement.textContent.trim().slice(0, 12)"
    with Browser(tmp_path) as browser:
        browser.open(report_html(document), tmp_path)
        seen: list[str] = []
        for _ in range(80):
            browser.press("Tab")
            if browser.evaluate("document.activeElement === document.body"):
                break
            seen.append(browser.evaluate(focused))
            assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", seen[-1]
            if seen[-1] == "us":
                browser.press("Enter", "\r")
                assert (
                    browser.evaluate("document.activeElement.parentElement.getAttribute('aria-sort')") == "descending"
                )
            if browser.evaluate("document.activeElement.tagName") == "SUMMARY":
                before = browser.evaluate("document.activeElement.parentElement.open")
                browser.press("Enter", "\r")
                assert browser.evaluate("document.activeElement.parentElement.open") is not before
            if seen[-1] == "filter":
                for letter in "unary":
                    browser.press(letter, letter)
        assert {"filter", "verdict", "us", "timeline", "roofline", "regions"} <= set(seen)
        browser.evaluate("new Promise(done => setTimeout(done, 400))")
        assert browser.evaluate("document.querySelectorAll('#layers tbody tr').length") == 1
        assert browser.problems == []


def _contrast(first: str, second: str) -> float:
    """Contrast of two colours, `rgb(r, g, b)`, by WCAG 2."""

    def luminance(colour: str) -> float:
        parts = [int(each) / 255 for each in re.findall(r"\d+", colour)[:3]]
        linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@needs_chromium
def test_light_dark_narrow_and_paper(document: dict[str, Any], tmp_path: Path) -> None:
    colours = """[...document.querySelectorAll("body, .mute, .dla, .gpu, a, code, summary, td")].map(each =>
        [getComputedStyle(each).color, getComputedStyle(document.body).backgroundColor])"""
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    with Browser(tmp_path) as browser:
        browser.open(report_html(document), tmp_path)
        backgrounds = []
        for scheme in ("light", "dark"):
            browser.media(scheme=scheme)
            found = browser.evaluate(colours)
            backgrounds.append(found[0][1])
            assert all(_contrast(*pair) >= 4.0 for pair in found), found
        assert backgrounds[0] != backgrounds[1]
        for width in (1280, 390):
            browser.width(width)
            assert browser.evaluate(wide) <= 0
        browser.media(scheme="dark", medium="print")
        browser.width(720)
        assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == backgrounds[0]
        assert browser.evaluate("document.querySelector('#layers').getBoundingClientRect().right") <= 721
        assert browser.evaluate("document.querySelector('.scroll').clientHeight") >= browser.evaluate(
            "document.querySelector('#layers').clientHeight"
        )
        assert browser.paper().startswith(b"%PDF")
        assert browser.evaluate("[...document.querySelectorAll('details')].every(each => each.open)")
        assert browser.problems == []


def test_every_string_is_escaped(document: dict[str, Any]) -> None:
    page = report_html(document)
    assert "<script>alert(1)" not in page
    assert page.count("<script") == 2
    assert page.count("</script>") == 2


def test_the_page_needs_no_network(document: dict[str, Any]) -> None:
    page = report_html(document)
    assert "default-src 'none'" in page
    assert not re.findall(r'(?:src|href)="', page)
    assert "http://www.w3.org/2000/svg" in page
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page.split('id="data"')[0])


@pytest.mark.parametrize("render", [report_html, report_markdown, trace_document, explorer_document])
def test_what_is_no_report_is_one_clear_error(render: Any, document: dict[str, Any]) -> None:
    refusals: list[str] = []
    for key in ("after", "prediction", "before", "rewrites", "io", "proof", "notes"):
        for value in (None, 3, "x", [], {}, [1]):
            broken = {**copy.deepcopy(document), key: value}
            try:
                assert render(broken)
            except OrinportError as error:
                refusals.append(str(error))
    for outer, inner in ((k, i) for k, value in document.items() if isinstance(value, dict) for i in value):
        for value in (None, 3, "x", [], {}, [1], 1e308):
            broken = copy.deepcopy(document)
            broken[outer][inner] = value
            try:
                assert render(broken)
            except OrinportError as error:
                refusals.append(str(error))
    assert refusals
    assert all(len(refusal.splitlines()) == 1 for refusal in refusals)


def test_markdown_keeps_names_as_text(document: dict[str, Any]) -> None:
    text = report_markdown(document)
    assert "<script>" not in text
    assert "\x1b" not in text
    assert "| before |" in text


def test_the_trace_is_ordered_and_complete(document: dict[str, Any]) -> None:
    events = [event for event in trace_document(document)["traceEvents"] if event["ph"] == "X"]
    total = document["prediction"]["total_us"]
    assert sum(event["dur"] for event in events) == pytest.approx(total)
    for before, after in pairwise(events):
        assert before["ts"] + before["dur"] == pytest.approx(after["ts"])


def test_node_data_names_tensors_of_the_model(document: dict[str, Any]) -> None:
    results = explorer_document(document)["results"]
    assert {"c", "y"} <= results.keys()
    assert all(set(entry) == {"value"} for entry in results.values())


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    orinport.prepare(network(), output=tmp_path / "b")
    before = (tmp_path / "b/report.html").read_text()
    assert main(["report", str(tmp_path / "b"), "-o", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text() == before
    for form in ("markdown", "csv", "trace", "explorer"):
        assert main(["report", str(tmp_path / "b"), "-f", form]) == 0
        assert capsys.readouterr().out
    for bad in ("missing", "b/model.onnx", "b/report.txt"):
        assert main(["report", str(tmp_path / bad)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert read_report(tmp_path / "b")["schema_version"] == 1
