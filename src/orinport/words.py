"""Numbers and lists in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["count", "percent", "some"]


def count(number: int, noun: str) -> str:
    """`1 layer`, `2 layers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def percent(part: float, whole: float) -> str:
    """`part` of `whole` as a whole number of percent."""
    return f"{100 * part / whole:.0f} %"


def some(names: Sequence[str], shown: int = 3) -> str:
    """The first `shown` of `names`, and how many more there are: `a, b, c and 4 more`."""
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")
