"""Convex groups of layers: `group_positions(sources, colours)`.

Layers of one colour that touch each other form a group, unless a path leaves the group and comes back:
such a group could not run as one unit. The method is the usual one of levels: a layer's level counts the
changes of colour on the longest way to it, so two layers of equal colour and level can have no path of
another colour between them. Linear in layers and edges.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Sequence

    from orinport.model.layer import Layer

__all__ = ["group_positions", "levels", "sources_of"]


def sources_of(layers: Sequence[Layer]) -> list[list[int]]:
    """For every layer the positions of the layers whose tensors it reads, each once."""
    producer: dict[str, int] = {}
    sources = []
    for position, layer in enumerate(layers):
        sources.append(list({producer[tensor.name] for tensor in layer.inputs if tensor.name in producer}))
        for tensor in layer.outputs:
            producer[tensor.name] = position
    return sources


def levels(
    sources: Sequence[Sequence[int]], colours: Sequence[Hashable | None], ends: Collection[int] = ()
) -> list[int]:
    """Changes of colour on the longest way to each layer; what reads a layer in `ends` counts as a change too."""
    found: list[int] = []
    for position, before in enumerate(sources):
        colour, own = colours[position], 0
        for source in before:
            if colours[source] is not None:
                own = max(own, found[source] + (colours[source] != colour or source in ends))
        found.append(own)
    return found


def group_positions(
    sources: Sequence[Sequence[int]], colours: Sequence[Hashable | None], ends: Collection[int] = ()
) -> list[list[int]]:
    """Group layers (in topological order, known by their positions) into convex groups of equal colour.

    `sources` are those of `sources_of`. Layers whose colour is None belong to no group and separate nothing
    (constants); what reads a layer in `ends` is in no group with it. Groups come in an order in which they can run:
    each after those whose tensors it reads, the one with the earliest layer first.
    """
    level = levels(sources, colours, ends)
    leader = list(range(len(sources)))

    def find(position: int) -> int:
        while leader[position] != position:
            leader[position] = leader[leader[position]]
            position = leader[position]
        return position

    for position, before in enumerate(sources):
        for source in before:
            if colours[source] == colours[position] and level[source] == level[position]:
                leader[find(position)] = find(source)
    groups: dict[int, list[int]] = {}
    for position, colour in enumerate(colours):
        if colour is not None:
            groups.setdefault(find(position), []).append(position)
    return _in_order(sources, groups)


def _in_order(sources: Sequence[Sequence[int]], groups: dict[int, list[int]]) -> list[list[int]]:
    """Groups, each after those that it depends on; among those that are ready the earliest one."""
    if len(groups) == 1:
        return list(groups.values())
    home = {position: root for root, group in groups.items() for position in group}
    waiting: dict[int, set[int]] = {}
    readers: dict[int, list[int]] = {}
    ready: list[tuple[int, int]] = []
    for root, group in groups.items():
        before = {home[source] for position in group for source in sources[position] if source in home} - {root}
        if not before:
            heappush(ready, (group[0], root))
            continue
        waiting[root] = before
        for source in before:
            readers.setdefault(source, []).append(root)
    found = []
    while ready:
        _, root = heappop(ready)
        found.append(groups[root])
        for reader in readers.get(root, ()):
            waiting[reader].discard(root)
            if not waiting[reader]:
                heappush(ready, (groups[reader][0], reader))
    return found
