"""What the public functions return: frozen values that `report` renders and `cli` prints."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orinport.rules.finding import Finding, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from orinport.model.layer import Layer
    from orinport.placement.placement import Placement
    from orinport.predict.prediction import Prediction
    from orinport.rewrites.edges import EdgeMapping
    from orinport.rewrites.log import RewriteLog, VerifyReport
    from orinport.rewrites.rewrite import Rewriting
    from orinport.targets.target import Precision, Target

__all__ = ["CheckReport", "LayerVerdict", "PartReport", "PrepareReport", "Reason", "TailReport"]


@dataclass(frozen=True, slots=True)
class LayerVerdict:
    """One layer, where it ends up, and the codes of the findings on it."""

    layer: Layer
    verdict: Verdict
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """Findings of one code with one verdict: what a user reads as one problem."""

    code: str
    verdict: Verdict | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What the DLA takes of a network, and why it refuses the rest."""

    model: str
    target: Target
    precision: Precision
    layers: tuple[LayerVerdict, ...]
    findings: tuple[Finding, ...]
    placement: Placement

    def count(self, verdict: Verdict) -> int:
        """Number of layers with this verdict."""
        return sum(row.verdict is verdict for row in self.layers)

    @property
    def clean(self) -> bool:
        """Every layer is `dla` and no finding speaks against the network."""
        return self.all_dla and not any(finding.verdict for finding in self.findings)

    @property
    def all_dla(self) -> bool:
        """Every layer is `dla`."""
        return all(row.verdict is Verdict.DLA for row in self.layers)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Findings grouped by code and verdict, the ones that weigh most and touch most layers first."""
        groups: dict[tuple[str, Verdict | None], list[Finding]] = {}
        for finding in self.findings:
            groups.setdefault((finding.code, finding.verdict), []).append(finding)
        order = [Verdict.BLOCKED, Verdict.GPU, Verdict.UNKNOWN, None]
        ranked = sorted(groups.items(), key=lambda item: (order.index(item[0][1]), -len(item[1]), item[0][0]))
        return tuple(Reason(code, verdict, tuple(found)) for (code, verdict), found in ranked)

    @property
    def kinds(self) -> tuple[tuple[str, int], ...]:
        """Layer kinds and how many there are of each, most frequent first."""
        return tuple(Counter(row.layer.kind.value for row in self.layers).most_common())


@dataclass(frozen=True, slots=True)
class TailReport:
    """What was cut off the end of a network: `tail.onnx` makes `outputs` from `inputs`, which model.onnx gives.

    `nodes` are those that it computes, `share` is their part of the multiply-accumulates.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]
    share: float


@dataclass(frozen=True, slots=True)
class PartReport:
    """One engine of a network in parts: its folder under `parts/`, where it runs, what it reads and gives.

    `inputs` are tensors with the folder of the part that makes them, empty for the network's own inputs. `start_us` and
    `us` are predicted.
    """

    folder: str
    device: str
    core: int
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[str, ...]
    start_us: float
    us: float


@dataclass(frozen=True, slots=True)
class PrepareReport:
    """A network before and after, what was done to it, and the folder that holds the result."""

    before: CheckReport
    after: CheckReport
    log: RewriteLog
    edges: tuple[EdgeMapping, ...]
    proof: VerifyReport | None
    """The network as written against the network as given, through the edge mapping."""
    notes: tuple[str, ...]
    folder: Path
    files: tuple[str, ...]
    prediction: Prediction | None = None
    """What the written network is predicted to take; None where no measurement covers the target."""
    build: str = ""
    """The text of build.sh."""
    tail: TailReport | None = None
    """What runs behind model.onnx, where a tail was cut off."""
    parts: tuple[PartReport, ...] = ()
    """The same network as several engines, for both DLA cores and the GPU."""
    split: Prediction | None = None
    """What one inference of the parts is predicted to take."""
    rewriting: Rewriting | None = None
    """What was asked of the rewriting; None for a part of a network."""
