"""Codes never change their meaning: titles against a golden list.

UPDATE_GOLDEN=1 adds new codes to the list; a code that is taken out or whose title changes is changed there by
hand, with a reason for the changelog.
"""

from __future__ import annotations

import os
from pathlib import Path

from orinport.rules import titles

GOLDEN = Path(__file__).parents[1] / "golden" / "rule_codes.txt"


def golden() -> dict[str, str]:
    """Code and title of every line."""
    lines = GOLDEN.read_text(encoding="utf-8").splitlines() if GOLDEN.is_file() else []
    return dict(line.split("  ", 1) for line in lines)


def test_codes_keep_their_meaning() -> None:
    known, now = golden(), titles()
    if os.environ.get("UPDATE_GOLDEN"):
        known = {**now, **known}
        GOLDEN.write_text("".join(f"{code}  {title}\n" for code, title in sorted(known.items())), encoding="utf-8")
    assert {code: now.get(code) for code in known} == known
    assert sorted(set(now) - set(known)) == [], "new codes: run with UPDATE_GOLDEN=1"


def test_titles_are_told_apart() -> None:
    assert len(set(titles().values())) == len(titles())
