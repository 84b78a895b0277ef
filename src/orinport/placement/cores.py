"""`choose_cores`: which layers run on which DLA core, and which on the GPU, so that one inference ends soonest.

All DLA layers of a TensorRT engine run on the one core that its runtime was told (`IRuntime::setDLACore`; a layer's
device type is GPU or DLA, without a core), and the layers of an engine run one after the other. So a network uses both
cores only as several engines. Here every region is one: the engines of a device run in order, an engine starts when
its device is free and its tensors are there, and branches of the network overlap. Tensors are there when their engine
ends; so either every engine ends where another device waits for one of its tensors, at the price of a launch, or none
does, whichever is faster. `schedule` is what that gives.

A search starts from the best of a few assignments and moves whole regions, and branches behind a fork, as long as that
saves time. Up to `EXACT` layers with a choice, branch and bound finds the best assignment from there. Times come from
the caller, as for `choose_devices`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orinport.placement.graph import GPU, Graph
from orinport.placement.search import choose_devices

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from orinport.model.layer import Layer
    from orinport.placement.graph import Costs

__all__ = ["CORES", "EXACT", "Assignment", "Schedule", "choose_cores", "finish_us", "schedule"]

CORES = ("dla0", "dla1")
"""The DLA cores of an Orin."""
EXACT = 12
"""Layers with a choice up to which the search is exhaustive."""

_WORK = 150_000
"""Layers that all trials together may look at in a large network."""
_TRIALS = 200


@dataclass(frozen=True, slots=True)
class Assignment:
    """`dla0`, `dla1` or `gpu` for every layer, and the layers at which a region ends, all by `Layer.index`."""

    device: Mapping[int, str]
    ends: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Schedule:
    """Regions in order of execution, the device of each, and when it starts and ends, in us."""

    regions: tuple[tuple[Layer, ...], ...]
    devices: tuple[str, ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]

    @property
    def us(self) -> float:
        """When the last region ends."""
        return max(self.ends, default=0.0)


def schedule(layers: Sequence[Layer], assignment: Assignment, costs: Costs) -> Schedule | None:
    """When every region runs; None if a core would hold too many loadables.

    A tensor that comes from another device costs its transfer, from another core its handover, once for each device
    that reads it, and the first region there bears it.
    """
    graph = Graph(layers, costs)
    devices = graph.devices(assignment.device)
    ends = {position for position, layer in enumerate(layers) if layer.index in assignment.ends}
    regions = graph.regions(devices, ends)
    times = _times(graph, devices, regions)
    if times is None:
        return None
    return Schedule(
        tuple(tuple(layers[position] for position in group) for group in regions),
        tuple(devices[group[0]] for group in regions),
        tuple(start for start, _ in times),
        tuple(end for _, end in times),
    )


def finish_us(layers: Sequence[Layer], device: Mapping[int, str], costs: Costs) -> float:
    """When one inference ends, with regions as they are best; infinite if a core would hold too many loadables."""
    graph = Graph(layers, costs)
    return _finish_us(graph, graph.devices(device))


def _finish_us(graph: Graph, devices: Sequence[str]) -> float:
    return min(_end_us(graph, devices, ends) for ends in _variants(graph, devices))


def _variants(graph: Graph, devices: Sequence[str]) -> tuple[frozenset[int], ...]:
    """No ends of regions but where they have to be; and all layers that feed their own device and another one."""
    here: set[int] = set()
    elsewhere: set[int] = set()
    for position, sources in enumerate(graph.sources):
        for source in sources:
            (here if devices[source] == devices[position] else elsewhere).add(source)
    ends = frozenset(here & elsewhere)
    return (frozenset(), ends) if ends else (frozenset(),)


def _end_us(graph: Graph, devices: Sequence[str], ends: frozenset[int]) -> float:
    times = _times(graph, devices, graph.regions(devices, ends))
    return float("inf") if times is None else max((end for _, end in times), default=0.0)


def _times(graph: Graph, devices: Sequence[str], regions: Sequence[Sequence[int]]) -> list[tuple[float, float]] | None:
    """Start and end of every region; None if a core would hold too many."""
    home = [0] * len(devices)
    for number, group in enumerate(regions):
        for position in group:
            home[position] = number
    held = dict.fromkeys((*CORES, GPU), 0)
    free = dict.fromkeys((*CORES, GPU), 0.0)
    brought: set[tuple[str, str]] = set()
    times: list[tuple[float, float]] = []
    for number, group in enumerate(regions):
        on = devices[group[0]]
        held[on] += 1
        if on != GPU and held[on] > graph.costs.loadables:
            return None
        us, ready = graph.work_us(group, on), free[on]
        for position in group:
            for name, source in graph.reads[position]:
                if home[source] == number:
                    continue
                ready = max(ready, times[home[source]][1])
                if devices[source] != on and (name, on) not in brought:
                    brought.add((name, on))
                    us += graph.bring_us(name, devices[source], on)
        free[on] = ready + us
        times.append((ready, ready + us))
    return times


def choose_cores(
    layers: Sequence[Layer],
    may_dla: Collection[int],
    costs: Costs,
    fixed: Mapping[int, str] | None = None,
    *,
    may_gpu: bool = True,
) -> Assignment:
    """The assignment with which one inference ends soonest, of those looked at.

    `layers` in topological order, without constants; `may_dla` holds those that the DLA takes. `fixed` are wishes of
    the user: `gpu`, a core, or `dla` for either core; a layer that the DLA does not take stays on the GPU whatever is
    wished. Without `may_gpu` only wishes bring layers to the GPU that the DLA takes.
    """
    options = _options(layers, may_dla, fixed or {}, may_gpu=may_gpu)
    graph = Graph(layers, costs)
    devices = _improve(graph, options, _best_start(graph, options))
    if sum(len(each) > 1 for each in options) <= EXACT:
        devices = _branch_and_bound(graph, options, devices)
    ends = min(_variants(graph, devices), key=lambda each: _end_us(graph, devices, each))
    return Assignment(
        {layer.index: on for layer, on in zip(layers, devices, strict=True)},
        frozenset(layers[position].index for position in ends),
    )


def _options(
    layers: Sequence[Layer], may_dla: Collection[int], fixed: Mapping[int, str], *, may_gpu: bool
) -> list[tuple[str, ...]]:
    """Where each layer may run, in the order in which it is tried."""
    options: list[tuple[str, ...]] = []
    for layer in layers:
        wish = fixed.get(layer.index)
        if layer.index not in may_dla:
            options.append((GPU,))
        elif wish is not None and wish != "dla":
            options.append((wish,))
        else:
            options.append(CORES if wish == "dla" or not may_gpu else (*CORES, GPU))
    return options


def _best_start(graph: Graph, options: Sequence[tuple[str, ...]]) -> list[str]:
    """The better of: everything on core 0 as far as it may, and the best placement on one DLA and the GPU."""
    plain = [each[0] for each in options]
    starts = [plain, _spread(graph, plain, options)]
    if any(GPU in each and len(each) > 1 for each in options):
        may = {layer.index for layer, each in zip(graph.layers, options, strict=True) if each != (GPU,)}
        wishes = {
            layer.index: "dla"
            for layer, each in zip(graph.layers, options, strict=True)
            if layer.index in may and GPU not in each
        }
        single = choose_devices(graph.layers, may, graph.costs, wishes)
        placed = [GPU if single[layer.index] == GPU else on for layer, on in zip(graph.layers, plain, strict=True)]
        starts += [placed, _spread(graph, placed, options)]
    return min(starts, key=lambda devices: _finish_us(graph, devices))


def _spread(graph: Graph, devices: Sequence[str], options: Sequence[tuple[str, ...]]) -> list[str]:
    """Each DLA region in turn on the core that has less to do, as far as it may and holds it."""
    spread = list(devices)
    busy = dict.fromkeys(CORES, 0.0)
    held = dict.fromkeys(CORES, 0)
    for group in graph.regions(devices):
        on = devices[group[0]]
        if on == GPU:
            continue
        allowed = [core for core in CORES if all(core in options[position] for position in group)]
        roomy = [core for core in allowed if held[core] < graph.costs.loadables]
        core = min(roomy or allowed or [on], key=lambda each: busy[each])
        held[core] += 1
        busy[core] += graph.work_us(group, core)
        for position in group:
            spread[position] = core
    return spread


def _branch_and_bound(graph: Graph, options: Sequence[tuple[str, ...]], start: list[str]) -> list[str]:
    """Every assignment whose beginning does not already end later than the best one found."""
    best, best_us = start, _finish_us(graph, start)
    bounds = _Bounds(graph, options)
    mirrored = not any(len(each) == 1 and each[0] in CORES for each in options)

    def descend(known: _Beginning) -> None:
        nonlocal best, best_us
        position = len(known.devices)
        if position == len(options):
            us = _finish_us(graph, known.devices)
            if us < best_us:
                best, best_us = list(known.devices), us
            return
        choices = options[position]
        if mirrored and CORES[0] not in known.devices:
            choices = tuple(on for on in choices if on != CORES[1])  # its mirror image is tried
        for longer in sorted((bounds.extend(known, on) for on in choices), key=lambda each: each.least_us):
            if longer.least_us < best_us:
                descend(longer)

    descend(_Beginning((), (), (), {}, frozenset(), 0.0))
    return best


@dataclass(frozen=True, slots=True)
class _Beginning:
    """An assignment of the first layers: what is known of it, and when any completion of it ends at the earliest."""

    devices: tuple[str, ...]
    levels: tuple[int, ...]
    """Changes of device or batch on the longest way to each layer: regions of different levels are different ones."""
    done: tuple[float, ...]
    """The earliest end of each layer."""
    load: dict[str, float]
    """What each device has to do."""
    paid: frozenset[tuple[str, object]]
    """Transfers and launches that are in `load`."""
    least_us: float


class _Bounds:
    """Lower bounds of the end of an assignment of which only the first layers are known.

    They are the largest of: what a device has to do, what all devices have to do together, and the longest path, where
    a change of device costs its transfer and a launch, and a layer comes after all on its device that it depends on.
    That holds too where an earlier region has brought the tensor already: it has run on the same device before.
    """

    def __init__(self, graph: Graph, options: Sequence[tuple[str, ...]]) -> None:
        self._graph = graph
        least = [min(self._us(position, on) for on in each) for position, each in enumerate(options)]
        self._behind = [0.0] * len(options)
        self._rest = [0.0] * (len(options) + 1)
        self._before: list[tuple[int, ...]] = []
        """All layers that each depends on."""
        for sources in graph.sources:
            known = {*sources, *(each for source in sources for each in self._before[source])}
            self._before.append(tuple(sorted(known)))
        for position in range(len(options) - 1, -1, -1):
            self._rest[position] = self._rest[position + 1] + least[position]
            for source in graph.sources[position]:
                self._behind[source] = max(self._behind[source], least[position] + self._behind[position])

    def _us(self, position: int, on: str) -> float:
        return (self._graph.gpu if on == GPU else self._graph.dla)[position]

    def extend(self, known: _Beginning, on: str) -> _Beginning:
        """`known` with the next layer on the device `on`."""
        graph, position = self._graph, len(known.devices)
        launch = 0.0 if on == GPU else graph.costs.launch
        batch = None if on == GPU else graph.batch[position]
        us, level, paid = self._us(position, on), 0, set(known.paid)
        start = launch + sum(self._us(each, on) for each in self._before[position] if known.devices[each] == on)
        added = us
        for name, source in graph.reads[position]:
            other = known.devices[source]
            if other == on and (on == GPU or graph.batch[source] == batch):
                level = max(level, known.levels[source])
                start = max(start, known.done[source])
                continue
            bring = 0.0 if other == on else graph.bring_us(name, other, on)
            level = max(level, known.levels[source] + 1)
            start = max(start, known.done[source] + bring + launch)
            if bring and (on, name) not in paid:
                paid.add((on, name))
                added += bring
        if (on, (level, batch)) not in paid:
            paid.add((on, (level, batch)))
            added += launch
        end = start + us
        load = {**known.load, on: known.load.get(on, 0.0) + added}
        together = (sum(load.values()) + self._rest[position + 1]) / (len(CORES) + 1)
        return _Beginning(
            (*known.devices, on),
            (*known.levels, level),
            (*known.done, end),
            load,
            frozenset(paid),
            max(known.least_us, together, *load.values(), end + self._behind[position]),
        )


def _improve(graph: Graph, options: Sequence[tuple[str, ...]], start: list[str]) -> list[str]:
    """Moves that save time, until none is left or enough was tried."""
    best, best_us = start, _finish_us(graph, start)
    left = max(10, min(_TRIALS, _WORK // max(1, len(options))))
    improved = True
    while improved and left > 0:
        improved = False
        for moved in _moves(graph, best, options):
            for on in (*CORES, GPU):
                if any(on not in options[position] for position in moved) or all(best[p] == on for p in moved):
                    continue
                left -= 1
                trial = list(best)
                for position in moved:
                    trial[position] = on
                us = _finish_us(graph, trial)
                if us < best_us:
                    best, best_us, improved = trial, us, True
                    break
                if left <= 0:
                    return best
            if improved:
                break
    return best


def _moves(graph: Graph, devices: Sequence[str], options: Sequence[tuple[str, ...]]) -> list[tuple[int, ...]]:
    """Sets of layers worth moving together, those that do most first: whole regions and branches."""
    us = [(graph.gpu if on == GPU else graph.dla)[position] for position, on in enumerate(devices)]
    found: dict[tuple[int, ...], float] = {}
    for group in (*graph.regions(devices), *_branches(graph, us)):
        movable = tuple(position for position in group if len(options[position]) > 1)
        if movable:
            found[movable] = sum(us[position] for position in movable)
    return sorted(found, key=lambda moved: -found[moved])


def _branches(graph: Graph, us: Sequence[float]) -> list[list[int]]:
    """The longest branches: a layer behind a fork, or without a source, and all that can be reached only through it.

    Those are the subtrees of the tree of dominators (the last layer that all ways to a layer pass).
    """
    parent = _dominators(graph.sources)
    children: dict[int, list[int]] = {}
    total = list(us)
    for position in range(len(parent) - 1, -1, -1):
        children.setdefault(parent[position], []).append(position)
        if parent[position] >= 0:
            total[parent[position]] += total[position]
    heads = [head for each in children.values() if len(each) > 1 for head in each]
    heads.sort(key=lambda head: -total[head])
    branches = []
    for head in heads[:_TRIALS]:
        branch, waiting = [], [head]
        while waiting:
            position = waiting.pop()
            branch.append(position)
            waiting += children.get(position, ())
        branches.append(sorted(branch))
    return branches


def _dominators(sources: Sequence[Sequence[int]]) -> list[int]:
    """The last layer that all ways to each layer pass, -1 for none."""
    parent: list[int] = []
    depth: list[int] = []
    for before in sources:
        common = before[0] if before else -1
        for source in before[1:]:
            other = source
            while common != other:
                if other < 0 or (common >= 0 and depth[common] >= depth[other]):
                    common = parent[common]
                else:
                    other = parent[other]
        parent.append(common)
        depth.append(0 if common < 0 else depth[common] + 1)
    return parent
