"""What a rule is, and what it may look at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orinport.model.layer import Layer, LayerKind
    from orinport.rules.finding import Finding, Verdict
    from orinport.targets.target import Precision, RuleRow, Target

__all__ = ["Context", "LayerRule", "NetworkRule", "Rule"]


@dataclass(frozen=True, slots=True)
class Context:
    """What rules may look at beside the layer itself."""

    target: Target
    precision: Precision
    standalone: bool
    """The network is to become a DLA loadable without TensorRT run time."""
    gpu_fallback: bool
    rows: Mapping[str, RuleRow]
    """The catalogue rows that hold for this target and precision, by id."""
    producers: Mapping[str, Layer]
    """The layer that gives a tensor, by tensor name."""
    consumers: Mapping[str, tuple[Layer, ...]]
    """The layers that read a tensor, by tensor name."""
    inputs: frozenset[str]
    """Names of the network's inputs."""
    outputs: frozenset[str]
    """Names of the network's outputs."""
    covered: frozenset[LayerKind] = frozenset()
    """Layer kinds on which at least one rule speaks."""
    verdicts: Mapping[int, Verdict] = field(default_factory=dict)
    """Verdicts so far by `Layer.index`; network rules see those of the layers, and of network rules before them."""
    memo: dict[str, Any] = field(default_factory=dict)
    """What network rules have worked out from the verdicts so far; emptied when a verdict changes."""


class Rule(ABC):
    """One statement of the catalogue: one file, one code, one documentation page (its module docstring)."""

    code: ClassVar[str]
    """`DLA0xx` operator, `DLA1xx` attribute or shape limit, `DLA2xx` format, precision or scale, `DLA3xx` region."""
    title: ClassVar[str]
    rows: ClassVar[tuple[str, ...]]
    """Ids of the catalogue rows that this rule puts into effect."""
    fix: ClassVar[tuple[str, str] | None] = None
    """Name and safety of the rewrite that removes the finding."""


class LayerRule(Rule):
    """Looks at one layer at a time."""

    kinds: ClassVar[tuple[LayerKind, ...]]
    """Layer kinds that it looks at; empty for all."""

    @abstractmethod
    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        """Findings on `layer`; none if the rule is kept."""


class NetworkRule(Rule):
    """Looks at the whole network, after the layers have their verdicts; rules run in the order of their codes."""

    @abstractmethod
    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        """Findings on the network or on layers in it.

        `layers` are those that run: constants, and what folds into constants while building, are left out.
        """
