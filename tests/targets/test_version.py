"""Versions compare as numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orinport.errors import OrinportError
from orinport.targets.version import Version


@given(st.lists(st.integers(0, 99), min_size=1, max_size=4))
def test_text_and_back(parts: list[int]) -> None:
    text = ".".join(map(str, parts))
    assert str(Version.parse(text)) == text


def test_order_is_numeric() -> None:
    names = ["8.5.2", "8.6", "8.6.2", "8.6.12", "10.3.0", "10.16.2", "11.4.1"]
    assert [str(version) for version in sorted(map(Version.parse, reversed(names)))] == names


def test_a_version_starts_with_its_shorter_forms() -> None:
    version = Version.parse("8.6.12")
    assert version.starts_with(Version.parse("8.6"))
    assert version.starts_with(version)
    assert not version.starts_with(Version.parse("8.6.1"))
    assert not Version.parse("8.6").starts_with(version)


@pytest.mark.parametrize("text", ["", "8.", "8.6.x", "v8", "8.\uff16", "-1", "8..6"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(OrinportError, match="is not a version number"):
        Version.parse(text)
