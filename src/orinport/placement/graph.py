"""`Graph`: a network and its costs, prepared once for the many assignments that a search looks at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orinport.model.partition import group_positions, sources_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from orinport.model.layer import Layer

__all__ = ["GPU", "Costs", "Graph"]

GPU = "gpu"


@dataclass(frozen=True, slots=True)
class Costs:
    """Times in us: of each layer (by `Layer.index`) on either device, of a DLA launch, of moving a tensor."""

    dla: Mapping[int, float]
    gpu: Mapping[int, float]
    launch: float
    transfer: Mapping[str, float]
    """Between GPU and DLA, by tensor name; tensors that are missing cost nothing."""
    loadables: int
    """DLA regions that a core holds at once."""
    handover: Mapping[str, float] = field(default_factory=dict)
    """From one DLA core to the other, likewise."""


class Graph:
    """Layers in topological order, known by their positions, and what they cost."""

    def __init__(self, layers: Sequence[Layer], costs: Costs) -> None:
        maker = {tensor.name: position for position, layer in enumerate(layers) for tensor in layer.outputs}
        self.layers = layers
        self.costs = costs
        self.sources = sources_of(layers)
        self.reads: list[list[tuple[str, int]]] = [
            list({(t.name, maker[t.name]): None for t in layer.runtime_inputs if t.name in maker}) for layer in layers
        ]
        """For every layer the tensors that it reads from other layers, with their makers."""
        self.batch = [layer.outputs[0].batch if layer.outputs else None for layer in layers]
        self.dla = [costs.dla[layer.index] for layer in layers]
        self.gpu = [costs.gpu[layer.index] for layer in layers]

    def devices(self, device: Mapping[int, str]) -> list[str]:
        """An assignment by `Layer.index` as one by position."""
        return [device[layer.index] for layer in self.layers]

    def regions(self, devices: Sequence[str], ends: Collection[int] = ()) -> list[list[int]]:
        """Positions of the layers of every region, in order of execution; those on a DLA have one batch size each.

        A region ends at the positions in `ends`.
        """
        batch = self.batch
        colours = [on if on == GPU else (on, batch[position]) for position, on in enumerate(devices)]
        return group_positions(self.sources, colours, ends)

    def work_us(self, group: Sequence[int], on: str) -> float:
        """A region's layers, and its launch on a DLA."""
        if on == GPU:
            return sum(self.gpu[position] for position in group)
        return self.costs.launch + sum(self.dla[position] for position in group)

    def bring_us(self, name: str, source: str, on: str) -> float:
        """What a tensor costs on its way from one device to another."""
        return (self.costs.transfer if GPU in (source, on) else self.costs.handover).get(name, 0.0)
