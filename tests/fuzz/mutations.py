"""Damaged ONNX files: `case(seed)` makes one, the same each time.

Two thirds of the cases are damaged as protos (dimensions, types, names, cycles, nesting, attributes, external
data), a quarter as bytes (flips, cuts, splices, repeats), and some as both.
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper

from builders import (
    HOSTILE_NAMES,
    LIGHT,
    light_path,
    network,
    node,
    operator_models,
    small_cnn,
    thin_network,
)

if TYPE_CHECKING:
    from collections.abc import Callable

HUGE = (-(2**63), -(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
NAMES = (*HOSTILE_NAMES, "", "x", "y", "\0", "n" * 100_000, "é" * 300)


@lru_cache(maxsize=1)
def corpus() -> tuple[bytes, ...]:
    """Valid files of all kinds; the large families count once for every few small ones."""
    protos = [small_cnn(), small_cnn(batch="batch"), thin_network(60), branches(), looping(), calling(), quantised()]
    whole = [proto.SerializeToString() for proto in protos] * 20
    whole += [light_path(name).read_bytes() for name in LIGHT if name not in ("densenet121", "inception_v2")] * 3
    whole += [proto.SerializeToString() for _, proto in sorted(operator_models().items()) if _usable(proto)]
    return tuple(data for data in whole if len(data) < 200_000)


def _usable(proto: onnx.ModelProto) -> bool:
    """Static tensors for inputs and a supported opset: a network that would be taken if nothing were damaged."""
    opset = max((entry.version for entry in proto.opset_import if not entry.domain), default=0)
    kinds = {info.type.WhichOneof("value") for info in proto.graph.input}
    dims = [dim.dim_value for info in proto.graph.input for dim in info.type.tensor_type.shape.dim]
    return opset >= 9 and kinds <= {"tensor_type"} and all(dim > 0 for dim in dims)


def branches() -> onnx.ModelProto:
    """An If whose condition is constant, and one whose condition is not."""
    then = helper.make_graph([node("Relu", ["x"], "t")], "then", [], [onnx.ValueInfoProto(name="t")])
    other = helper.make_graph([node("Neg", ["x"], "e")], "else", [], [onnx.ValueInfoProto(name="e")])
    nodes = [
        node("If", ["yes"], "a", then_branch=then, else_branch=other),
        node("ReduceSum", ["a"], "s", keepdims=0),
        node("Greater", ["s", "zero"], "c"),
        node("If", ["c"], "y", then_branch=then, else_branch=other),
    ]
    constants = {"yes": np.array(True), "zero": np.array(0, np.float32)}
    return network(nodes, {"x": (1, 4, 8, 8)}, ["y"], constants)


def looping() -> onnx.ModelProto:
    """A Loop that carries one value."""
    body = helper.make_graph(
        [node("Add", ["carried", "carried"], "next"), node("Identity", ["go"], "on")],
        "body",
        [
            helper.make_tensor_value_info("i", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, []),
            onnx.ValueInfoProto(name="carried"),
        ],
        [onnx.ValueInfoProto(name="on"), onnx.ValueInfoProto(name="next")],
    )
    call = node("Loop", ["trips", "", "x"], "y", body=body)
    return network([call], {"x": (1, 4, 8, 8)}, ["y"], {"trips": np.array(3)})


def calling() -> onnx.ModelProto:
    """Two calls of a model-local function with an attribute."""
    leaky = node("LeakyRelu", ["v"], "w")
    reference = leaky.attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "alpha", "slope", onnx.AttributeProto.FLOAT
    function = helper.make_function(
        "local", "Twice", ["v"], ["r"], [leaky, node("Add", ["w", "w"], "r")], [helper.make_opsetid("", 17)], ["slope"]
    )
    nodes = [
        node("Twice", ["x"], "a", domain="local", slope=0.1),
        node("Twice", ["a"], "y", domain="local", slope=0.2),
    ]
    return network(nodes, {"x": (1, 4, 8, 8)}, ["y"], domains={"local": 1}, functions=[function])


def quantised() -> onnx.ModelProto:
    """Q and DQ around a convolution."""
    rng = np.random.default_rng(0)
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], "d"),
        node("DequantizeLinear", ["wq", "ws", "wz"], "w", axis=0),
        node("Conv", ["d", "w"], "y", kernel_shape=[1, 1]),
    ]
    constants = {
        "s": np.float32(0.02),
        "z": np.int8(0),
        "wq": rng.integers(-127, 127, (4, 4, 1, 1)).astype(np.int8),
        "ws": np.full(4, 0.01, np.float32),
        "wz": np.zeros(4, np.int8),
    }
    return network(nodes, {"x": (1, 4, 8, 8)}, ["y"], constants)


def case(seed: int) -> bytes:
    """The damaged file number `seed`."""
    rng = random.Random(seed)
    data = rng.choice(corpus())
    style = rng.random()
    if style < 0.75:
        data = _damage_fields(rng, data)
    if style >= 0.65:
        for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
            data = rng.choice(_BYTES)(rng, data)
    return data


def _flip(rng: random.Random, data: bytes) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _overwrite(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + rng.randbytes(rng.randrange(1, 9)) + data[start + 4 :]


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _remove(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.randrange(1, 64) :]


def _repeat(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    end = start + rng.randrange(1, 256)
    return data[:end] + data[start:end] + data[end:]


def _splice(rng: random.Random, data: bytes) -> bytes:
    other = rng.choice(corpus())
    start = rng.randrange(len(other))
    place = rng.randrange(len(data) + 1)
    return data[:place] + other[start : start + rng.randrange(1, 512)] + data[place:]


_BYTES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flip,
    _flip,
    _overwrite,
    _cut,
    _remove,
    _repeat,
    _splice,
)


def _damage_fields(rng: random.Random, data: bytes) -> bytes:
    proto = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        rng.choice(_FIELDS)(rng, proto)
    return proto.SerializeToString()


def _dimension(rng: random.Random, proto: onnx.ModelProto) -> None:
    infos = [*proto.graph.input, *proto.graph.output, *proto.graph.value_info]
    dims = [dim for info in infos for dim in info.type.tensor_type.shape.dim]
    if dims:
        rng.choice(dims).dim_value = rng.choice(HUGE)


def _extra_dimensions(rng: random.Random, proto: onnx.ModelProto) -> None:
    if proto.graph.input:
        shape = rng.choice(proto.graph.input).type.tensor_type.shape
        for _ in range(rng.choice((1, 5, 40))):
            shape.dim.add().dim_value = rng.choice((1, 2, 7, 2**20))


def _fewer_dimensions(rng: random.Random, proto: onnx.ModelProto) -> None:
    if proto.graph.input:
        dims = rng.choice(proto.graph.input).type.tensor_type.shape.dim
        if dims:
            del dims[rng.randrange(len(dims))]


def _element_type(rng: random.Random, proto: onnx.ModelProto) -> None:
    infos = [*proto.graph.input, *proto.graph.output]
    if infos:
        rng.choice(infos).type.tensor_type.elem_type = rng.choice((0, 2, 6, 7, 8, 9, 10, 14, 16, 23, 99))


def _tensor_dims(rng: random.Random, proto: onnx.ModelProto) -> None:
    if proto.graph.initializer:
        tensor = rng.choice(proto.graph.initializer)
        if tensor.dims and rng.random() < 0.7:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(HUGE)
        else:
            tensor.dims.append(rng.choice(HUGE))


def _tensor_values(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Integer constants (shapes, axes, pads, repeats) with other values, their number unchanged."""
    tensors = [t for t in proto.graph.initializer if t.data_type == onnx.TensorProto.INT64]
    tensors += [a.t for n in proto.graph.node for a in n.attribute if a.t.data_type == onnx.TensorProto.INT64]
    if tensors:
        tensor = rng.choice(tensors)
        values = _int64_values(tensor)
        if values.size:
            values[rng.randrange(values.size)] = rng.choice(HUGE)
            tensor.ClearField("int64_data")
            tensor.raw_data = values.tobytes()


def _int64_values(tensor: onnx.TensorProto) -> np.ndarray:
    raw = tensor.raw_data
    return np.frombuffer(raw[: len(raw) // 8 * 8], np.int64).copy() if raw else np.array(tensor.int64_data, np.int64)


def _feed_constant(rng: random.Random, proto: onnx.ModelProto) -> None:
    """An input becomes a constant of awkward integers: shape arithmetic goes another way."""
    integers = [i for i in proto.graph.input if i.type.tensor_type.elem_type == onnx.TensorProto.INT64]
    if integers:
        info = rng.choice(integers)
        dims = [d.dim_value for d in info.type.tensor_type.shape.dim]
        if all(0 <= d < 100 for d in dims) and np.prod(dims, dtype=np.int64) < 10_000:
            values = [rng.choice((*HUGE, 1, 2, 3, 4)) for _ in range(int(np.prod(dims, dtype=np.int64)))]
            proto.graph.initializer.append(
                onnx.numpy_helper.from_array(np.array(values, np.int64).reshape(dims), info.name)
            )


def _tensor_type(rng: random.Random, proto: onnx.ModelProto) -> None:
    if proto.graph.initializer:
        rng.choice(proto.graph.initializer).data_type = rng.choice((0, 1, 6, 7, 8, 9, 10, 14, 16, 21, 99))


def _external(rng: random.Random, proto: onnx.ModelProto) -> None:
    if not proto.graph.initializer:
        return
    tensor = rng.choice(proto.graph.initializer)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    keys = {
        "location": rng.choice(("/etc/passwd", "../../etc/passwd", "missing.bin", ".", "", "\0", "a" * 5000, "#0")),
        "offset": rng.choice(("0", "-1", "x", str(2**64), "9" * 50)),
        "length": rng.choice(("4", "-4", "", str(2**63))),
    }
    for key in rng.sample(sorted(keys), rng.randrange(1, 4)):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, keys[key]


def _any_node(rng: random.Random, proto: onnx.ModelProto) -> onnx.NodeProto | None:
    nodes = list(proto.graph.node)
    for item in proto.graph.node:
        nodes.extend(n for a in item.attribute for n in a.g.node)
    for function in proto.functions:
        nodes.extend(function.node)
    return rng.choice(nodes) if nodes else None


def _node_input(rng: random.Random, proto: onnx.ModelProto) -> None:
    target = _any_node(rng, proto)
    if target is None or not target.input:
        return
    names = [name for n in proto.graph.node for name in n.output] + [i.name for i in proto.graph.input]
    names += [t.name for t in proto.graph.initializer] + list(NAMES)
    target.input[rng.randrange(len(target.input))] = rng.choice(names)


def _node_arity(rng: random.Random, proto: onnx.ModelProto) -> None:
    target = _any_node(rng, proto)
    if target is None:
        return
    field = rng.choice((target.input, target.output))
    if field and rng.random() < 0.5:
        del field[rng.randrange(len(field))]
    else:
        field.append(rng.choice((*NAMES, *(field or ["z"]))))


def _node_output(rng: random.Random, proto: onnx.ModelProto) -> None:
    target = _any_node(rng, proto)
    if target is not None and target.output:
        target.output[rng.randrange(len(target.output))] = rng.choice(NAMES)


def _operator(rng: random.Random, proto: onnx.ModelProto) -> None:
    target = _any_node(rng, proto)
    if target is not None:
        target.op_type = rng.choice(_operators())
        if rng.random() < 0.2:
            target.domain = rng.choice(("", "ai.onnx", "ai.onnx.ml", "custom_op", *NAMES))


@lru_cache(maxsize=1)
def _operators() -> list[str]:
    return [*sorted({schema.name for schema in onnx.defs.get_all_schemas()}), "DCNv4_Plugin", "", "No", NAMES[0]]


def _names(rng: random.Random, proto: onnx.ModelProto) -> None:
    target = _any_node(rng, proto)
    if target is not None:
        target.name = rng.choice(NAMES)
    proto.graph.name = rng.choice(NAMES)


def _rename_value(rng: random.Random, proto: onnx.ModelProto) -> None:
    """One value gets a hostile name everywhere: the network stays valid."""
    names = [i.name for i in proto.graph.input] + [o for n in proto.graph.node for o in n.output if o]
    if not names:
        return
    old, new = rng.choice(names), rng.choice(HOSTILE_NAMES)
    for field in [f for n in proto.graph.node for f in (n.input, n.output)]:
        for index, name in enumerate(field):
            if name == old:
                field[index] = new
    for info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        if info.name == old:
            info.name = new


def _attribute(rng: random.Random, proto: onnx.ModelProto) -> None:
    target = _any_node(rng, proto)
    if target is None or not target.attribute:
        return
    attribute = rng.choice(target.attribute)
    action = rng.randrange(7)
    if action == 0:
        attribute.type = rng.choice(range(15))
    elif action == 1 and attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(HUGE)
    elif action == 2:
        attribute.ints.extend([rng.choice(HUGE)] * rng.choice((1, 3, 50)))
    elif action == 3:
        attribute.i = rng.choice(HUGE)
    elif action == 4:
        attribute.f = rng.choice((float("nan"), float("inf"), -1e38, 0.0))
    elif action == 5:
        attribute.s = rng.choice((b"\xff\xfe", b"", b"SAME_UPPER", b"cubic", b"n" * 10_000))
    elif attribute.ints:
        del attribute.ints[rng.randrange(len(attribute.ints))]


def _drop_attribute(rng: random.Random, proto: onnx.ModelProto) -> None:
    target = _any_node(rng, proto)
    if target is not None and target.attribute:
        del target.attribute[rng.randrange(len(target.attribute))]


def _shuffle(rng: random.Random, proto: onnx.ModelProto) -> None:
    nodes = list(proto.graph.node)
    rng.shuffle(nodes)
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del proto.graph.node[:]
    proto.graph.node.extend(copies)


def _cycle(rng: random.Random, proto: onnx.ModelProto) -> None:
    nodes = [n for n in proto.graph.node if n.input and n.output]
    if nodes:
        first, second = rng.choice(nodes), rng.choice(nodes)
        first.input[0] = second.output[0]


def _duplicate(rng: random.Random, proto: onnx.ModelProto) -> None:
    field = rng.choice((proto.graph.node, proto.graph.initializer, proto.graph.input, proto.graph.output))
    if field:
        field.add().CopyFrom(rng.choice(list(field)))


def _remove_item(rng: random.Random, proto: onnx.ModelProto) -> None:
    field = rng.choice((proto.graph.node, proto.graph.initializer, proto.graph.input, proto.graph.output))
    if field:
        del field[rng.randrange(len(field))]


def _opset(rng: random.Random, proto: onnx.ModelProto) -> None:
    if proto.opset_import:
        rng.choice(proto.opset_import).version = rng.choice((*HUGE, 9, 11, 13, 17, 18, 21, 22, 99))
    if rng.random() < 0.3:
        proto.ir_version = rng.choice(HUGE)


def _nesting(rng: random.Random, proto: onnx.ModelProto) -> None:
    inner = helper.make_graph([node("Identity", ["zero"], "i0")], "g", [], [onnx.ValueInfoProto(name="i0")])
    for depth in range(rng.choice((3, 20, 30))):
        name = f"i{depth + 1}"
        call = node("If", ["flag"], name, then_branch=inner, else_branch=inner if depth < 4 else _tiny())
        inner = helper.make_graph([call], "g", [], [onnx.ValueInfoProto(name=name)])
    proto.graph.node.append(node("If", ["flag"], "deep", then_branch=inner, else_branch=inner))
    proto.graph.input.append(helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, []))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(4, np.float32), "zero"))


def _tiny() -> onnx.GraphProto:
    return helper.make_graph([node("Identity", ["zero"], "o")], "g", [], [onnx.ValueInfoProto(name="o")])


def _big_constant(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Expressions of constants that would be enormous if anybody computed them."""
    size = rng.choice((2**20, 2**31, 2**40, 2**62))
    which = rng.randrange(4)
    if which == 0:
        nodes, constants = [node("ConstantOfShape", ["s"], "big")], {"s": np.array([size], np.int64)}
    elif which == 1:
        nodes, constants = (
            [node("Range", ["a", "s", "b"], "big")],
            {
                "a": np.array(0),
                "s": np.array(size),
                "b": np.array(1),
            },
        )
    elif which == 2:
        nodes, constants = [node("Expand", ["a", "s"], "big")], {"a": np.zeros(1), "s": np.array([size, 2, 1])}
    else:
        nodes = [node("Tile", ["a", "s"], "t"), node("MatMul", ["t", "u"], "big")]
        constants = {"a": np.zeros((1, 1), np.float32), "s": np.array([size, 1]), "u": np.zeros((1, 4096), np.float32)}
    proto.graph.node.extend([*nodes, node("ReduceSum", ["big"], "sum_of_big")])
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    if rng.random() < 0.5:
        proto.graph.output.append(onnx.ValueInfoProto(name="sum_of_big"))


def _functions(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Functions that call themselves, or each other so often that inlining them explodes."""
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    depth, fan = rng.choice(((1, 1), (4, 3), (30, 2)))
    for level in range(depth):
        callee = f"F{level + 1}" if level + 1 < depth else rng.choice(("F0", "Relu"))
        domain = "" if callee == "Relu" else "f"
        steps = [node(callee, [f"v{i}"], f"v{i + 1}", domain=domain) for i in range(fan)]
        proto.functions.append(helper.make_function("f", f"F{level}", ["v0"], [f"v{fan}"], steps, opset))
    if proto.graph.input:
        proto.graph.node.append(node("F0", [proto.graph.input[0].name], "of_function", domain="f"))
        proto.graph.output.append(onnx.ValueInfoProto(name="of_function"))


def _empty(rng: random.Random, proto: onnx.ModelProto) -> None:
    rng.choice(
        (
            lambda: proto.ClearField("graph"),
            lambda: proto.ClearField("opset_import"),
            lambda: proto.graph.ClearField("output"),
            lambda: proto.graph.ClearField("node"),
            lambda: proto.graph.ClearField("input"),
        )
    )()


_FIELDS: tuple[Callable[[random.Random, onnx.ModelProto], None], ...] = (
    _dimension,
    _extra_dimensions,
    _fewer_dimensions,
    _element_type,
    _tensor_dims,
    _tensor_values,
    _tensor_values,
    _feed_constant,
    _tensor_type,
    _external,
    _node_input,
    _node_input,
    _node_arity,
    _node_output,
    _operator,
    _operator,
    _names,
    _rename_value,
    _attribute,
    _attribute,
    _attribute,
    _drop_attribute,
    _shuffle,
    _cycle,
    _duplicate,
    _remove_item,
    _opset,
    _nesting,
    _big_constant,
    _functions,
    _empty,
)

__all__ = ["branches", "calling", "case", "corpus", "looping", "quantised"]
