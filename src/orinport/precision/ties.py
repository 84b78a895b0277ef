"""`tie`: one range where the DLA wants ranges equal.

Rows P05 (pooling: input and output), N04 (concatenation: all inputs and the output) and E07 (element-wise: the two
inputs) of the catalogue, as far as they hold on the target. Ties join: a concatenation behind a pooling ties all
three. The widest range of a group is taken, so that nothing saturates, and each loss of resolution is told.

E07 speaks of every element-wise operation. NVIDIA's own translator of Q/DQ networks leaves the inputs of products
with different ranges all the same; `Ties.EXCEPT_PRODUCTS` does so too.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.precision.complete import is_quantisable
from orinport.precision.findings import costly_products, tied_ranges
from orinport.precision.scales import Origin, Scale, Scales
from orinport.targets.catalogue import rows_for
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orinport.model.layer import Layer, Tensor
    from orinport.rules.finding import Finding
    from orinport.targets.target import RuleRow, Target

__all__ = ["COSTLY_FACTOR", "TOLD_FACTOR", "Ties", "tie"]

TOLD_FACTOR = 1.01
"""A loss of resolution below this factor is not worth a finding."""
COSTLY_FACTOR = 4.0
"""A loss at products from this factor on, two of the eight bits, is worth a finding that says what else there is."""

_ROWS = {LayerKind.POOLING: "P05", LayerKind.CONCATENATION: "N04", LayerKind.ELEMENTWISE: "E07"}


class Ties(str, Enum):
    """Which of the documented ties are put into effect."""

    ALL = "all"
    EXCEPT_PRODUCTS = "except-products"
    NONE = "none"


def tie(scales: Scales, layers: Sequence[Layer], target: Target, ties: Ties = Ties.ALL) -> Scales:
    """`scales` with equal ranges where `layers`, those that run on the DLA, want them equal on `target`."""
    rows = rows_for(target, Precision.INT8)
    wanted = [] if ties is Ties.NONE else [layer for layer in layers if _row(layer, rows, ties) is not None]
    groups = _Groups()
    for layer in wanted:
        names = [tensor.name for tensor in tied_tensors(layer) if _counts(scales.get(tensor.name))]
        for name in names[1:]:
            groups.join(names[0], name)
    changed: dict[str, Scale] = {}
    for members in groups.all():
        widest = _widest(members, scales)
        for name in members:
            if scales[name].value != scales[widest].value:
                changed[name] = Scale(scales[widest].value, Origin.TIED, widest)
    told = _told(wanted, scales, changed, rows, ties)
    tied = scales.merged(changed)
    if ties is Ties.ALL:
        told = [*_costly(wanted, scales, tied, target, rows), *told]
    return scales.merged(changed, told)


def tied_tensors(layer: Layer) -> tuple[Tensor, ...]:
    """The tensors of a layer whose ranges have to be equal."""
    if layer.kind is LayerKind.ELEMENTWISE:
        tensors = layer.runtime_inputs
    elif layer.kind in (LayerKind.POOLING, LayerKind.CONCATENATION):
        tensors = (*layer.runtime_inputs, *layer.outputs)
    else:
        tensors = ()
    return tuple(tensor for tensor in tensors if is_quantisable(tensor))


def _row(layer: Layer, rows: Mapping[str, RuleRow], ties: Ties) -> RuleRow | None:
    if layer.kind is LayerKind.ELEMENTWISE and ties is Ties.EXCEPT_PRODUCTS and layer["op"] == "PROD":
        return None
    return rows.get(_ROWS.get(layer.kind, "")) if not layer.folds else None


def _counts(scale: Scale | None) -> bool:
    """1.0 is a mark for the DLA's compiler and no range, so it is tied to nothing."""
    return scale is not None and scale.origin is not Origin.FUSED


def _widest(members: Sequence[str], scales: Scales) -> str:
    """The member with the widest range; tensors that only held zeros follow the others."""
    real = [name for name in members if scales[name].origin is not Origin.FREE]
    return max(real or members, key=lambda name: scales[name].value)


def _told(
    layers: Sequence[Layer], scales: Scales, changed: Mapping[str, Scale], rows: Mapping[str, RuleRow], ties: Ties
) -> list[Finding]:
    """A finding on the first layer that names each widened tensor."""
    findings = []
    told: set[str] = set()
    for layer in layers:
        names = [tensor.name for tensor in tied_tensors(layer)]
        lost = {
            name: changed[name].value / scales[name].value
            for name in names
            if name in changed and name not in told and scales[name].origin is not Origin.FREE
        }
        told.update(lost)
        worst = max(lost, key=lambda name: lost[name], default="")
        row = _row(layer, rows, ties)
        if worst and lost[worst] > TOLD_FACTOR and row is not None:
            findings.append(tied_ranges(layer, list(dict.fromkeys(names)), lost[worst], worst, row))
    return findings


def _costly(
    layers: Sequence[Layer], scales: Scales, tied: Scales, target: Target, rows: Mapping[str, RuleRow]
) -> list[Finding]:
    """What the ties of products cost, if it is much: against the same without them."""
    kept = tie(scales, layers, target, Ties.EXCEPT_PRODUCTS)
    products = [layer for layer in layers if layer.kind is LayerKind.ELEMENTWISE and layer["op"] == "PROD"]
    lost: dict[str, float] = {}
    responsible: dict[str, Layer] = {}
    for layer in products:
        for tensor in tied_tensors(layer):
            name = tensor.name
            if not _counts(scales.get(name)) or scales[name].origin is Origin.FREE:
                continue
            factor = tied[name].value / kept[name].value
            if factor >= COSTLY_FACTOR and name not in lost:
                lost[name], responsible[name] = factor, layer
    if not lost:
        return []
    order = sorted(lost, key=lambda name: -lost[name])
    worst = list({responsible[name].name: responsible[name] for name in order}.values())
    return [costly_products([(name, lost[name]) for name in order], worst, rows[_ROWS[LayerKind.ELEMENTWISE]])]


class _Groups:
    """Names that belong together, however they were joined."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def _root(self, name: str) -> str:
        while (above := self._parent.setdefault(name, name)) != name:
            self._parent[name] = self._parent.setdefault(above, above)
            name = above
        return name

    def join(self, first: str, second: str) -> None:
        self._parent[self._root(second)] = self._root(first)

    def all(self) -> list[list[str]]:
        groups: dict[str, list[str]] = {}
        for name in self._parent:
            groups.setdefault(self._root(name), []).append(name)
        return list(groups.values())
