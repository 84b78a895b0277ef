"""Model-local functions: a call `f(x)` -> the nodes of the body of `f`.

Functions in a custom domain are always inlined, so that whoever reads the network sees standard operators; a
function that carries the name of a standard operator is left out, and the operator itself stays. Names made here
are those of the call, a slash, and those of the body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from orinport.errors import OrinportError
from orinport.model.structure import label, quote, schema_of, sorted_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Inliner"]

_MAX_NODES = 200_000
_MAX_DEPTH = 64
_Key = tuple[str, str, str]


class Inliner:
    """Expands calls of the model-local functions of one model."""

    def __init__(self, proto: onnx.ModelProto, opsets: Mapping[str, int]) -> None:
        self.opsets = dict(opsets)
        self.functions: dict[_Key, onnx.FunctionProto] = {}
        for function in proto.functions:
            if schema_of(function.name, function.domain, self.opsets[""]) is None or function.domain not in (
                "",
                "ai.onnx",
            ):
                self.functions[(function.domain, function.name, _overload(function))] = function
        self._used = _all_names(proto) if self.functions else set()
        self._checked: set[_Key] = set()
        self._sizes: dict[_Key, int] = {}
        self._made = 0

    def calls(self, node: onnx.NodeProto) -> bool:
        """True if `node` calls a model-local function."""
        return bool(self.functions) and _key(node) in self.functions

    def expand(self, call: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """The nodes that replace `call`, calls inside it expanded too. Raises OrinportError for recursion."""
        key = _key(call)
        self._made += self._size(key, ())
        if self._made > _MAX_NODES:
            raise OrinportError(f"Inlining the model-local functions makes more than {_MAX_NODES} nodes.")
        yield from self._expanded(call)

    def _expanded(self, call: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        key = _key(call)
        function = self.functions[key]
        self._check_opsets(key, function)
        for node in self._body(call, function):
            if self.calls(node):
                yield from self._expanded(node)
            else:
                yield node

    def _size(self, key: _Key, stack: tuple[_Key, ...]) -> int:
        """Nodes that one call of the function becomes in the end."""
        if key in stack:
            raise OrinportError(f"The model-local function {quote(key[1])} calls itself.")
        if len(stack) > _MAX_DEPTH:
            raise OrinportError(f"Model-local functions call each other more than {_MAX_DEPTH} deep.")
        if key not in self._sizes:
            inner = [_key(node) for node in self.functions[key].node]
            self._sizes[key] = 1 + sum(self._size(k, (*stack, key)) if k in self.functions else 1 for k in inner)
        return self._sizes[key]

    def _check_opsets(self, key: _Key, function: onnx.FunctionProto) -> None:
        """The body's operators have to mean the same under the network's operator sets."""
        if key in self._checked:
            return
        self._checked.add(key)
        for entry in function.opset_import:
            domain = "" if entry.domain == "ai.onnx" else entry.domain
            version = self.opsets.setdefault(domain, entry.version)
            if version == entry.version:
                continue
            for node in function.node:
                if ("" if node.domain == "ai.onnx" else node.domain) != domain:
                    continue
                own, ours = (schema_of(node.op_type, domain, v) for v in (entry.version, version))
                if own is not None and (ours is None or ours.since_version != own.since_version):
                    raise OrinportError(
                        f"The model-local function {quote(function.name)} is written for opset {entry.version} and the "
                        f"network for {version}, where {quote(node.op_type)} differs.",
                        "Export the network with one opset.",
                    )

    def _body(self, call: onnx.NodeProto, function: onnx.FunctionProto) -> list[onnx.NodeProto]:
        if len(call.input) > len(function.input) or len(call.output) > len(function.output):
            raise OrinportError(f"The {label(call)} has more inputs or outputs than its model-local function.")
        prefix = call.name or f"{call.op_type}_{next((name for name in call.output if name), '')}"
        names = dict.fromkeys(function.input, "")
        names.update(zip(function.input, call.input, strict=False))
        attributes = {a.name: a for a in function.attribute_proto} | {a.name: a for a in call.attribute}
        passed = [(i, name) for i, name in enumerate(function.output) if name in names]
        taken: dict[str, str] = {}
        for name, given in zip(function.output, call.output, strict=False):
            if given:
                taken.setdefault(name, given)
        made: set[str] = set()
        for node in function.node:
            for name in node.output:
                if name:
                    names[name] = taken.get(name) or self._fresh(f"{prefix}/{name}")
                    made.add(name)
        ordered = sorted_nodes(function.node, function.input)
        body = [self._copy(node, names, attributes, prefix, call) for node in ordered]
        repeated = [(i, name) for i, name in enumerate(function.output) if name in function.output[:i]]
        for index, name in passed + repeated:
            if index < len(call.output) and call.output[index] and names[name] != call.output[index]:
                label_of_copy = self._fresh(f"{prefix}/Identity", node_name=True)
                body.append(onnx.helper.make_node("Identity", [names[name]], [call.output[index]], label_of_copy))
        return body

    def _copy(
        self,
        node: onnx.NodeProto,
        names: Mapping[str, str],
        attributes: Mapping[str, onnx.AttributeProto],
        prefix: str,
        call: onnx.NodeProto,
    ) -> onnx.NodeProto:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = self._fresh(f"{prefix}/{node.name or node.op_type}", node_name=True)
        _rename(copy.input, names)
        _rename(copy.output, names)
        _resolve(copy, names, attributes, self)
        present = {entry.key for entry in copy.metadata_props}
        copy.metadata_props.extend(entry for entry in call.metadata_props if entry.key not in present)
        return copy

    def _fresh(self, name: str, *, node_name: bool = False) -> str:
        key = f"\0node/{name}" if node_name else name
        candidate, count = key, 1
        while candidate in self._used:
            count += 1
            candidate = f"{key}_{count}"
        self._used.add(candidate)
        return candidate[len("\0node/") :] if node_name else candidate


def _resolve(
    node: onnx.NodeProto,
    names: Mapping[str, str],
    attributes: Mapping[str, onnx.AttributeProto],
    inliner: Inliner,
) -> None:
    """Put the call's attributes in place of references to them, and rename what subgraphs take from outside."""
    kept: list[onnx.AttributeProto] = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            given = attributes.get(attribute.ref_attr_name)
            if given is None:
                continue
            value = onnx.AttributeProto()
            value.CopyFrom(given)
            value.name = attribute.name
            kept.append(value)
            continue
        for graph in _graphs(attribute):
            inner = {**names}
            own = [i.name for i in graph.input] + [t.name for t in graph.initializer]
            own += [name for n in graph.node for name in n.output if name]
            for name in own:
                inner[name] = inliner._fresh(f"{name}")
            for info in (*graph.input, *graph.output, *graph.value_info):
                info.name = inner.get(info.name, info.name)
            for tensor in graph.initializer:
                tensor.name = inner[tensor.name]
            for child in graph.node:
                _rename(child.input, inner)
                _rename(child.output, inner)
                _resolve(child, inner, attributes, inliner)
        kept.append(attribute)
    copies = []
    for attribute in kept:
        copy = onnx.AttributeProto()
        copy.CopyFrom(attribute)
        copies.append(copy)
    del node.attribute[:]
    node.attribute.extend(copies)


def _rename(field: Sequence[str], names: Mapping[str, str]) -> None:
    for index, name in enumerate(field):
        if name:
            field[index] = names.get(name, name)  # type: ignore[index]


def _graphs(attribute: onnx.AttributeProto) -> Sequence[onnx.GraphProto]:
    if attribute.type == onnx.AttributeProto.GRAPH:
        return [attribute.g]
    return attribute.graphs if attribute.type == onnx.AttributeProto.GRAPHS else []


def _overload(proto: onnx.FunctionProto | onnx.NodeProto) -> str:
    return str(getattr(proto, "overload", ""))


def _key(node: onnx.NodeProto) -> _Key:
    return node.domain, node.op_type, _overload(node)


def _all_names(proto: onnx.ModelProto) -> set[str]:
    names: set[str] = set()
    todo = [proto.graph]
    while todo:
        graph = todo.pop()
        names.update(info.name for info in graph.input)
        names.update(tensor.name for tensor in graph.initializer)
        for node in graph.node:
            names.update(node.output)
            names.add(f"\0node/{node.name}")
            for attribute in node.attribute:
                todo.extend(_graphs(attribute))
    return names
