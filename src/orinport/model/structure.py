"""Structural check of an ONNX file before anything trusts it.

The proto is only read. What passes has: operator sets that this package knows; nodes whose inputs exist, whose
outputs are defined once and whose order can be made topological; attributes of the types that the operator's
schema names; tensors whose data fill their shape. Every refusal is one OrinportError that names the place.
"""

from __future__ import annotations

from functools import lru_cache
from heapq import heapify, heappop, heappush
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import onnx

from orinport.errors import OrinportError
from orinport.words import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "MAX_ELEMENTS",
    "NEWEST_OPSET",
    "OLDEST_OPSET",
    "bits_of",
    "check_bounds",
    "check_opsets",
    "check_structure",
    "label",
    "quote",
    "schema_of",
    "sorted_nodes",
]

OLDEST_OPSET = 9
"""Oldest default operator set that is read: the first whose nodes carry no implicit broadcast or `consumed_inputs`."""
NEWEST_OPSET: int = onnx.defs.onnx_opset_version()
"""Newest default operator set: that of the installed onnx package."""

_ASSUMED_OPSET = 17
_MAX_DEPTH = 24
_MAX_RANK = 32
MAX_ELEMENTS = 1 << 40
"""Elements that no tensor of a network has."""
_MAX_NAME = 1 << 16
_STANDARD = ("", "ai.onnx")

_FLOAT32 = onnx.TensorProto.FLOAT
_BITS: dict[int, int] = {
    onnx.TensorProto.FLOAT: 32,
    onnx.TensorProto.UINT8: 8,
    onnx.TensorProto.INT8: 8,
    onnx.TensorProto.UINT16: 16,
    onnx.TensorProto.INT16: 16,
    onnx.TensorProto.INT32: 32,
    onnx.TensorProto.INT64: 64,
    onnx.TensorProto.BOOL: 8,
    onnx.TensorProto.FLOAT16: 16,
    onnx.TensorProto.DOUBLE: 64,
    onnx.TensorProto.UINT32: 32,
    onnx.TensorProto.UINT64: 64,
    onnx.TensorProto.COMPLEX64: 64,
    onnx.TensorProto.COMPLEX128: 128,
    onnx.TensorProto.BFLOAT16: 16,
    onnx.TensorProto.FLOAT8E4M3FN: 8,
    onnx.TensorProto.FLOAT8E4M3FNUZ: 8,
    onnx.TensorProto.FLOAT8E5M2: 8,
    onnx.TensorProto.FLOAT8E5M2FNUZ: 8,
    onnx.TensorProto.UINT4: 4,
    onnx.TensorProto.INT4: 4,
}
for _name, _width in (("FLOAT4E2M1", 4), ("FLOAT8E8M0", 8), ("UINT2", 2), ("INT2", 2)):
    if hasattr(onnx.TensorProto, _name):
        _BITS[getattr(onnx.TensorProto, _name)] = _width


def bits_of(data_type: int) -> int:
    """Bits of one element of this `TensorProto.DataType`."""
    return _BITS[data_type]


_FIELD_OF_TYPE = {
    onnx.AttributeProto.FLOAT: "f",
    onnx.AttributeProto.INT: "i",
    onnx.AttributeProto.STRING: "s",
    onnx.AttributeProto.TENSOR: "t",
    onnx.AttributeProto.GRAPH: "g",
    onnx.AttributeProto.TYPE_PROTO: "tp",
}
_WITH_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
_SPARSE = (onnx.AttributeProto.SPARSE_TENSOR, onnx.AttributeProto.SPARSE_TENSORS)


def quote(name: str | bytes, limit: int = 80) -> str:
    """`name` in quotes on one line, shortened, for messages."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")


def label(node: onnx.NodeProto) -> str:
    """How a message names a node: operator and name, or operator and first output."""
    if node.name:
        return f"{quote(node.op_type, 40)[1:-1]} node {quote(node.name)}"
    output = next((name for name in node.output if name), "")
    return f"{quote(node.op_type, 40)[1:-1]} node with output {quote(output)}"


def check_structure(proto: onnx.ModelProto) -> bool:
    """Raise OrinportError for the first thing that makes `proto` unusable.

    Cycles and external data are left to those who sort the nodes and find the data. Returns True if the nodes of the
    main graph are seen to be sorted; False says nothing.
    """
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise OrinportError("The file holds no ONNX network.", "Is it an .onnx file?")
    versions = check_opsets(proto.opset_import, proto.graph.node)
    if not proto.graph.output:
        raise OrinportError("The network has no outputs.")
    called = {(f.domain, f.name, getattr(f, "overload", "")) for f in proto.functions}
    if len(called) != len(proto.functions):
        raise OrinportError("The file defines a model-local function twice.")
    walk = _Walk(versions, frozenset((domain, name) for domain, name, _ in called))
    for function in proto.functions:
        walk.function(function)
    return walk.graph(proto.graph, [], 0, "the network")


def check_opsets(imports: Iterable[onnx.OperatorSetIdProto], nodes: Iterable[onnx.NodeProto]) -> dict[str, int]:
    """Versions by domain, the default one always among them.

    A network without a single standard operator need not import them; it counts as opset 17, which every runtime knows.
    """
    versions: dict[str, int] = {}
    for entry in imports:
        domain = _text(entry.domain, "an operator-set domain")
        domain = "" if domain == "ai.onnx" else domain
        if versions.setdefault(domain, entry.version) != entry.version:
            raise OrinportError(f"The file imports the operator set {quote(domain)} in two versions.")
    if "" not in versions:
        if any(node.domain in _STANDARD for node in nodes):
            raise OrinportError("The file does not say which ONNX operator set it uses.")
        versions[""] = _ASSUMED_OPSET
    version = versions[""]
    if version < OLDEST_OPSET:
        raise OrinportError(
            f"The network uses ONNX opset {version}; opsets {OLDEST_OPSET} to {NEWEST_OPSET} are read.",
            "Export it again with a newer opset, or convert it with onnx.version_converter.",
        )
    if version > NEWEST_OPSET:
        raise OrinportError(
            f"The network uses ONNX opset {version}; the installed onnx package knows up to {NEWEST_OPSET}.",
            "Install a newer onnx, or export with an older opset.",
        )
    return versions


class _Demands(NamedTuple):
    """What a schema asks of a node.

    `inputs` and `outputs` bound their number, `needed` are inputs that may not be left out, `types` are those of
    the attributes, `required` the attributes that must be there.
    """

    inputs: tuple[int, int]
    needed: tuple[int, ...]
    outputs: tuple[int, int]
    types: dict[str, int]
    required: frozenset[str]


@lru_cache(maxsize=4096)
def schema_of(op_type: str, domain: str, version: int) -> onnx.defs.OpSchema | None:
    """The operator's schema at this opset version, None if onnx does not know it."""
    try:
        return onnx.defs.get_schema(op_type, version, "" if domain == "ai.onnx" else domain)
    except (onnx.defs.SchemaError, RuntimeError, UnicodeError):
        return None


@lru_cache(maxsize=4096)
def _demands(op_type: str, domain: str, version: int) -> _Demands | None:
    schema = schema_of(op_type, domain, version)
    if schema is None:
        return None
    types = {name: int(attribute.type) for name, attribute in schema.attributes.items()}
    required = frozenset(name for name, attribute in schema.attributes.items() if attribute.required)
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    needed = tuple(index for index, formal in enumerate(schema.inputs) if formal.option == single)
    return _Demands(
        (schema.min_input, schema.max_input), needed, (schema.min_output, schema.max_output), types, required
    )


def _text(name: str | bytes, what: str) -> str:
    """`name`, which has to be readable text of a bearable length."""
    if isinstance(name, bytes):
        raise OrinportError(f"{what[0].upper()}{what[1:]} is not UTF-8 text: {quote(name)}.")
    if len(name) > _MAX_NAME:
        raise OrinportError(f"{what[0].upper()}{what[1:]} is {len(name)} characters long.")
    return name


class _Walk:
    """One walk over all graphs of a model."""

    def __init__(self, versions: Mapping[str, int], local: frozenset[tuple[str, str]]) -> None:
        self.opset, self.versions = versions[""], versions
        self.local = local
        """Domain and name of the model-local functions."""
        self.nested = False
        """A subgraph was met: what it reads of the graphs around it takes no part in the order that `graph` gives."""

    def function(self, function: onnx.FunctionProto) -> None:
        where = f"the model-local function {quote(function.name)}"
        _text(function.name, "a function's name")
        _text(function.domain, "a function's domain")
        names = [_text(name, "a function's input") for name in function.input]
        if len(set(names)) != len(names) or "" in names:
            raise OrinportError(f"{where[0].upper()}{where[1:]} has unnamed or repeated inputs.")
        imports = function.opset_import
        walk = _Walk(check_opsets(imports, function.node) if imports else self.versions, self.local)
        walk.nodes(function.node, set(names), [], 0, where, function.output)

    def graph(self, graph: onnx.GraphProto, outer: list[set[str]], depth: int, where: str) -> bool:
        """True if the nodes are seen to be sorted."""
        if depth > _MAX_DEPTH:
            raise OrinportError(f"Subgraphs are nested more than {_MAX_DEPTH} deep.")
        if graph.sparse_initializer:
            raise OrinportError("Sparse initializers are not supported.", "Store the weights as dense tensors.")
        inputs: set[str] = set()
        for info in graph.input:
            name = _text(info.name, "an input's name")
            if not name or name in inputs:
                raise OrinportError(f"In {where} the input {quote(name)} is unnamed or declared twice.")
            inputs.add(name)
        initializers: set[str] = set()
        for tensor in graph.initializer:
            name = _text(tensor.name, "an initializer's name")
            if not name or name in initializers:
                raise OrinportError(f"In {where} the initializer {quote(name)} is unnamed or defined twice.")
            initializers.add(name)
            self.tensor(tensor, f"the initializer {quote(name)}")
        for info in (*graph.input, *graph.output, *graph.value_info):
            _text(info.name, "a value's name")
            _check_type(info.type, info.name)
        outputs = [info.name for info in graph.output]
        return self.nodes(graph.node, inputs | initializers, outer, depth, where, outputs)

    def nodes(
        self,
        nodes: Sequence[onnx.NodeProto],
        defined: set[str],
        outer: list[set[str]],
        depth: int,
        where: str,
        outputs: Iterable[str],
    ) -> bool:
        """True if the nodes are seen to be sorted."""
        known = set(defined)
        early: set[str] = set()
        is_sorted = True
        for node in nodes:
            given = node.input
            if not known.issuperset(given):
                early.update(name for name in given if name not in known)
            for name in node.output:
                if type(name) is not str or len(name) > _MAX_NAME:
                    _text(name, "a value's name")
                if name and name in known:
                    raise OrinportError(f"In {where} the value {quote(name)} is defined twice, again by {label(node)}.")
                is_sorted = is_sorted and name not in early
                known.add(name)
        known.discard("")
        scopes = [*outer, known]
        for node in nodes:
            self.node(node, scopes, depth)
        for name in outputs:
            if not any(name in scope for scope in scopes):
                raise OrinportError(f"The output {quote(name)} of {where} is made by no node.")
        return is_sorted and not self.nested

    def node(self, node: onnx.NodeProto, scopes: list[set[str]], depth: int) -> None:
        op_type, domain = node.op_type, node.domain
        for text in (node.name, op_type, domain):
            if type(text) is not str or len(text) > _MAX_NAME:
                _text(text, "the name of a node, an operator or a domain")
        if not op_type:
            raise OrinportError(f"The {label(node)} has no operator.")
        given = list(node.input)
        if not scopes[-1].issuperset(given):
            for name in filter(None, given):
                if not any(_text(name, "a value's name") in scope for scope in scopes):
                    raise OrinportError(f"The {label(node)} reads {quote(name)}, which nothing defines.")
        version = self.opset if domain in _STANDARD else self.versions.get(domain, 0)
        known = domain in _STANDARD or (version > 0 and (domain, op_type) not in self.local)
        demands = _demands(op_type, domain, version) if known else None
        if demands is not None:
            self._arity(node, given, demands, version)
        if node.attribute or (demands is not None and demands.required):
            self._attributes(node, demands, scopes, depth)

    @staticmethod
    def _arity(node: onnx.NodeProto, given: Sequence[str], demands: _Demands, version: int) -> None:
        (least, most), (least_out, most_out) = demands.inputs, demands.outputs
        left_out = "" in given and any(not given[i] for i in demands.needed if i < len(given))
        if left_out or not least <= len(given) <= most:
            wanted = str(least) if least == most else f"{least} to {most}" if most < 1 << 30 else f"at least {least}"
            count = sum(bool(name) for name in given)
            raise OrinportError(f"The {label(node)} has {count} inputs; opset {version} wants {wanted}.")
        if not least_out <= len(node.output) <= most_out:
            raise OrinportError(f"The {label(node)} has {len(node.output)} outputs, which its operator does not have.")

    def _attributes(
        self,
        node: onnx.NodeProto,
        demands: _Demands | None,
        scopes: list[set[str]],
        depth: int,
    ) -> None:
        seen = set()
        for attribute in node.attribute:
            name = _text(attribute.name, "an attribute's name")
            if not name or name in seen:
                raise OrinportError(f"The {label(node)} has the attribute {quote(name)} twice, or without a name.")
            seen.add(name)
            kind = attribute.type
            if kind not in _ATTRIBUTE_TYPES or kind in _SPARSE:
                raise OrinportError(
                    f"The attribute {quote(name)} of the {label(node)} has a type that is not supported."
                )
            if demands is not None and demands.types.get(name, kind) != kind:
                wanted, given = _ATTRIBUTE_TYPES[demands.types[name]], _ATTRIBUTE_TYPES[kind]
                raise OrinportError(
                    f"The attribute {quote(name)} of the {label(node)} is {given} and has to be {wanted}."
                )
            if attribute.ref_attr_name:
                continue
            if kind in _FIELD_OF_TYPE and not attribute.HasField(_FIELD_OF_TYPE[kind]):
                raise OrinportError(f"The attribute {quote(name)} of the {label(node)} has no value.")
            if demands is not None and kind == onnx.AttributeProto.INT:
                check_bounds(node, name, attribute.i)
            self._payload(attribute, node, scopes, depth)
        if demands is not None and not demands.required <= seen:
            missing = min(demands.required - seen)
            raise OrinportError(f"The {label(node)} lacks its attribute {missing!r}.")

    def _payload(
        self, attribute: onnx.AttributeProto, node: onnx.NodeProto, scopes: list[set[str]], depth: int
    ) -> None:
        kind = attribute.type
        if kind == onnx.AttributeProto.TENSOR:
            self.tensor(attribute.t, f"the attribute {quote(attribute.name)} of the {label(node)}")
        elif kind == onnx.AttributeProto.TENSORS:
            for tensor in attribute.tensors:
                self.tensor(tensor, f"the attribute {quote(attribute.name)} of the {label(node)}")
        elif kind == onnx.AttributeProto.GRAPH:
            self.nested = True
            self.graph(attribute.g, scopes, depth + 1, f"a subgraph of the {label(node)}")
        elif kind == onnx.AttributeProto.GRAPHS:
            self.nested = True
            for graph in attribute.graphs:
                self.graph(graph, scopes, depth + 1, f"a subgraph of the {label(node)}")
        elif kind == onnx.AttributeProto.STRINGS:
            if not all(_is_text(text) for text in attribute.strings):
                raise OrinportError(f"The attribute {quote(attribute.name)} of the {label(node)} is not UTF-8 text.")
        elif kind == onnx.AttributeProto.TYPE_PROTO:
            _check_type(attribute.tp, attribute.name)

    def tensor(self, tensor: onnx.TensorProto, what: str) -> None:
        """Shape within bounds, known element type, and exactly as many data as the shape says."""
        elements = _check_dims(tensor.dims, what)
        if tensor.data_type == onnx.TensorProto.STRING:
            if len(tensor.string_data) != elements:
                raise OrinportError(f"The data of {what} do not match its shape {_shown(tensor.dims)}.")
            return
        bits = _BITS.get(tensor.data_type)
        if bits is None:
            raise OrinportError(
                f"{what[0].upper()}{what[1:]} has no element type that ONNX knows ({tensor.data_type})."
            )
        if tensor.HasField("segment"):
            raise OrinportError(f"{what[0].upper()}{what[1:]} is stored in segments, which is not supported.")
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return
        if tensor.HasField("raw_data"):
            held, wanted = len(tensor.raw_data), (elements * bits + 7) // 8
        else:
            held, wanted = _typed_count(tensor, elements, bits)
        if held != wanted:
            raise OrinportError(f"The data of {what} do not match its shape {_shown(tensor.dims)}.")


def check_bounds(node: onnx.NodeProto, name: str, value: int) -> None:
    """Refuse numbers with which onnx's inference would read outside its arrays (defs/ of onnx 1.23.2)."""
    least = 0 if name == "batch_dims" else -_MAX_RANK
    if name in ("axis", "batch_dims") and not least <= value <= _MAX_RANK:
        raise OrinportError(f"The attribute {name!r} of the {label(node)} is {value}, which no tensor has.")
    if name == "num_outputs" and value < len(node.output):
        raise OrinportError(f"The {label(node)} has {len(node.output)} outputs, and its 'num_outputs' is {value}.")


_ATTRIBUTE_TYPES = {number: name for name, number in onnx.AttributeProto.AttributeType.items() if number}


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _typed_count(tensor: onnx.TensorProto, elements: int, bits: int) -> tuple[int, int]:
    """How many entries the typed field for this element type holds, and how many it should hold."""
    kind = tensor.data_type
    if kind == _FLOAT32:
        return len(tensor.float_data), elements
    if kind == onnx.TensorProto.INT64:
        return len(tensor.int64_data), elements
    if kind == onnx.TensorProto.DOUBLE:
        return len(tensor.double_data), elements
    if kind in (onnx.TensorProto.UINT32, onnx.TensorProto.UINT64):
        return len(tensor.uint64_data), elements
    if kind == onnx.TensorProto.COMPLEX64:
        return len(tensor.float_data), 2 * elements
    if kind == onnx.TensorProto.COMPLEX128:
        return len(tensor.double_data), 2 * elements
    if bits < 8:
        return len(tensor.int32_data), (elements * bits + 7) // 8
    return len(tensor.int32_data), elements


def _check_dims(dims: Sequence[int], what: str) -> int:
    """Number of elements of a concrete shape."""
    if len(dims) > _MAX_RANK:
        raise OrinportError(f"{what[0].upper()}{what[1:]} has {len(dims)} dimensions.")
    if any(d < 0 for d in dims):
        raise OrinportError(f"{what[0].upper()}{what[1:]} has the impossible shape {_shown(dims)}.")
    elements = prod(dims)
    if elements > MAX_ELEMENTS or max(dims, default=0) > MAX_ELEMENTS:
        raise OrinportError(f"{what[0].upper()}{what[1:]} has the absurd shape {_shown(dims)}.")
    return elements


def _shown(dims: Iterable[int]) -> str:
    return "x".join(str(d) for d in dims) or "()"


def _check_type(proto: onnx.TypeProto, name: str, depth: int = 0) -> None:
    if depth > 4:
        raise OrinportError(f"The type of {quote(name)} is nested too deep.")
    kind = proto.WhichOneof("value")
    if kind == "map_type":
        raise OrinportError(f"The value {quote(name)} is a map; TensorRT takes tensors only.")
    if kind in ("sequence_type", "optional_type"):
        inner = getattr(proto, kind)
        if not inner.HasField("elem_type"):
            raise OrinportError(f"The value {quote(name)} has an incomplete type.")
        _check_type(inner.elem_type, name, depth + 1)
    elif kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(proto, kind)
        if tensor.elem_type not in _BITS and tensor.elem_type not in (0, onnx.TensorProto.STRING):
            raise OrinportError(f"The value {quote(name)} has no element type that ONNX knows ({tensor.elem_type}).")
        dims = tensor.shape.dim
        if len(dims) > _MAX_RANK:
            raise OrinportError(f"The value {quote(name)} has {len(dims)} dimensions.")
        if prod(max(d.dim_value, 1) for d in dims) > MAX_ELEMENTS:
            raise OrinportError(f"The value {quote(name)} has an absurd shape {_shown(d.dim_value for d in dims)}.")
        for dim in dims:
            _text(dim.dim_param, "a dimension's name")


def sorted_nodes(nodes: Sequence[onnx.NodeProto], defined: Iterable[str] = ()) -> Sequence[onnx.NodeProto]:
    """`nodes` in topological order: as they are if that is one, else the order closest to it.

    `defined` are inputs and initializers. Raises OrinportError if the nodes form a cycle.
    """
    ready = {"", *defined}
    early: set[str] = set()
    for node in nodes:
        for name in _reads(node):
            if name not in ready:
                early.add(name)
        made = node.output
        if early and not early.isdisjoint(made):
            return _resorted(nodes)
        ready.update(made)
    return nodes


def _resorted(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    producer = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    before = [{producer[name] for name in _reads(node) if name in producer} for node in nodes]
    after: list[list[int]] = [[] for _ in nodes]
    for index, sources in enumerate(before):
        for source in sources:
            after[source].append(index)
    waiting = [len(sources) for sources in before]
    free = [index for index, count in enumerate(waiting) if count == 0]
    heapify(free)
    order: list[onnx.NodeProto] = []
    while free:
        index = heappop(free)
        order.append(nodes[index])
        for follower in after[index]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heappush(free, follower)
    if len(order) < len(nodes):
        raise OrinportError(f"The network has a cycle: {_cycle(nodes, before, waiting)}.")
    return order


def _cycle(nodes: Sequence[onnx.NodeProto], before: list[set[int]], waiting: list[int]) -> str:
    """The shortest description of one cycle: its nodes, against the flow until one comes again."""
    index = next(i for i, count in enumerate(waiting) if count)
    path: list[int] = []
    seen: set[int] = set()
    while index not in seen:
        seen.add(index)
        path.append(index)
        index = next(i for i in sorted(before[index]) if waiting[i])
    loop = path[path.index(index) :][::-1]
    return some([label(nodes[i]) for i in loop], 4)


def _reads(node: onnx.NodeProto) -> Iterable[str]:
    """Names that the node reads, those that its subgraphs take from outside included."""
    for attribute in node.attribute:
        if attribute.type in _WITH_GRAPHS:
            break
    else:
        return node.input  # type: ignore[no-any-return]
    names = set(node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs) if attribute.type else ():
            names |= _captured(graph)
    names.discard("")
    return names


def _captured(graph: onnx.GraphProto) -> set[str]:
    own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    own.update(name for node in graph.node for name in node.output)
    read = {name for node in graph.node for name in _reads(node)}
    read.update(info.name for info in graph.output)
    return read - own
