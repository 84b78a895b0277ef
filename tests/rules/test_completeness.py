"""Every row of the catalogue is put into effect by a rule, or it is said why not."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

from orinport.rules import fixes
from orinport.rules.catalogue import rules
from orinport.rules.rule import Rule
from orinport.targets.catalogue import catalogue_rows, rows_elsewhere


def test_every_row_is_in_effect_or_accounted_for() -> None:
    named = {row for rule in rules() for row in rule.rows}
    elsewhere = set(rows_elsewhere())
    assert [row for row in catalogue_rows() if row not in named | elsewhere] == []
    assert sorted(named & elsewhere) == [], "these rows have a rule by now"


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.code)
def test_rules_name_existing_rows_each_once(rule: Rule) -> None:
    assert set(rule.rows) <= set(catalogue_rows())
    assert len(rule.rows) == len(set(rule.rows))


def test_only_what_the_parser_refuses_has_no_row() -> None:
    """Source and confidence of a finding come from its rows."""
    assert [rule.code for rule in rules() if not rule.rows] == ["DLA091"]


def test_every_rule_is_tested() -> None:
    tests = "".join(file.read_text(encoding="utf-8") for file in Path(__file__).parent.glob("test_*.py"))
    assert [rule.code for rule in rules() if rule.code not in tests] == []


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.code)
def test_code_looks_up_existing_rows_only(rule: Rule) -> None:
    """A misspelt id would make a rule silent for ever."""
    source = inspect.getsource(sys.modules[type(rule).__module__])
    code = source.split('"""', 2)[2]
    ids = set(re.findall(r'"((?:[A-Z]|OP|CF)\d\d[a-z]?)"', code))
    assert ids <= set(catalogue_rows())


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.code)
def test_a_code_says_where_it_belongs(rule: Rule) -> None:
    assert re.fullmatch(r"DLA[0-3]\d\d", rule.code)
    module = type(rule).__module__.rsplit(".", 1)[1]
    assert module.startswith(f"dla{rule.code[3:]}_"), "a file is named after its code"
    assert rule.title
    assert not rule.title.endswith(".")


def test_fixes_are_rewrites_that_exist() -> None:
    from orinport.rewrites import all_rewrites

    known = {rewrite.name: rewrite.safety.value for rewrite in all_rewrites()}
    named = {value for name in fixes.__all__ for value in [getattr(fixes, name)]}
    named |= {rule.fix for rule in rules() if rule.fix is not None}
    for name, safety in named:
        assert known.get(name) == safety, name
