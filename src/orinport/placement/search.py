"""`choose_devices`: which of the layers that the DLA takes are better left to the GPU.

The time of a placement is the time of every layer where it runs, a launch for every DLA region, and a transfer
for every tensor that changes the device. Up to `EXACT` free layers the best placement is found by branch and
bound; larger networks are improved step by step, from everything on the DLA: whole regions, then layers at
their edges, as long as that saves time. Times come from the caller; nothing here knows how they are made.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orinport.model.partition import partition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from orinport.model.layer import Layer

__all__ = ["EXACT", "Costs", "choose_devices", "placement_us"]

EXACT = 14
"""Layers that may run on either device up to which the search is exhaustive."""

_TRIALS = 400
_LARGE = 1500


@dataclass(frozen=True, slots=True)
class Costs:
    """Times in us: of each layer (by `Layer.index`) on either device, of a DLA launch, of moving a tensor."""

    dla: Mapping[int, float]
    gpu: Mapping[int, float]
    launch: float
    transfer: Mapping[str, float]
    """By tensor name; tensors that are missing cost nothing."""
    loadables: int
    """DLA regions that a core holds at once."""


def placement_us(layers: Sequence[Layer], device: Mapping[int, str], costs: Costs) -> float:
    """Time of one inference if every layer runs where `device` says; infinite if there are too many DLA regions."""
    regions = sum(device[group[0].index] == "dla" for group in _regions(layers, device))
    if regions > costs.loadables:
        return float("inf")
    return _layers_us(layers, device, costs) + regions * costs.launch + _transfers_us(layers, device, costs)


def _layers_us(layers: Sequence[Layer], device: Mapping[int, str], costs: Costs) -> float:
    return sum((costs.dla if device[layer.index] == "dla" else costs.gpu)[layer.index] for layer in layers)


def _transfers_us(layers: Sequence[Layer], device: Mapping[int, str], costs: Costs) -> float:
    maker = {tensor.name: device[layer.index] for layer in layers for tensor in layer.outputs}
    crossing = {
        tensor.name
        for layer in layers
        for tensor in layer.runtime_inputs
        if maker.get(tensor.name, device[layer.index]) != device[layer.index]
    }
    return sum(costs.transfer.get(name, 0.0) for name in crossing)


def _regions(layers: Sequence[Layer], device: Mapping[int, str]) -> tuple[tuple[Layer, ...], ...]:
    def colour(layer: Layer) -> tuple[str, int | None]:
        on = device[layer.index]
        return on, layer.outputs[0].batch if on == "dla" and layer.outputs else None

    return partition(layers, colour)


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
    if len(free) <= EXACT:
        return _branch_and_bound(layers, device, free, costs)
    return _improve(layers, device, set(free), costs)


def _branch_and_bound(
    layers: Sequence[Layer], device: dict[int, str], free: Sequence[int], costs: Costs
) -> dict[int, str]:
    """Every choice for `free` whose layer times alone do not already exceed the best placement found."""
    start = _improve(layers, dict(device), set(free), costs)
    best, best_us = start, placement_us(layers, start, costs)
    least = [0.0] * (len(free) + 1)
    for position in range(len(free) - 1, -1, -1):
        index = free[position]
        least[position] = least[position + 1] + min(costs.dla[index], costs.gpu[index])
    settled = {layer.index for layer in layers} - set(free)
    base = sum((costs.dla if device[i] == "dla" else costs.gpu)[i] for i in settled)
    trial = dict(device)

    def descend(position: int, spent: float) -> None:
        nonlocal best, best_us
        if spent + least[position] >= best_us:
            return
        if position == len(free):
            us = placement_us(layers, trial, costs)
            if us < best_us:
                best, best_us = dict(trial), us
            return
        index = free[position]
        for on, times in (("dla", costs.dla), ("gpu", costs.gpu)):
            trial[index] = on
            descend(position + 1, spent + times[index])

    descend(0, base)
    return best


def _improve(layers: Sequence[Layer], device: dict[int, str], free: set[int], costs: Costs) -> dict[int, str]:
    """Steps that save time, until none is left or enough was tried."""
    device = _within_loadables(layers, device, free, costs)
    us = placement_us(layers, device, costs)
    trials = 0
    improved = True
    while improved and trials < _TRIALS:
        improved = False
        for step in _steps(layers, device, free):
            trials += 1
            if trials > _TRIALS:
                break
            trial = {**device, **step}
            new = placement_us(layers, trial, costs)
            if new < us:
                device, us, improved = trial, new, True
                break
    return device


def _steps(layers: Sequence[Layer], device: Mapping[int, str], free: set[int]) -> list[dict[int, str]]:
    """Changes worth a try: whole regions, the smallest first, then single layers where the device changes."""
    regions = sorted(_regions(layers, device), key=len)
    steps = []
    for region in regions:
        other = "gpu" if device[region[0].index] == "dla" else "dla"
        changed = {layer.index: other for layer in region if layer.index in free}
        if changed and (other == "gpu" or len(changed) == len(region)):
            steps.append(changed)
    if len(layers) > _LARGE:
        return steps
    maker = {tensor.name: layer.index for layer in layers for tensor in layer.outputs}
    edge: dict[int, str] = {}
    for layer in layers:
        for tensor in layer.runtime_inputs:
            source = maker.get(tensor.name)
            if source is not None and device[source] != device[layer.index]:
                for index in (source, layer.index):
                    if index in free:
                        edge[index] = "gpu" if device[index] == "dla" else "dla"
    return [*steps, *({index: other} for index, other in edge.items())]


def _within_loadables(layers: Sequence[Layer], device: dict[int, str], free: set[int], costs: Costs) -> dict[int, str]:
    """Give the cheapest DLA regions to the GPU until a core holds the rest."""
    for _ in range(len(layers)):
        regions = [group for group in _regions(layers, device) if device[group[0].index] == "dla"]
        if len(regions) <= costs.loadables:
            break
        loss: dict[int, float] = defaultdict(float)
        for number, group in enumerate(regions):
            movable = all(layer.index in free for layer in group)
            loss[number] = (
                sum(costs.gpu[layer.index] - costs.dla[layer.index] for layer in group) if movable else float("inf")
            )
        number = min(loss, key=lambda key: loss[key])
        if loss[number] == float("inf"):
            break
        device = {**device, **{layer.index: "gpu" for layer in regions[number]}}
    return device
