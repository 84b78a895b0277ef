"""Ends: the last part of a network, which the DLA does not take, becomes a network of its own.

`cut_tail` cuts at the last tensors that the DLA takes. The head goes to the board's model, the tail is what runs behind
it on the CPU or the GPU; the two chained compute what the network computed. This changes what the board's model
returns, so it is done only when asked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx_ir as ir

from orinport.model.model import shape_of
from orinport.model.prune import prune, subgraphs
from orinport.model.save import copy_model
from orinport.rewrites.builder import Names
from orinport.rewrites.catalogue._movers import MOVERS
from orinport.rewrites.context import RewriteContext, label
from orinport.rewrites.cost import macs
from orinport.rewrites.rewrite import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from orinport.model.model import Model
    from orinport.rewrites.edges import EdgeMapping

__all__ = ["TailCut", "chain", "cut_tail", "fit_tail"]

_PICKS = frozenset({"ArgMax", "ArgMin", "Hardmax", "LogSoftmax", "NonMaxSuppression", "Softmax", "TopK"})
"""What only normalises or picks at the end of a network: it goes to the tail even where the DLA takes it."""
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"})
_MOVERS = frozenset({*MOVERS, "Identity"})


@dataclass(frozen=True, slots=True)
class TailCut:
    """A network in two. `tensors` lead from one to the other; all names are those of the network.

    `nodes` are the labels of what went to the tail, `share` the part of the multiply-accumulates that they do.
    """

    head: Model
    tail: Model
    tensors: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]
    share: float


def cut_tail(model: Model, judge: Callable[[ir.Model], Collection[str]]) -> TailCut | Refusal:
    """Cut off what the DLA does not take at the end, and all that comes after it.

    `judge` says which nodes the DLA does not take. The tail does at most the share of multiply-accumulates that
    `targets/data/rewrites.toml` states, so that a layer in the middle of a network does not take its end along.
    A final Softmax, ArgMax, TopK or NonMaxSuppression goes with the tail, and so do shape movers before the cut.
    """
    graph = model.ir.graph
    off = frozenset(judge(model.ir))
    nodes = [node for node in graph if not _is_constant(node)]
    readers = _readers(nodes)
    most = float(RewriteContext(model.ir).figure("tail", "share"))
    total = max(1, sum(map(_work, nodes)))
    tail, left = _grow(nodes, readers, off, most * total)
    if not tail:
        return Refusal(_why_not(left, readers, total, most))
    for node in reversed(nodes):  # shape movers cost nothing behind the cut
        inner = node.op_type in _MOVERS and not any(value.is_graph_output() for value in node.outputs)
        if inner and readers[node] and readers[node] <= tail:
            tail.add(node)
    positions = {node: position for position, node in enumerate(graph)}
    labels = tuple(label(node) for node in nodes if node in tail)
    tensors = _entering(nodes, tail)
    ends = tuple(value.name or "" for value in graph.outputs if value.producer() in tail)
    if not tensors:
        return Refusal("nothing of the network would be left before the cut")
    head = _head(model, tensors, ends)
    rest = _tail(model, tensors, frozenset(positions[node] for node in tail))
    share = sum(_work(node) for node in tail) / total
    return TailCut(head, rest, tensors, ends, labels, share)


def fit_tail(tail: Model, board: Model, edges: Sequence[EdgeMapping]) -> Model:
    """A copy of `tail` that takes what `board` gives: its shapes, where edges moved, and its types."""
    result = copy_model(tail)
    graph = result.ir.graph
    given = {value.name: value for value in (*board.ir.graph.inputs, *board.ir.graph.outputs)}
    moved = {edge.name: edge for edge in edges}
    names = Names(result.ir)
    for index, value in enumerate(list(graph.inputs)):
        source = given.get(value.name)
        if source is None or (source.dtype == value.dtype and value.name not in moved):
            continue
        fresh = ir.Value(name=value.name, shape=source.shape, type=source.type)
        nodes = _bridge(fresh, value, moved.get(value.name or ""), names)
        value.replace_all_uses_with(nodes[-1].outputs[0])
        graph.inputs[index] = fresh
        for node in nodes:
            for each in node.inputs[1:]:
                if each is not None:
                    graph.register_initializer(each)
        graph.extend(nodes)
    graph.sort()
    return result


def chain(head: Model, tail: Model, outputs: Sequence[str]) -> Model:
    """`tail` behind `head` as one network that returns `outputs`; values of the two meet by name."""
    result, rest = copy_model(head), copy_model(tail)
    graph, other = result.ir.graph, rest.ir.graph
    known = {value.name: value for value in (*graph.inputs, *graph.outputs)}
    names = Names(result.ir)
    returned = {value.name for value in other.outputs}
    for value in (value for node in graph for value in node.outputs):
        if value.name in returned and value.name not in known:
            value.name = names.unique(value.name or "")  # both compute it, the tail gives it
    for value in list(other.inputs):
        if value.name in known:
            value.replace_all_uses_with(known[value.name])
        else:
            other.inputs.remove(value)
            graph.inputs.append(value)
    for name, value in list(other.initializers.items()):
        other.initializers.pop(name)
        value.name = names.unique(name)
        graph.register_initializer(value)
    nodes = list(other)
    ends = {value.name: value for value in other.outputs}
    other.outputs.clear()
    for node in nodes:
        other.remove(node)
        for value in node.outputs:
            if value.name and value.name not in ends:
                value.name = names.unique(value.name)
    graph.extend(nodes)
    graph.outputs.clear()
    graph.outputs.extend(ends[name] if name in ends else known[name] for name in outputs)
    graph.sort()
    return result


def _grow(
    nodes: Sequence[ir.Node], readers: dict[ir.Node, set[ir.Node]], off: frozenset[str], budget: float
) -> tuple[set[ir.Node], list[ir.Node]]:
    """Nodes for the tail within `budget`, the last ones first, and nodes off the DLA that are not among them."""
    tail: set[ir.Node] = set()
    ending: set[ir.Node] = set()
    left: list[ir.Node] = []
    for node in reversed(nodes):
        if node.op_type in _MOVERS | _PICKS and readers[node] <= ending:
            ending.add(node)
        picks = node in ending and node.op_type in _PICKS
        if node in tail or node.op_type in _MOVERS or not (picks or label(node) in off):
            continue
        closure = _behind(node, readers, tail, budget)
        if closure is None:
            left.append(node)
            continue
        tail |= closure
        budget -= sum(map(_work, closure))
    return tail, left


def _behind(
    node: ir.Node, readers: dict[ir.Node, set[ir.Node]], tail: set[ir.Node], budget: float
) -> set[ir.Node] | None:
    """`node` and all that depends on it and is not in the tail yet; None past the budget."""
    found: set[ir.Node] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current in found or current in tail:
            continue
        found.add(current)
        budget -= _work(current)
        if budget < 0:
            return None
        stack.extend(readers[current])
    return found


def _why_not(left: Sequence[ir.Node], readers: dict[ir.Node, set[ir.Node]], total: int, most: float) -> str:
    if not left:
        return "the DLA takes the network to its end"
    behind = _behind(left[0], readers, set(), float("inf")) or set()
    share = sum(map(_work, behind)) / total
    return (
        f"the last layer that the DLA does not take, {label(left[0])}, stands before {share:.0%} of the MACs,"
        f" and a tail does at most {most:.0%}"
    )


def _work(node: ir.Node) -> int:
    """Multiply-accumulates; what holds no product counts nothing."""
    return macs(node) if node.op_type in _PRODUCTS else 0


def _is_constant(node: ir.Node) -> bool:
    return bool(node.outputs) and all(value.const_value is not None for value in node.outputs)


def _readers(nodes: Sequence[ir.Node]) -> dict[ir.Node, set[ir.Node]]:
    """The nodes of the main graph that read each node's outputs, themselves or in their subgraphs."""
    readers: dict[ir.Node, set[ir.Node]] = {node: set() for node in nodes}
    for node in nodes:
        for value in _read_by(node):
            producer = value.producer()
            if producer in readers and producer is not None:
                readers[producer].add(node)
    return readers


def _read_by(node: ir.Node) -> list[ir.Value]:
    """What a node reads, with its subgraphs."""
    found = [value for value in node.inputs if value is not None]
    for graph in subgraphs(node):
        for inner in graph:
            found += _read_by(inner)
        found += list(graph.outputs)
    return found


def _entering(nodes: Sequence[ir.Node], tail: set[ir.Node]) -> tuple[str, ...]:
    """Names of the tensors that the tail reads from nodes before it, in order."""
    outside = {node for node in nodes if node not in tail}
    found = {
        value.name or "": None
        for node in nodes
        if node in tail
        for value in _read_by(node)
        if value.producer() in outside and value.const_value is None
    }
    return tuple(found)


def _head(model: Model, tensors: Sequence[str], ends: Sequence[str]) -> Model:
    result = copy_model(model)
    graph = result.ir.graph
    kept = [value for value in graph.outputs if value.name not in ends]
    names = {value.name for value in kept}
    made = {value.name: value for node in graph for value in node.outputs}
    graph.outputs.clear()
    graph.outputs.extend([*kept, *(made[name] for name in tensors if name not in names)])
    _without_unused(graph, keep=frozenset(value.name or "" for value in graph.inputs if not value.uses()))
    return result


def _tail(model: Model, tensors: Sequence[str], positions: frozenset[int]) -> Model:
    result = copy_model(model)
    graph = result.ir.graph
    made = {value.name: value for node in graph for value in node.outputs}
    inside = {value for position, node in enumerate(graph) if position in positions for value in node.outputs}
    kept = [value for value in graph.outputs if value in inside]
    graph.outputs.clear()
    graph.outputs.extend(kept)
    fresh = []
    for name in tensors:
        value = made[name]
        fresh.append(ir.Value(name=name, shape=value.shape, type=value.type))
        value.name = f"{name}/before"
        value.replace_all_uses_with(fresh[-1])
    graph.inputs.extend(fresh)
    _without_unused(graph)
    return replace(result, name=f"tail of {model.name}")


def _without_unused(graph: ir.Graph, keep: frozenset[str] = frozenset()) -> None:
    """Drop nodes, constants and inputs that no output comes from; inputs in `keep` stay."""
    prune(graph)
    for value in list(graph.inputs):
        if not value.uses() and not value.is_graph_output() and value.name not in keep:
            graph.inputs.remove(value)
            graph.initializers.pop(value.name or "", None)


def _bridge(source: ir.Value, wanted: ir.Value, edge: EdgeMapping | None, names: Names) -> list[ir.Node]:
    """Nodes from the board's tensor to the one that the tail was cut for."""
    nodes: list[ir.Node] = []
    value = source

    def add(
        op_type: str, inputs: Sequence[ir.Value], attributes: Sequence[ir.Attr], shape: Sequence[int], like: ir.Value
    ) -> ir.Value:
        name = names.unique(f"{wanted.name}/{op_type}")
        node = ir.Node("", op_type, inputs, attributes, num_outputs=1, name=name)
        made = node.outputs[0]
        made.name, made.shape, made.type = names.unique(f"{name}_output"), ir.Shape(shape), like.type
        nodes.append(node)
        return made

    if edge is not None:
        between = [edge.expand[axis] for axis in edge.perm]
        back = sorted(range(len(edge.perm)), key=lambda axis: edge.perm[axis])
        value = add("Reshape", [value, _ints(between, wanted, names)], [], between, source)
        value = add("Transpose", [value], [ir.AttrInt64s("perm", back)], edge.expand, source)
        value = add("Reshape", [value, _ints(edge.original_shape, wanted, names)], [], edge.original_shape, source)
    if source.dtype != wanted.dtype and wanted.dtype is not None:
        add("Cast", [value], [ir.AttrInt64("to", int(wanted.dtype))], shape_of(value) or (), wanted)
    return nodes


def _ints(numbers: Sequence[int], wanted: ir.Value, names: Names) -> ir.Value:
    name = names.unique(f"{wanted.name}/shape")
    tensor = ir.tensor([int(number) for number in numbers], dtype=ir.DataType.INT64, name=name)
    return ir.Value(name=name, shape=ir.Shape([len(numbers)]), type=ir.TensorType(tensor.dtype), const_value=tensor)
