"""What an exported network says about itself, in the metadata of its file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Facts"]

_PREFIX = "orinport."
_DIGITS = 20
"""Of the longest number that is taken for one; seeds have 64 bits."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A network's model and picture size, and where its weights come from; empty or None where that is not said.

    `seed` is that of weights that are random.
    """

    model: str = ""
    size: int | None = None
    checkpoint: str = ""
    seed: int | None = None

    @property
    def weights(self) -> str:
        """The weights in words; empty if the network says nothing."""
        if self.seed is not None:
            return f"random weights of seed {self.seed}"
        return f"weights of {self.checkpoint}" if self.checkpoint else ""

    def metadata(self) -> dict[str, str]:
        """For the file's metadata."""
        facts = {"model": self.model, "size": self.size, "checkpoint": self.checkpoint, "seed": self.seed}
        return {f"{_PREFIX}{name}": str(fact) for name, fact in facts.items() if fact not in (None, "")}

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Facts:
        """What the metadata of a file says; numbers that are none count as not said."""

        def text(name: str) -> str:
            return metadata.get(f"{_PREFIX}{name}", "")

        def number(name: str) -> int | None:
            return int(text(name)) if text(name).isdecimal() and len(text(name)) <= _DIGITS else None

        return cls(text("model"), number("size"), text("checkpoint"), number("seed"))
