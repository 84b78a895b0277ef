"""Software versions that compare as numbers."""

from __future__ import annotations

from dataclasses import dataclass

from orinport.errors import OrinportError

__all__ = ["Version"]


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A dotted version: `Version.parse("8.6.2") < Version.parse("8.6.12")`.

    NVIDIA numbers TensorRT on the Jetson and the DRIVE line differently; within one line, and for the
    releases that orinport knows, numeric order is also the order of features.
    """

    parts: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read `8.6.2`; raises OrinportError for anything else."""
        pieces = text.strip().split(".")
        if not all(piece.isascii() and piece.isdigit() for piece in pieces):
            raise OrinportError(f"{text!r} is not a version number.", "Write it like 8.6.2.")
        return cls(tuple(int(piece) for piece in pieces))

    def starts_with(self, other: Version) -> bool:
        """True if `other` is this version or a shorter form of it: 8.6.2 starts with 8.6."""
        return self.parts[: len(other.parts)] == other.parts

    def __str__(self) -> str:
        return ".".join(map(str, self.parts))
