"""What a rule says: findings, and the verdicts that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orinport.targets.target import Confidence

__all__ = ["Finding", "Fix", "Verdict"]


class Verdict(str, Enum):
    """Where a layer ends up.

    `UNKNOWN` means that nobody has documented it; it never counts as success. `BLOCKED` means that the
    network cannot be built at all.
    """

    DLA = "dla"
    GPU = "gpu"
    UNKNOWN = "unknown"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Fix:
    """The rewrite that takes the finding away, and how safe it is (`exact`, `tolerance`, `semantic`)."""

    rewrite: str
    safety: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about one layer, or about the network when `layer` is empty.

    `verdict` is what the finding alone would make of the layer; None leaves the verdict as it is
    (performance and notes). `value` and `limit` are what was measured and what is allowed.
    """

    code: str
    layer: str
    nodes: tuple[str, ...]
    message: str
    value: object
    limit: object
    help: str
    fix: Fix | None
    source: str
    confidence: Confidence
    verdict: Verdict | None
    rows: tuple[str, ...] = ()
    """Ids of the catalogue rows that speak."""
