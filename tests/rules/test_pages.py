"""`explain` and the pages made from docstrings."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from orinport.errors import OrinportError
from orinport.rules import explain, titles
from orinport.rules.catalogue import rules
from orinport.rules.pages import SECTIONS, page
from orinport.rules.rule import Rule

REPOSITORY = Path(__file__).parents[2]


def test_titles_are_those_of_the_rules() -> None:
    assert titles() == {rule.code: rule.title for rule in rules()}


def test_explain_prints_page_and_rows() -> None:
    text = explain("DLA302")
    assert text.startswith("# DLA302: Network splits into several loadables\n")
    assert "- G09a (limit; TensorRT from 8.5 on; Xavier and Orin; any precision; documented): At most 16" in text
    assert "- G09c (limit; TensorRT from 5 to 7; Xavier; any precision; observed)" in text
    assert explain(" dla302 ") == text


def test_versions_in_rows() -> None:
    assert "TensorRT from 8.5 to 8.6, beyond that inferred; Orin" in explain("DLA300")
    assert "TensorRT from 8.4.3 before 8.5.3" in explain("DLA212")


@pytest.mark.parametrize(("code", "guess"), [("DLA32", "DLA320"), ("DLA999", "DLA099"), ("dla3O2", "DLA302")])
def test_an_unknown_code_names_its_neighbours(code: str, guess: str) -> None:
    with pytest.raises(OrinportError) as error:
        explain(code)
    assert guess in error.value.hint


def test_nonsense_is_sent_to_the_list() -> None:
    with pytest.raises(OrinportError, match="There is no code 'xyzzy'") as error:
        explain("xyzzy")
    assert error.value.hint == "orinport explain lists all codes."


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.code)
def test_every_rule_has_a_page_with_all_sections(rule: Rule) -> None:
    text = page(rule)
    documentation = sys.modules[type(rule).__module__].__doc__
    assert documentation is not None
    assert documentation.split("\n")[0].endswith((".", "?")), "the first line is a sentence"
    headings = [line.removeprefix("## ") for line in documentation.splitlines() if line.startswith("## ")]
    assert tuple(headings) == SECTIONS
    parts = documentation.split("\n## ")[1:]
    assert all(part.split("\n", 1)[1].strip() for part in parts), "a section is empty"
    assert text.startswith(f"# {rule.code}: {rule.title}\n")


def write_docs() -> ModuleType:
    """The script that writes the pages, as a module."""
    spec = importlib.util.spec_from_file_location("write_docs", REPOSITORY / "tools" / "write_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date() -> None:
    assert write_docs().outdated() == [], "run tools/write_docs.py"


def test_the_check_sees_a_stale_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = write_docs()
    monkeypatch.setattr(script, "DOCS", tmp_path)
    assert len(script.outdated()) == len(script.pages())
    script.write()
    assert script.outdated() == []
    (tmp_path / "rules" / "DLA302.md").write_text("old", encoding="utf-8")
    (tmp_path / "rules" / "DLA998.md").write_text("left over", encoding="utf-8")
    assert script.outdated() == [Path("rules/DLA302.md"), Path("rules/DLA998.md")]
    script.write()
    assert script.outdated() == []
    assert not (tmp_path / "rules" / "DLA998.md").exists()
