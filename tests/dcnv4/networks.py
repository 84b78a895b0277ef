"""Networks with DCNv4 operators in many guises, written by hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from orinport.dcnv4 import Geometry
from orinport.dcnv4.node import DOMAIN, make_node

SIZE = (5, 6)
FLOAT = ir.TensorType(ir.DataType.FLOAT)


@dataclass
class Guise:
    """How a block is written. Two blocks of it make the network."""

    rank: int = 4
    gemm: bool = False
    transposed: bool = False
    bias: tuple[bool, bool] = (True, True)
    bias_first: bool = False
    offsets_first: bool = False
    shared: bool = False
    separate_reshapes: bool = False
    flatten: bool = False
    batch: int | str = 2
    names: str = "/levels.0/blocks.{}/dcn/{}"
    opset: int = 17


class Writer:
    """Writes the network of a guise."""

    def __init__(self, guise, group=2, depth=16):
        self.guise = guise
        self.geometry = Geometry(group, depth)
        self.random = np.random.default_rng(0)
        self.nodes, self.constants, self.count = [], {}, 0
        self.shared = {}

    def op(self, op_type, inputs, shape, name="", **attributes):
        self.count += 1
        node = ir.Node("", op_type, inputs, ir.convenience.convert_attributes(attributes), num_outputs=1)
        node.name = name or f"{op_type}_{self.count}"
        node.outputs[0].name = f"{node.name}_out"
        node.outputs[0].shape, node.outputs[0].type = ir.Shape(shape), FLOAT
        self.nodes.append(node)
        return node.outputs[0]

    def constant(self, array):
        self.count += 1
        tensor = ir.tensor(array, name=f"c{self.count}")
        value = ir.Value(
            name=tensor.name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor
        )
        self.constants[value.name] = value
        return value

    def weight(self, *shape, key=None):
        array = self.random.standard_normal(shape).astype(np.float32) * (0.2 if len(shape) > 1 else 0.5)
        if key is None or not self.guise.shared:
            return self.constant(array)
        if key not in self.shared:
            self.shared[key] = self.constant(array)
        return self.shared[key]

    def reshape(self, value, *dims):
        numbers = self.constant(np.array([dim if isinstance(dim, int) else -1 for dim in dims], np.int64))
        return self.op("Reshape", [value, numbers], dims)

    def linear(self, x, columns, which, name):
        guise, channels = self.guise, self.geometry.channels
        biased = guise.bias[which]
        dims = list(x.shape)[:-1]
        if guise.gemm:
            weight = self.weight(*((columns, channels) if guise.transposed else (channels, columns)))
            bias = [self.weight(columns, key=f"b{columns}")] if biased else []
            return self.op("Gemm", [x, weight, *bias], [*dims, columns], name, transB=int(guise.transposed))
        y = self.op("MatMul", [x, self.weight(channels, columns)], [*dims, columns], name)
        if not biased:
            return y
        bias = self.weight(columns, key=f"b{columns}")
        return self.op("Add", [bias, y] if guise.bias_first else [y, bias], [*dims, columns])

    def block(self, x, number):
        guise, g = self.guise, self.geometry
        batch, (height, width) = guise.batch, SIZE
        names = [guise.names.format(number, part) for part in ("value_proj", "offset_mask", "DCNv4")]
        flat = {
            2: [batch * height * width if isinstance(batch, int) else None, g.channels],
            3: [batch, height * width, g.channels],
        }
        sources = [x, x]
        if guise.rank < 4:
            sources = [self.reshape(x, *flat[guise.rank])] * 2
            if guise.separate_reshapes:
                sources = [sources[0], self.reshape(x, *flat[guise.rank])]
        made = [None, None]
        for which in (1, 0) if guise.offsets_first else (0, 1):
            columns = (g.channels, g.width)[which]
            y = self.linear(sources[which], columns, which, names[which])
            if guise.rank < 4:
                y = self.reshape(y, batch, height, width, columns)
            made[which] = y
        node = make_node(g, made, names[2])
        self.nodes.append(node)
        return self.op("Tanh", [node.outputs[0]], node.outputs[0].shape)

    def network(self):
        dims = [self.guise.batch, *SIZE, self.geometry.channels]
        x = ir.Value(name="input", shape=ir.Shape(dims), type=FLOAT)
        y = self.block(self.block(self.op("Relu", [x], dims), 0), 1)
        imports = {"": self.guise.opset, DOMAIN: 1}
        graph = ir.Graph(
            [x], [y], nodes=self.nodes, initializers=self.constants.values(), opset_imports=imports, name="g"
        )
        return ir.to_proto(ir.Model(graph, ir_version=8))


def changed(change, guise=None):
    """The network of one block after `change(writer, x) -> value`."""
    writer = Writer(guise or Guise())
    x = ir.Value(name="input", shape=ir.Shape([2, *SIZE, 32]), type=FLOAT)
    outputs = change(writer, x)
    outputs = outputs if isinstance(outputs, list) else [outputs]
    graph = ir.Graph(
        [x],
        outputs,
        nodes=writer.nodes,
        initializers=writer.constants.values(),
        opset_imports={"": 17, DOMAIN: 1},
        name="g",
    )
    return ir.to_proto(ir.Model(graph, ir_version=8))


def depthwise(writer, x):
    turned = writer.op("Transpose", [x], [2, 32, *SIZE], perm=[0, 3, 1, 2])
    conv = writer.op("Conv", [turned, writer.weight(32, 1, 3, 3)], [2, 32, *SIZE], group=32, pads=[1, 1, 1, 1])
    back = writer.op("Transpose", [conv], [2, *SIZE, 32], perm=[0, 2, 3, 1])
    value, vectors = writer.linear(x, 32, 0, "v"), writer.linear(back, 56, 1, "o")
    writer.nodes.append(make_node(writer.geometry, [value, vectors], "dcn"))
    return writer.nodes[-1].outputs[0]
