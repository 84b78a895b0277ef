"""Convex groups of layers: `partition(layers, colour)`.

Layers of one colour that touch each other form a group, unless a path leaves the group and comes back:
such a group could not run as one unit. The method is the usual one of levels: a layer's level counts the
changes of colour on the longest way to it, so two layers of equal colour and level can have no path of
another colour between them. Linear in layers and edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from orinport.model.layer import Layer

__all__ = ["partition"]


def partition(layers: Sequence[Layer], colour: Callable[[Layer], Hashable | None]) -> tuple[tuple[Layer, ...], ...]:
    """Group `layers` (in topological order) into convex groups of equal colour.

    Layers whose colour is None belong to no group and separate nothing (constants). Groups come in the
    order of their first layers.
    """
    producer: dict[str, int] = {}
    level: list[int] = []
    leader: list[int] = []
    colours = [colour(layer) for layer in layers]

    def find(index: int) -> int:
        while leader[index] != index:
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    for index, layer in enumerate(layers):
        leader.append(index)
        before = [
            producer[t.name] for t in layer.inputs if t.name in producer and colours[producer[t.name]] is not None
        ]
        level.append(max((level[p] + (colours[p] != colours[index]) for p in before), default=0))
        for p in before:
            if colours[p] == colours[index] and level[p] == level[index]:
                leader[find(index)] = find(p)
        for tensor in layer.outputs:
            producer[tensor.name] = index

    groups: dict[int, list[Layer]] = {}
    for index, layer in enumerate(layers):
        if colours[index] is not None:
            groups.setdefault(find(index), []).append(layer)
    return tuple(tuple(group) for group in sorted(groups.values(), key=lambda group: group[0].index))
