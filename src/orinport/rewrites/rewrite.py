"""What a rewrite is: a guarded, documented replacement of a few nodes by others with the same function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["Match", "Refusal", "Rewrite", "Rewriting", "Safety"]


class Safety(str, Enum):
    """What a rewrite may change.

    `EXACT`: bit-equal, or equal up to floating-point reassociation. `TOLERANCE`: an approximation with a
    stated bound, applied with consent. `SEMANTIC`: changes what the network returns, only when asked.
    """

    EXACT = "exact"
    TOLERANCE = "tolerance"
    SEMANTIC = "semantic"


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What was asked of rewriting a whole network."""

    standalone: bool = False
    keep_io: bool = False
    cut_tail: bool = False
    consent: tuple[Safety, ...] = (Safety.EXACT,)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Rewriting:
        """Read back what `document` wrote. Raises KeyError, TypeError or ValueError if it is none."""
        standalone, keep_io, cut_tail = (document[name] is True for name in ("standalone", "keep_io", "cut_tail"))
        return cls(standalone, keep_io, cut_tail, tuple(Safety(word) for word in document["consent"]))

    def document(self) -> dict[str, Any]:
        """For `report.json`, under `rewriting`."""
        return {
            "standalone": self.standalone,
            "keep_io": self.keep_io,
            "cut_tail": self.cut_tail,
            "consent": [safety.value for safety in self.consent],
        }


@dataclass(frozen=True, slots=True)
class Refusal:
    """The node is of the rewrite's kind, but the rewrite will not touch it, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Match:
    """What will be replaced.

    `nodes` are removed, `outputs` are the values that the replacement has to give again, in order, and
    `data` is whatever the rewrite found out while matching.
    """

    nodes: tuple[ir.Node, ...]
    outputs: tuple[ir.Value, ...]
    data: Any = None


class Rewrite(ABC):
    """One file, one rewrite; its module docstring is its documentation page and shows `A(B(x)) -> C(x)`."""

    name: ClassVar[str]
    """Says what it makes, e.g. `matmul-to-conv`."""
    safety: ClassVar[Safety]
    op_types: ClassVar[tuple[str, ...]]
    """Operators at which matching starts: ONNX's by name, others as `domain::name`."""
    error: ClassVar[float] = 0.0
    """The largest absolute error that it states, for outputs of magnitude up to 1 or relative to the largest output
    above that: needed for `TOLERANCE`, and where rounding is amplified. The proof of every application holds it."""

    finite: ClassVar[bool] = False
    """For `TOLERANCE`: the same for finite numbers only, because products by zero spread an infinity or NaN. The
    proof feeds none."""
    on_request: ClassVar[bool] = False
    """Applied only where it is selected by name: it serves the GPU alone, or undoes another rewrite."""
    for_speed: ClassVar[bool] = False
    """Applied also where it takes nothing to the DLA, if the prediction says that it is faster there."""

    @abstractmethod
    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        """A match, a refusal with its reason, or None where the rewrite has nothing to say."""

    @abstractmethod
    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        """Build the replacement; returns one value for each of `match.outputs`, of equal shape and type."""
