"""Building a network with NVIDIA's own parser and builder where there is no board, in as many parts as they take.

What the parser refuses (plugins, operators that it does not know) is left out; what remains falls into parts that can
be built by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from orinport.model.partition import group_positions
from orinport.model.save import to_proto

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.device.tensorrt_rtx import BuildCheck, Session
    from orinport.model.model import Model

__all__ = ["BuiltPart", "PartsCheck", "RefusedNode", "build_parts"]

_MOST_REFUSED = 100


@dataclass(frozen=True, slots=True)
class BuiltPart:
    """Nodes that were built together, in order; `message` says why the build failed."""

    nodes: tuple[str, ...]
    built: bool
    seconds: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class RefusedNode:
    """A node that the parser does not take, and what it says."""

    name: str
    operator: str
    message: str


@dataclass(frozen=True, slots=True)
class PartsCheck:
    """What of a network was built, and what was not taken."""

    parts: tuple[BuiltPart, ...]
    refused: tuple[RefusedNode, ...]

    @property
    def built(self) -> bool:
        """The whole network was built, in one part."""
        return not self.refused and len(self.parts) == 1 and self.parts[0].built


def build_parts(model: Model, session: Session) -> PartsCheck:
    """Build the network, without the nodes that the parser refuses."""
    proto = to_proto(model)
    cutter = _Cutter(proto)
    waiting = [cutter.everything]
    parts: list[BuiltPart] = []
    refused: dict[int, RefusedNode] = {}
    while waiting:
        group = waiting.pop(0)
        whole = len(group) == len(cutter.everything)
        piece = proto if whole else cutter.cut(group)
        if piece is None:
            parts.append(
                BuiltPart(cutter.names(group), False, 0.0, "the type or rank of a tensor at its edge is unknown")
            )
            continue
        check = session.build(piece)
        culprit = None if check.built else cutter.culprit(piece, check)
        if culprit is None or len(refused) >= _MOST_REFUSED:
            parts.append(BuiltPart(cutter.names(group), check.built, check.seconds, _reason(check)))
            continue
        position, message = culprit
        node = proto.graph.node[position]
        refused[position] = RefusedNode(node.name or node.op_type, node.op_type, message)
        waiting = [*cutter.groups([other for other in group if other != position]), *waiting]
    return PartsCheck(tuple(parts), tuple(refused[position] for position in sorted(refused)))


def _reason(check: BuildCheck) -> str:
    if check.built:
        return ""
    said = [*(error.message for error in check.errors), *check.messages]
    return " ".join(said[0].split()) if said else "TensorRT gives no reason"


class _Cutter:
    """Positions of nodes, and models that hold some of them. Constant nodes go wherever they are read."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._proto = proto
        graph = proto.graph
        self._constants = {i for i, node in enumerate(graph.node) if node.op_type == "Constant"}
        self.everything = [i for i in range(len(graph.node)) if i not in self._constants]
        self._maker = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self._infos = {info.name: info for info in (*graph.value_info, *graph.input, *graph.output)}
        self._readers: dict[str, set[int]] = {}
        for i, node in enumerate(graph.node):
            for name in self._read(node):
                self._readers.setdefault(name, set()).add(i)
        self._results = {info.name for info in graph.output}
        self._position: dict[str, int] = {}

    def _read(self, node: onnx.NodeProto) -> list[str]:
        """What the node and the graphs in it read."""
        inner = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
        return [
            name for name in (*node.input, *(n for g in inner for each in g.node for n in self._read(each))) if name
        ]

    def names(self, group: Sequence[int]) -> tuple[str, ...]:
        """The nodes' names."""
        return tuple(self._proto.graph.node[i].name or self._proto.graph.node[i].op_type for i in group)

    def groups(self, positions: Sequence[int]) -> list[list[int]]:
        """Groups that can be built by themselves, in an order in which they run."""
        chosen = set(positions)
        nodes = self._proto.graph.node
        sources = [
            sorted({self._maker[name] for name in self._read(node) if name in self._maker} - self._constants)
            for node in nodes
        ]
        colours = [None if i in self._constants else i in chosen for i in range(len(nodes))]
        return [group for group in group_positions(sources, colours) if group[0] in chosen]

    def cut(self, group: Sequence[int]) -> onnx.ModelProto | None:
        """A model of these nodes; None if a tensor at its edge has no known type and shape."""
        graph = self._proto.graph
        inside = set(group)
        made = {name for i in group for name in graph.node[i].output if name}
        read = dict.fromkeys(name for i in group for name in self._read(graph.node[i]))
        constants = sorted({self._maker[name] for name in read if self._maker.get(name) in self._constants})
        given = [
            name
            for name in read
            if name not in made and name not in self._weights and self._maker.get(name) not in self._constants
        ]
        kept = [
            name
            for i in group
            for name in graph.node[i].output
            if name and (name in self._results or self._readers.get(name, set()) - inside)
        ]
        if not all(self._is_known(name) for name in (*given, *kept)):
            return None
        cut = onnx.helper.make_graph(
            [graph.node[i] for i in (*constants, *group)],
            graph.name,
            [self._infos[name] for name in given],
            [self._infos[name] for name in kept],
            [self._weights[name] for name in read if name in self._weights],
        )
        return onnx.helper.make_model(
            cut,
            opset_imports=self._proto.opset_import,
            functions=self._proto.functions,
            ir_version=self._proto.ir_version,
        )

    def _is_known(self, name: str) -> bool:
        kind = self._infos[name].type.tensor_type if name in self._infos else None
        return kind is not None and bool(kind.elem_type) and kind.HasField("shape")

    def culprit(self, piece: onnx.ModelProto, check: BuildCheck) -> tuple[int, str] | None:
        """The node that the parser refused, and what it said; None if it blames none."""
        for error in check.errors:
            if 0 <= error.node < len(piece.graph.node):
                node = piece.graph.node[error.node]
                position = next((self._maker[name] for name in node.output if name in self._maker), None)
                if position is not None and position not in self._constants:
                    return position, " ".join(error.message.split())
        return None
