"""Child process of the test of shapes: `shapes_worker.py FIRST LAST` loads a network for each number of that range.

Each is one operator with an input of random shape, random attributes and constants, many of them absurd, whose
result goes on to a second operator. Says on stdout which number begins, and `end` at the end.
"""

from __future__ import annotations

import random
import resource
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

from orinport.errors import OrinportError
from orinport.model import load

SIZES = (0, 1, 2, 3, 4, 5, 8)
INTS = (0, 1, 2, 3, 4, -1, -2, -3, 5, 7, 16, 2**31, 2**40, 2**63 - 1, -(2**63), 100)
FLOATS = (0.0, 1.0, 2.0, 0.5, -1.0, 1e30)
WORDS = ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", "constant", "reflect", "linear", "nearest", "ij,jk->ik", "x")
ELEMENTS = {
    "tensor(float)": onnx.TensorProto.FLOAT,
    "tensor(int64)": onnx.TensorProto.INT64,
    "tensor(int32)": onnx.TensorProto.INT32,
    "tensor(bool)": onnx.TensorProto.BOOL,
    "tensor(uint8)": onnx.TensorProto.UINT8,
}
NAMES = sorted({s.name for s in onnx.defs.get_all_schemas_with_history() if not s.domain and not s.deprecated})
SHRINKING = ("AveragePool", "Conv", "ConvTranspose", "LpPool", "MaxPool", "MaxUnpool", "Pad", "Col2Im", "Resize")
"""Operators from whose sizes others are taken off; half of the networks begin with one."""
Formal = onnx.defs.OpSchema.FormalParameterOption
Kind = onnx.defs.OpSchema.AttrType


def network(seed: int) -> onnx.ModelProto | None:
    """The network of this number; None if there is no such operator in the opset that was drawn."""
    rng = random.Random(seed)
    opset = rng.randint(9, onnx.defs.onnx_opset_version())
    try:
        schema = onnx.defs.get_schema(rng.choice(NAMES if rng.random() < 0.5 else SHRINKING), opset)
    except onnx.defs.SchemaError:
        return None
    given, constants = [], []
    shape = [rng.choice(SIZES) for _ in range(rng.choice((1, 3, 4, 4, 4)))]
    inputs = []
    for index, formal in enumerate(schema.inputs):
        if formal.option == Formal.Optional and rng.random() < 0.35:
            inputs.append("")
            continue
        inputs.append(f"i{index}")
        element = ELEMENTS.get(_type(rng, formal), onnx.TensorProto.FLOAT)
        if element in (onnx.TensorProto.INT64, onnx.TensorProto.INT32) or (index and rng.random() < 0.5):
            constants.append(_constant(rng, element, len(shape), inputs[-1]))
        else:
            dims = [max(size, 1) for size in shape]
            given.append(helper.make_tensor_value_info(inputs[-1], element, dims))
    while inputs and not inputs[-1]:
        inputs.pop()
    first = onnx.NodeProto(op_type=schema.name, input=inputs, output=["o"])
    for attribute in schema.attributes.values():
        value = _attribute(rng, attribute, len(shape)) if attribute.required or rng.random() < 0.5 else None
        if value:
            first.attribute.append(helper.make_attribute(attribute.name, value))
    nodes = [first, *_second(rng, opset, constants)]
    result = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "random", given, result, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def _type(rng: random.Random, formal: onnx.defs.OpSchema.FormalParameter) -> str:
    usable = sorted(name for name in formal.types if name in ELEMENTS)
    return "tensor(float)" if "tensor(float)" in usable and rng.random() < 0.7 else rng.choice(usable or ["none"])


def _constant(rng: random.Random, element: int, rank: int, name: str) -> onnx.TensorProto:
    dims = rng.choice(([], [rank], [rank], [2 * rank], [rng.randint(0, 5)], [1, 2, 5, 5]))
    drawn = [rng.choice(INTS if rng.random() < 0.5 else INTS[:8]) for _ in range(int(np.prod(dims)))]
    dtype = helper.tensor_dtype_to_np_dtype(element)
    if dtype.kind == "f":
        array = np.array([rng.choice(FLOATS) for _ in drawn], dtype)
    elif dtype == np.int64:
        array = np.array(drawn, dtype)
    else:
        array = np.array([max(-(2**31), min(2**31 - 1, value)) for value in drawn], np.int64).astype(dtype)
    return numpy_helper.from_array(array.reshape(dims), name)


def _attribute(rng: random.Random, attribute: onnx.defs.OpSchema.Attribute, rank: int) -> object:
    if attribute.type == Kind.INT:
        return rng.choice(INTS) or None
    if attribute.type == Kind.INTS and rng.random() < 0.5:
        return [rng.choice((1, 2, 3, 5, 9)) for _ in range(2 * (rank - 2) if attribute.name == "pads" else rank - 2)]
    if attribute.type == Kind.INTS:
        return [rng.choice(INTS if rng.random() < 0.3 else INTS[:10]) for _ in range(rng.choice((1, 2, 2, 4, rank)))]
    if attribute.type == Kind.FLOAT:
        return rng.choice(FLOATS) or None
    if attribute.type == Kind.FLOATS:
        return [rng.choice(FLOATS) for _ in range(rng.randint(1, 5))]
    if attribute.type == Kind.STRING:
        return rng.choice(WORDS)
    if attribute.type == Kind.TENSOR:
        return numpy_helper.from_array(np.array([rng.choice(INTS[:4])], rng.choice((np.float32, np.int64))))
    return None


def _second(rng: random.Random, opset: int, constants: list[onnx.TensorProto]) -> list[onnx.NodeProto]:
    """What reads `o` and gives `y`."""

    def constant(name: str, *values: int) -> str:
        constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    kind = rng.choice(("Slice", "Slice", "GatherND", "Reshape", "Conv", "Flatten", "Split", "Shape"))
    if kind == "Slice" and opset >= 10:
        bounds = [constant("s", rng.choice(INTS)), constant("e", rng.choice(INTS))]
        bounds += [constant("a", rng.choice((0, 1, 2, 3, -1))), constant("p", rng.choice((1, 2, -1, 2**40)))]
        return [helper.make_node("Slice", ["o", *bounds], ["y"])]
    if kind == "GatherND" and opset >= 12:
        indices = helper.make_node("Cast", ["o"], ["indices"], to=onnx.TensorProto.INT64)
        return [indices, helper.make_node("GatherND", ["o", "indices"], ["y"], batch_dims=rng.choice((0, 1, -3)))]
    if kind == "Reshape":
        sizes = constant("s", *(rng.choice((-1, 0, 1, 2)) for _ in range(rng.randint(1, 4))))
        return [helper.make_node("Reshape", ["o", sizes], ["y"])]
    if kind == "Conv":
        constants.append(numpy_helper.from_array(np.ones((2, 2, 2, 2), np.float32), "w"))
        return [helper.make_node("Conv", ["o", "w"], ["y"], auto_pad=rng.choice(WORDS[:4]))]
    if kind == "Shape" and opset >= 10:
        sizes = helper.make_node("Shape", ["o"], ["sizes"])
        part = helper.make_node("Slice", ["sizes", constant("s", 1), constant("e", 3)], ["part"])
        return [sizes, part, helper.make_node("ConstantOfShape", ["part"], ["y"])]
    return [helper.make_node("Flatten", ["o"], ["y"], axis=rng.choice((0, 1, 2, 3)))]


def main(first: int, last: int) -> None:
    """Load the networks `first` to `last - 1`; what is neither loaded nor refused is a traceback."""
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    loaded = refused = 0
    for seed in range(first, last):
        print(seed, flush=True)
        proto = network(seed)
        if proto is None:
            continue
        try:
            load(proto)
            loaded += 1
        except OrinportError:
            refused += 1
    print("end", loaded, refused, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
