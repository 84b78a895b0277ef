"""Numbers in sentences."""

from __future__ import annotations

__all__ = ["count", "percent"]


def count(number: int, noun: str) -> str:
    """`1 layer`, `2 layers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def percent(part: float, whole: float) -> str:
    """`part` of `whole` as a whole number of percent."""
    return f"{100 * part / whole:.0f} %"
