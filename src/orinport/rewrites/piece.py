"""Pieces: what is replaced, or what replaces it, cut out as a small model of its own.

In a piece every value, node and constant has a name by position alone, so two pieces with equal nodes,
shapes and weights are equal byte by byte and have the same digest.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from orinport.rewrites.builder import RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orinport.rewrites.context import RewriteContext

__all__ = ["Digests", "Piece", "cut", "embedded", "in_order", "run_time_inputs"]

_INLINE_ELEMENTS = 1024
_IR_VERSION = 10


class Digests:
    """Digests of constants, computed once for each tensor."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[ir.TensorProtocol, bytes]] = {}

    def forget(self, tensor: ir.TensorProtocol | None) -> None:
        """Let go of a tensor that left the network."""
        self._known.pop(id(tensor), None)

    def of(self, tensor: ir.TensorProtocol) -> bytes:
        """BLAKE2 over type, shape and bytes."""
        known = self._known.get(id(tensor))
        if known is not None:
            return known[1]
        array = np.ascontiguousarray(tensor.numpy())
        digest = hashlib.blake2b(f"{tensor.dtype}{array.shape}".encode(), digest_size=16)
        digest.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
        self._known[id(tensor)] = (tensor, digest.digest())
        return digest.digest()


@dataclass(frozen=True, slots=True)
class Piece:
    """A small model: `model` with its constants for the judge, `proto` with large constants as inputs for the proof.

    `feeds` are those constants. `inputs` are the run-time inputs, in the order that both pieces of one
    application share.
    """

    model: ir.Model
    proto: onnx.ModelProto
    feeds: dict[str, NDArray[Any]]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[str, ...]
    digest: bytes


def in_order(nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """`nodes`, each once, producers before consumers."""
    members = set(nodes)
    order: dict[ir.Node, None] = {}
    for root in nodes:
        stack: list[tuple[ir.Node, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if node in order:
                continue
            if ready:
                order[node] = None
                continue
            stack.append((node, True))
            stack.extend(
                (producer, False)
                for value in reversed(node.inputs)
                if value is not None and (producer := value.producer()) in members and producer is not None
            )
    return list(order)


def run_time_inputs(nodes: Sequence[ir.Node], context: RewriteContext) -> list[ir.Value]:
    """Values that enter `nodes` from outside and are not constant, in order of first use."""
    made = {value for node in nodes for value in node.outputs}
    found: dict[ir.Value, None] = {}
    for node in nodes:
        for value in node.inputs:
            if value is not None and value not in made and not context.is_constant(value):
                found[value] = None
    return list(found)


def cut(
    nodes: Sequence[ir.Node],
    outputs: Sequence[ir.Value],
    inputs: Sequence[ir.Value],
    context: RewriteContext,
    digests: Digests,
) -> Piece:
    """`nodes` (producers first) as a model from `inputs` to `outputs`.

    Raises RefusedError if it cannot be cut out: a subgraph in a node, or a type or shape that is not known.
    """
    mapping: dict[ir.Value, ir.Value] = {}
    for index, value in enumerate(inputs):
        shape, dtype = context.shape(value), context.dtype(value)
        if shape is None or dtype is None:
            raise RefusedError(f"shape or type of {value.name!r} is not known, so nothing can be proved")
        mapping[value] = ir.Value(name=f"x{index}", shape=ir.Shape(shape), type=ir.TensorType(dtype))
    initializers: list[ir.Value] = []
    copies: list[ir.Node] = []
    made = {value for node in nodes for value in node.outputs}
    for position, node in enumerate(nodes):
        if any(attribute.type in _GRAPHS for attribute in node.attributes.values()):
            raise RefusedError(f"{node.op_type} holds a subgraph, which no proof covers")
        for read in node.inputs:
            if read is None or read in mapping or read in made:
                continue
            tensor = context.constant_tensor(read)
            assert tensor is not None, f"{read.name} is neither constant nor an input of the piece"
            mapping[read] = _constant(tensor, len(initializers))
            initializers.append(mapping[read])
        copy = ir.Node(
            node.domain,
            node.op_type,
            [None if value is None else mapping[value] for value in node.inputs],
            node.attributes.values(),
            num_outputs=len(node.outputs),
            name=f"n{position}",
        )
        for index, (old, new) in enumerate(zip(node.outputs, copy.outputs, strict=True)):
            optional = index > 0 and node.op_type not in ("Split", "TopK")  # which have all of them
            unused = optional and not old.uses() and old not in outputs and not old.is_graph_output()
            new.name = "" if unused else f"v{position}_{index}"
            new.shape, new.type = old.shape, old.type
            mapping[old] = new
        copies.append(copy)
    results: list[ir.Value] = []
    for value in outputs:
        if value not in mapping:
            tensor = context.constant_tensor(value)
            if tensor is None:
                raise RefusedError(f"{value.name!r} does not come from what was matched")
            mapping[value] = _constant(tensor, len(initializers))
            initializers.append(mapping[value])
        result = mapping[value]
        if result.producer() is None or result in results:
            position = len(copies)
            copies.append(ir.Node("", "Identity", [result], num_outputs=1, name=f"n{position}"))
            alias = copies[-1].outputs[0]
            alias.name, alias.shape, alias.type = f"v{position}_0", result.shape, result.type
            result = alias
        results.append(result)
    graph = ir.Graph(
        [mapping[value] for value in inputs],
        results,
        nodes=copies,
        initializers=initializers,
        opset_imports={**context.graph.opset_imports, "": context.opset},
        name="piece",
    )
    model = ir.Model(graph, ir_version=_IR_VERSION)
    proto, feeds, digest = _serialize(model, digests)
    return Piece(model, proto, feeds, tuple(inputs), tuple(value.name or "" for value in results), digest)


_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def embedded(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """The tensor itself, or its data in memory if a file holds it: a proto in memory cannot refer to files."""
    if not isinstance(tensor, ir.ExternalTensor):
        return tensor
    return ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=tensor.name)


def _constant(tensor: ir.TensorProtocol, index: int) -> ir.Value:
    return ir.Value(
        name=f"c{index}",
        shape=ir.Shape([int(dim) for dim in tensor.shape]),  # type: ignore[arg-type]
        type=ir.TensorType(tensor.dtype),
        const_value=tensor,
    )


def _serialize(model: ir.Model, digests: Digests) -> tuple[onnx.ModelProto, dict[str, NDArray[Any]], bytes]:
    """The model with its large constants turned into inputs, what to feed them, and the digest of it all."""
    graph = model.graph
    proto = onnx.ModelProto(ir_version=_IR_VERSION)
    for domain, version in sorted(graph.opset_imports.items()):
        proto.opset_import.add(domain=domain, version=version)
    proto.graph.name = "piece"
    feeds: dict[str, NDArray[Any]] = {}
    weights: list[bytes] = []
    proto.graph.input.extend(ir.serde.serialize_value(value) for value in graph.inputs)
    for value in graph.initializers.values():
        tensor = value.const_value
        assert tensor is not None
        if tensor.size <= _INLINE_ELEMENTS or tensor.dtype not in _FED:
            inline = ir.serde.serialize_tensor(embedded(tensor))
            inline.name = value.name or ""
            proto.graph.initializer.append(inline)
            continue
        proto.graph.input.append(ir.serde.serialize_value(value))
        feeds[value.name or ""] = tensor.numpy()
        weights.append(digests.of(tensor))
    proto.graph.node.extend(ir.serde.serialize_node(node) for node in graph)
    proto.graph.output.extend(ir.serde.serialize_value(value) for value in graph.outputs)
    digest = hashlib.blake2b(proto.SerializeToString(deterministic=True), digest_size=16)
    for weight in weights:
        digest.update(weight)
    return proto, feeds, digest.digest()


_FED = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE})
