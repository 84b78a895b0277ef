"""`choose_devices`: which of the layers that the DLA takes are better left to the GPU.

The time of a placement is the time of every layer where it runs, a launch for every DLA region, and a transfer
for every tensor that changes the device. Up to `EXACT` free layers the best placement is found by branch and
bound; larger networks are improved step by step, from everything on the DLA: whole regions, then layers at
their edges, as long as that saves time. Times come from the caller; nothing here knows how they are made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.placement.graph import GPU, Costs, Graph

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from orinport.model.layer import Layer

__all__ = ["EXACT", "Costs", "choose_devices", "placement_us"]

EXACT = 14
"""Layers that may run on either device up to which the search is exhaustive."""

_TRIALS = 400
_WORK = 300_000
"""Layers that all trials together may look at."""
_LARGE = 1500


def placement_us(layers: Sequence[Layer], device: Mapping[int, str], costs: Costs) -> float:
    """Time of one inference if every layer runs where `device` says; infinite if there are too many DLA regions."""
    return _serial_us(Graph(layers, costs), device)


def _serial_us(graph: Graph, device: Mapping[int, str]) -> float:
    """Layers, launches and transfers, one after the other: what one engine does."""
    devices = graph.devices(device)
    regions = sum(devices[group[0]] != GPU for group in graph.regions(devices))
    if regions > graph.costs.loadables:
        return float("inf")
    crossing = {
        name: devices[source]
        for position, reads in enumerate(graph.reads)
        for name, source in reads
        if devices[source] != devices[position]
    }
    busy = sum(graph.gpu[position] if on == GPU else graph.dla[position] for position, on in enumerate(devices))
    moved = sum(graph.costs.transfer.get(name, 0.0) for name in crossing)
    return busy + regions * graph.costs.launch + moved


def choose_devices(
    layers: Sequence[Layer], may_dla: Collection[int], costs: Costs, fixed: Mapping[int, str] | None = None
) -> dict[int, str]:
    """The device of every layer, by `Layer.index`.

    `layers` in topological order, without constants; `may_dla` holds those that the DLA takes. `fixed` are
    wishes of the user; a layer that the DLA does not take stays on the GPU whatever is wished.
    """
    fixed = fixed or {}
    device = {layer.index: "gpu" for layer in layers}
    for index in may_dla:
        if index in device:
            device[index] = fixed.get(index, "dla")
    free = [layer.index for layer in layers if layer.index in may_dla and layer.index not in fixed]
    graph = Graph(layers, costs)
    if len(free) <= EXACT:
        return _branch_and_bound(graph, device, free)
    return _improve(graph, device, set(free))


def _branch_and_bound(graph: Graph, device: dict[int, str], free: Sequence[int]) -> dict[int, str]:
    """Every choice for `free` whose layer times alone do not already exceed the best placement found."""
    costs = graph.costs
    best = _improve(graph, dict(device), set(free))
    best_us = _serial_us(graph, best)
    least = [0.0] * (len(free) + 1)
    for position in range(len(free) - 1, -1, -1):
        index = free[position]
        least[position] = least[position + 1] + min(costs.dla[index], costs.gpu[index])
    settled = {layer.index for layer in graph.layers} - set(free)
    base = sum((costs.dla if device[i] == "dla" else costs.gpu)[i] for i in settled)
    trial = dict(device)

    def descend(position: int, spent: float) -> None:
        nonlocal best, best_us
        if spent + least[position] >= best_us:
            return
        if position == len(free):
            us = _serial_us(graph, trial)
            if us < best_us:
                best, best_us = dict(trial), us
            return
        index = free[position]
        for on, times in (("dla", costs.dla), (GPU, costs.gpu)):
            trial[index] = on
            descend(position + 1, spent + times[index])

    descend(0, base)
    return best


def _improve(graph: Graph, device: dict[int, str], free: set[int]) -> dict[int, str]:
    """Steps that save time, until none is left or enough was tried."""
    device = _within_loadables(graph, device, free)
    us = _serial_us(graph, device)
    left = max(10, min(_TRIALS, _WORK // max(1, len(graph.layers))))
    improved = True
    while improved and left > 0:
        improved = False
        for step in _steps(graph, device, free):
            left -= 1
            if left < 0:
                break
            trial = {**device, **step}
            new = _serial_us(graph, trial)
            if new < us:
                device, us, improved = trial, new, True
                break
    return device


def _regions(graph: Graph, device: Mapping[int, str]) -> list[list[int]]:
    """The regions as indices of layers."""
    layers = graph.layers
    return [[layers[position].index for position in group] for group in graph.regions(graph.devices(device))]


def _steps(graph: Graph, device: Mapping[int, str], free: set[int]) -> list[dict[int, str]]:
    """Changes worth a try: whole regions, the smallest first, then single layers where the device changes."""
    steps = []
    for region in sorted(_regions(graph, device), key=len):
        other = GPU if device[region[0]] == "dla" else "dla"
        changed = {index: other for index in region if index in free}
        if changed and (other == GPU or len(changed) == len(region)):
            steps.append(changed)
    if len(graph.layers) > _LARGE:
        return steps
    edge: dict[int, str] = {}
    for position, sources in enumerate(graph.sources):
        for source in sources:
            ends = graph.layers[source].index, graph.layers[position].index
            if device[ends[0]] != device[ends[1]]:
                edge |= {index: GPU if device[index] == "dla" else "dla" for index in ends if index in free}
    return [*steps, *({index: other} for index, other in edge.items())]


def _within_loadables(graph: Graph, device: dict[int, str], free: set[int]) -> dict[int, str]:
    """Give the cheapest DLA regions to the GPU until a core holds the rest."""
    costs = graph.costs
    for _ in range(len(graph.layers)):
        regions = [region for region in _regions(graph, device) if device[region[0]] == "dla"]
        too_many = len(regions) - costs.loadables
        if too_many <= 0:
            break
        movable = [region for region in regions if free.issuperset(region)]
        movable.sort(key=lambda region: sum(costs.gpu[index] - costs.dla[index] for index in region))
        if not movable:
            break
        device = {**device, **{index: GPU for region in movable[:too_many] for index in region}}
    return device
