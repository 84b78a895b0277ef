"""`split_model`: a network as several, each with some of its nodes, and what leads from one to the other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import onnx_ir as ir

from orinport.model.prune import prune, subgraphs
from orinport.model.save import copy_model
from orinport.rewrites.context import label
from orinport.rewrites.ends import chain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from orinport.model.model import Model

__all__ = ["join_models", "split_model"]


def split_model(
    model: Model, groups: Sequence[Collection[str]], makers: Mapping[str, int] | None = None
) -> tuple[Model, ...]:
    """One network for each group of node labels, in an order in which they can run.

    A node of several groups (a Split whose outputs go separate ways) is in each of their parts; `makers` says which
    group gives a tensor then. A node of no group goes with the last group that it depends on, and what is known at
    build time with every reader. Tensors keep their names: what one part reads, an earlier one or the network's input
    gives under that name.
    """
    homes = _homes(model, groups)
    read: dict[str, set[int]] = {}
    for node, numbers in homes.items():
        for value in _read_by(node):
            made = value.producer()
            if made in homes and made is not None and (far := numbers - homes[made]):
                read.setdefault(value.name or "", set()).update(far)
    ends = {value.name or "" for value in model.graph.outputs}
    gives: list[set[str]] = [set() for _ in groups]
    for node, numbers in homes.items():
        for value in node.outputs:
            name = value.name or ""
            if name in ends or name in read:
                maker = (makers or {}).get(name, -1)
                gives[maker if maker in numbers else min(numbers)].add(name)
    at = [homes.get(node, frozenset()) for node in model.graph]
    return tuple(_part(model, number, at, gives[number]) for number in range(len(groups)))


def join_models(parts: Sequence[Model], model: Model) -> Model:
    """The parts of `model` as one again, to be compared with it; an input that no part reads is there too."""
    inputs = [value.name or "" for value in model.graph.inputs]
    outputs = [value.name or "" for value in model.graph.outputs]
    whole = parts[0]
    given = {value.name or "" for value in whole.graph.outputs}
    for number, part in enumerate(parts[1:], 1):
        given |= {value.name or "" for value in part.graph.outputs}
        later = {value.name or "" for after in parts[number + 1 :] for value in after.graph.inputs}
        whole = chain(whole, part, sorted(given & (later - set(inputs) | set(outputs))))
    read = {value.name for value in whole.graph.inputs}
    whole.graph.inputs.extend(
        ir.Value(name=value.name, shape=value.shape, type=value.type)
        for value in model.graph.inputs
        if value.name not in read
    )
    order = {value.name: value for value in whole.graph.outputs}
    whole.graph.outputs.clear()
    whole.graph.outputs.extend(order[name] for name in outputs)
    return whole


def _homes(model: Model, groups: Sequence[Collection[str]]) -> dict[ir.Node, frozenset[int]]:
    """The groups of every node that runs."""
    named: dict[str, set[int]] = {}
    for number, group in enumerate(groups):
        for name in group:
            named.setdefault(name, set()).add(number)
    homes: dict[ir.Node, frozenset[int]] = {}
    for node in model.graph:
        if all(value.const_value is not None for value in node.outputs):
            continue
        read = list(_read_by(node))
        before = [max(homes[made]) for value in read if (made := value.producer()) in homes and made is not None]
        numbers = named.get(label(node))
        if numbers is None and not before and not any(value.is_graph_input() for value in read):
            continue
        homes[node] = frozenset({max(before, default=0)} if numbers is None else numbers)
    return homes


def _read_by(node: ir.Node) -> Iterator[ir.Value]:
    """What a node reads, with its subgraphs."""
    yield from (value for value in node.inputs if value is not None)
    for graph in subgraphs(node):
        for inner in graph:
            yield from _read_by(inner)
        yield from graph.outputs


def _part(model: Model, number: int, at: Sequence[frozenset[int]], gives: set[str]) -> Model:
    """The part with the nodes whose groups `at` their positions hold `number`; it gives the tensors `gives`."""
    result = copy_model(model)
    graph = result.ir.graph
    nodes = list(graph)
    own = [node for node, numbers in zip(nodes, at, strict=True) if number in numbers]
    foreign = {
        value.name or "": value
        for node, numbers in zip(nodes, at, strict=True)
        if numbers and number not in numbers
        for value in node.outputs
    }
    graph.outputs.clear()
    graph.outputs.extend(value for node in own for value in node.outputs if value.name in gives)
    fresh = []
    for node in own:
        for value in list(_read_by(node)):
            if value is foreign.get(value.name or ""):
                inlet = ir.Value(name=value.name, shape=value.shape, type=value.type)
                value.name = f"{value.name}/elsewhere"
                value.replace_all_uses_with(inlet)
                fresh.append(inlet)
    graph.inputs.extend(fresh)
    prune(graph)
    for value in list(graph.inputs):
        if not value.uses() and not value.is_graph_output():
            graph.inputs.remove(value)
            graph.initializers.pop(value.name or "", None)
    return replace(result, name=f"part {number} of {model.name}")
