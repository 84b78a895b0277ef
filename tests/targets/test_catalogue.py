"""The acceptance catalogue: complete, exact about versions, and silent where it does not speak."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from orinport.model.layer import LayerKind
from orinport.targets import catalogue_rows, load_target, log_messages, rows_for
from orinport.targets.catalogue import row_holds, rows_elsewhere
from orinport.targets.target import Confidence, Platform, Precision, RuleRow
from orinport.targets.version import Version

IDS = (Path(__file__).parent / "data" / "row_ids.txt").read_text(encoding="utf-8").split()
LATER = {"I14"}
"""Rows that came from other sources than the first collection."""
KINDS = {"limit", "tie", "accept", "refuse", "behaviour", "advice", "open", "conflict"}
PLACES = {"all", "network", "build", "io", "tool"}


def test_every_row_is_there_in_order() -> None:
    found = [name for name in catalogue_rows() if not name.startswith(("OP", "CF"))]
    assert len(IDS) == len(set(IDS)) == 244
    assert sorted(found) == sorted([*IDS, *LATER])


def test_confidences_are_those_of_the_documents() -> None:
    rows = [row for row in catalogue_rows().values() if row.id in set(IDS)]
    assert Counter(row.confidence.value for row in rows) == {"documented": 180, "observed": 45, "inferred": 19}


def test_open_points_and_conflicts() -> None:
    rows = catalogue_rows()
    points = {row.id.rstrip("abc") for row in rows.values() if row.kind == "open"}
    assert points == {f"OP{number:02}" for number in range(1, 54)}
    conflicts = [row for row in rows.values() if row.kind == "conflict"]
    assert len(conflicts) == 19
    for row in conflicts:
        assert row.values["resolution"]
        assert set(row.values["rows"]) <= set(rows)


@pytest.mark.parametrize("row", catalogue_rows().values(), ids=lambda row: row.id)
def test_every_row_is_well_formed(row: RuleRow) -> None:
    assert row.kind in KINDS
    assert row.layers
    assert set(row.layers) <= PLACES | {kind.value for kind in LayerKind}
    assert row.text.endswith(".")
    assert row.source
    assert not (row.until_exclusive and row.until is None)
    assert not (row.open_ended and row.until is None)
    if row.since is not None and row.until is not None and not row.until_exclusive:
        assert row.since <= row.until or row.since.starts_with(row.until)


def test_rows_elsewhere_exist() -> None:
    assert set(rows_elsewhere()) <= set(catalogue_rows())
    assert all(reason for reason in rows_elsewhere().values())


def holds(name: str, version: str, platform: Platform = Platform.ORIN, precision: Precision = Precision.FP16) -> bool:
    return row_holds(catalogue_rows()[name], Version.parse(version), platform, precision)


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("E03a", "8.5.2", True),  # until 8.5 includes 8.5.2
        ("E03a", "8.6.2", False),
        ("E03d", "8.6.2", True),
        ("E03d", "8.6.11", True),
        ("E03d", "8.6.12", False),
        ("E03c", "8.6.12", True),
        ("E03c", "8.6.2", False),
        ("E03b", "10.2", False),
        ("E03b", "10.3.0", True),
        ("J04b", "8.5.2", True),  # exclusive end at 8.5.3
        ("J04b", "8.5.3", False),
        ("J04c", "8.5.3", True),
        ("J04c", "8.6.1", False),
        ("J04d", "10.16.2", True),
        ("J04d", "11.1", False),
        ("G14", "10.16.2", True),
        ("G14", "11.0", False),
        ("I10", "10.16.2", False),
        ("I10", "11.4.1", True),
        ("V03a", "9.3", True),
        ("V03a", "10.0", False),
        ("T04", "8.6.2", False),
        ("T04", "8.5.2", True),
    ],
)
def test_versions(name: str, version: str, expected: bool) -> None:
    precision = Precision.INT8 if name in {"G14", "T04"} else Precision.FP16
    assert holds(name, version, precision=precision) is expected


def test_platforms_and_precisions() -> None:
    assert holds("M01a", "8.5.2", Platform.XAVIER)
    assert not holds("M01a", "8.5.2", Platform.ORIN)
    assert holds("K01a", "8.5.2", precision=Precision.INT8)
    assert not holds("K01a", "8.5.2", precision=Precision.FP16)
    assert not holds("M06", "8.5.2", precision=Precision.INT8)
    assert holds("G04", "8.5.2", precision=Precision.INT8)  # not related to precision
    assert not any(holds("I11", version, platform) for version in ("11.4.0", "11.4.1") for platform in Platform)


def test_a_row_without_later_documents_holds_on_as_inferred() -> None:
    at = {name: rows_for(load_target(f"orin-agx-64gb/{name}"), Precision.FP16) for name in ("jp5.1", "jp6.0", "jp6.2")}
    assert at["jp5.1"]["F01"].confidence is Confidence.DOCUMENTED
    assert at["jp6.0"]["F01"].confidence is Confidence.INFERRED
    assert at["jp6.2"]["V01b"].confidence is Confidence.DOCUMENTED  # last seen in 10.8
    later = rows_for(load_target("orin-agx-64gb/jp7.2"), Precision.FP16)
    assert later["V01b"].confidence is Confidence.INFERRED


def test_a_row_before_its_first_sure_version_is_inferred() -> None:
    assert "G11" not in rows_for(load_target("orin-agx-64gb/jp5.1"), Precision.FP16)
    assert rows_for(load_target("orin-agx-64gb/jp6.2"), Precision.FP16)["G11"].confidence is Confidence.INFERRED
    assert rows_for(load_target("orin-agx-64gb/jp7.2"), Precision.FP16)["G11"].confidence is Confidence.DOCUMENTED


def test_rows_depend_on_software_and_platform_only() -> None:
    """Two boards with the same release have the same rows."""
    small, large = (
        rows_for(load_target(f"{board}/jp6.0"), Precision.INT8) for board in ("orin-nx-16gb", "orin-agx-64gb")
    )
    assert small == large


def test_holding_on_is_not_for_rows_that_were_withdrawn() -> None:
    row = catalogue_rows()["T04"]
    assert not row.open_ended
    opened = replace(row, open_ended=True)
    assert row_holds(opened, Version.parse("8.6.2"), Platform.ORIN, Precision.INT8)


def test_messages_find_their_own_texts() -> None:
    messages = log_messages()
    assert list(messages) == [f"MSG{number:02}" for number in range(1, 52)]
    for message in messages.values():
        for text in message.texts:
            assert re.search(message.pattern, text), message.id
        assert set(message.rows) <= set(catalogue_rows())


def test_messages_name_the_layer() -> None:
    line = (
        "[W] [TRT] Layer '/model.22/Concat_1' (CONCATENATION): Unsupported on DLA."
        " Switching this layer's device type to GPU."
    )
    found = [message.id for message in log_messages().values() if re.search(message.pattern, line)]
    assert found == ["MSG03"]
    match = re.search(log_messages()["MSG03"].pattern, line)
    assert match is not None
    assert match["layer"] == "/model.22/Concat_1"


@pytest.mark.parametrize(("first", "second"), [("MSG01", "MSG02"), ("MSG02", "MSG01"), ("MSG03", "MSG04")])
def test_similar_messages_are_told_apart(first: str, second: str) -> None:
    messages = log_messages()
    for text in messages[first].texts:
        assert not re.search(messages[second].pattern, text)
