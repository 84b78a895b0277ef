"""Dropping what no output of a graph needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["prune", "subgraphs"]


def prune(graph: ir.Graph) -> None:
    """Remove nodes and initializers of `graph` that no output comes from, in place; its inputs stay."""
    for node in reversed(list(graph)):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            _let_go(node)
            graph.remove(node, safe=True)
    for name, value in list(graph.initializers.items()):
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
            graph.initializers.pop(name)


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs among the node's attributes."""
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def _let_go(node: ir.Node) -> None:
    """Forget what the subgraphs of a node read from outside."""
    for graph in subgraphs(node):
        graph.outputs.clear()
        for inner in graph:
            _let_go(inner)
            inner.resize_inputs(0)
