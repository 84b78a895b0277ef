"""Emphasis for terminals, and the cleaning of strings that come from models."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COLOUR", "PLAIN", "Style", "clean"]


@dataclass(frozen=True, slots=True)
class Style:
    """Turns emphasis into ANSI sequences, or leaves text as it is."""

    enabled: bool

    def bold(self, text: str) -> str:
        """A heading."""
        return self._wrap(text, "1")

    def good(self, text: str) -> str:
        """Something as it should be."""
        return self._wrap(text, "32")

    def warn(self, text: str) -> str:
        """Something to look at."""
        return self._wrap(text, "33")

    def bad(self, text: str) -> str:
        """Something that fails."""
        return self._wrap(text, "31")

    def _wrap(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.enabled else text


PLAIN = Style(enabled=False)
COLOUR = Style(enabled=True)


def clean(text: str) -> str:
    """`text` on one line, with control characters (escape sequences, line breaks) made visible."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)
