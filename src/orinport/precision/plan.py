"""How the tensors of a network are watched: which ones ONNX Runtime hands out, in which runs, by how many threads.

What a tensor holds that only hands on the elements of another one, in their order, or its ReLU, need not be stored to
be known: its histogram follows from the other's elements exactly. Samples run side by side, each on a thread of its
own, because one convolution on two cores takes longer than half of one on one core, and because histograms of one
sample then overlap with the inference of another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orinport.precision.histogram import BINS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from orinport.model.model import Model
    from orinport.precision.histogram import Histogram

__all__ = ["Plan", "Watched", "groups_of", "plan_of"]

_SAME = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Their output holds the elements of the first input, all of them and in their order."""
_STREAMS = 8
"""Samples side by side at most: Python has to hand out each of them."""
_HELD = 8
"""Tensors as large as the largest that a stream is taken to hold at once."""
_COUNTERS = 4 * 4 * BINS
"""Bytes that a stream counts a tensor in: blocks and tails, of both signs."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A tensor that ONNX Runtime hands out, or the ReLU of it."""

    name: str
    rectified: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Which tensors are watched, and how."""

    sources: tuple[tuple[str, Watched], ...]
    """Every tensor by name, and what has the same histogram."""
    groups: tuple[tuple[str, ...], ...]
    """What ONNX Runtime hands out, in runs whose tensors fit into memory."""
    streams: int
    """Samples that run side by side."""
    threads: int
    """Of each of them."""

    @property
    def roots(self) -> tuple[str, ...]:
        """What ONNX Runtime hands out."""
        return tuple(name for group in self.groups for name in group)

    @property
    def tensors(self) -> tuple[Watched, ...]:
        """What has a histogram of its own; each tensor that is handed out has one."""
        return tuple(dict.fromkeys([*map(Watched, self.roots), *(tensor for _, tensor in self.sources)]))

    def streaming(self, largest: int, *, megabytes: int, threads: int) -> Plan:
        """The same where tensors are counted when they are made, and then freed: one run, as many streams as fit.

        `largest`: bytes of the largest tensor.
        """
        room = (megabytes << 20) // max(1, _HELD * largest + _COUNTERS * len(self.roots))
        streams = max(1, min(threads, room, _STREAMS))
        return replace(self, groups=(self.roots,), streams=streams, threads=max(1, threads // streams))

    def named(self, found: Mapping[Watched, Histogram]) -> dict[str, Histogram]:
        """The histogram of every tensor by name."""
        return {name: found[tensor] for name, tensor in self.sources}


def plan_of(model: Model, names: Mapping[str, int], *, megabytes: int, threads: int) -> Plan:
    """The plan for the tensors `names`, given with their bytes, with `threads` threads in all."""
    sources: dict[str, Watched] = {name: Watched(name) for name in names}
    for node in model.graph:
        found = _followed(node, sources)
        if found is not None and node.outputs[0].name in names:
            sources[node.outputs[0].name or ""] = found
    roots = {name: size for name, size in names.items() if sources[name] == Watched(name)}
    groups = groups_of(roots, megabytes)
    room = (megabytes << 20) // max(1, sum(roots.values()))
    streams = max(1, min(threads, room, _STREAMS)) if len(groups) == 1 and all(roots.values()) else 1
    return Plan(tuple(sources.items()), groups, streams, max(1, threads // streams))


def _followed(node: ir.Node, sources: Mapping[str, Watched]) -> Watched | None:
    """What the first output of `node` has the histogram of; None if it has one of its own."""
    if node.domain not in ("", "ai.onnx") or not node.inputs or node.inputs[0] is None:
        return None
    source = sources.get(node.inputs[0].name or "")
    if source is None or node.inputs[0].dtype != node.outputs[0].dtype:
        return None
    if node.op_type in _SAME:
        return source
    return Watched(source.name, rectified=True) if node.op_type == "Relu" else None


def groups_of(names: Mapping[str, int], megabytes: int) -> tuple[tuple[str, ...], ...]:
    """Tensors, given with their bytes, in groups that fit into memory at once."""
    groups: list[list[str]] = [[]]
    held = 0
    for name, size in names.items():
        if groups[-1] and held + size > megabytes << 20:
            groups.append([])
            held = 0
        groups[-1].append(name)
        held += size
    return tuple(tuple(group) for group in groups)
