"""What was rewritten, how each application was proved, and what was refused and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from orinport.rewrites.rewrite import Safety

__all__ = ["Applied", "Proof", "Refused", "RewriteLog", "RolledBack", "VerifyReport", "VerifyRow"]


@dataclass(frozen=True, slots=True)
class Proof:
    """One application in ONNX Runtime, before and after, on the same inputs.

    `max_error` and `tolerance` are relative to the largest magnitude of each output. `engine` is
    `onnxruntime`, or `onnx.reference` for operators and types that ONNX Runtime lacks. `repeated`: the
    piece is bit-identical in structure, shapes and weights to one that was proved before.
    """

    cases: int
    max_error: float
    tolerance: float
    equal: bool
    engine: str = "onnxruntime"
    repeated: bool = False
    detail: str = ""
    """What differs, if anything does."""

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "cases": self.cases,
            "max_error": self.max_error,
            "tolerance": self.tolerance,
            "equal": self.equal,
            "engine": self.engine,
            "repeated": self.repeated,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class VerifyRow:
    """How one output of two models compares.

    `max_abs` and `max_rel` are the largest absolute difference and the largest difference relative to the
    reference's largest magnitude; `tolerance` bounds the latter.
    """

    output: str
    shape: tuple[int, ...]
    max_abs: float
    max_rel: float
    tolerance: float
    equal: bool
    undecided: bool = False
    """It is not equal, but holds no numbers that could be near: it counts or chooses, and what the comparison has to
    allow (rounding, or approximations that were asked for) can change what it counts or chooses."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Two models on the same random inputs in ONNX Runtime."""

    reference: str
    candidate: str
    rows: tuple[VerifyRow, ...]
    cases: int
    seed: int
    diverges_at: str
    """First tensor of the candidate that differs, by name; empty if none is known."""

    @property
    def equal(self) -> bool:
        """All outputs agree within their tolerance."""
        return all(row.equal for row in self.rows)

    @property
    def refuted(self) -> bool:
        """Some output differs by more than what has to be allowed."""
        return any(not row.equal and not row.undecided for row in self.rows)

    @property
    def worst(self) -> float:
        """The largest relative difference of all outputs."""
        return max((row.max_rel for row in self.rows), default=0.0)


@dataclass(frozen=True, slots=True)
class Applied:
    """One application: labels of the nodes replaced and made, and its proof."""

    rewrite: str
    safety: Safety
    replaced: tuple[str, ...]
    made: tuple[str, ...]
    proof: Proof


@dataclass(frozen=True, slots=True)
class RolledBack:
    """An application that its proof stopped: a defect of ours, and nothing of it is in the network."""

    rewrite: str
    nodes: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return f"{self.rewrite} on {', '.join(self.nodes)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Refused:
    """A node that a rewrite is for and left alone, and why."""

    rewrite: str
    node: str
    reason: str


@dataclass(slots=True)
class RewriteLog:
    """Everything that one run of the driver did and did not do."""

    applied: list[Applied] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    rolled_back: list[RolledBack] = field(default_factory=list)
    rounds: int = 0

    def counts(self) -> dict[str, int]:
        """Number of applications by rewrite, most frequent first."""
        return dict(Counter(entry.rewrite for entry in self.applied).most_common())

    def document(self) -> dict[str, Any]:
        """For JSON: `applied`, `refused` and `rolled_back`."""
        return {
            "applied": [
                {
                    "rewrite": entry.rewrite,
                    "safety": entry.safety.value,
                    "replaced": list(entry.replaced),
                    "made": list(entry.made),
                    "proof": entry.proof.document(),
                }
                for entry in self.applied
            ],
            "refused": [
                {"rewrite": entry.rewrite, "node": entry.node, "reason": entry.reason} for entry in self.refused
            ],
            "rolled_back": [
                {"rewrite": entry.rewrite, "nodes": list(entry.nodes), "reason": entry.reason}
                for entry in self.rolled_back
            ],
        }
