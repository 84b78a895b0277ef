"""Fusion of DCNv4's projections: found by structure in many guises, refused with reasons, undone, proved."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.version_converter
import onnx_ir as ir
import onnxruntime
import pytest

from orinport.dcnv4 import Geometry, reference
from orinport.dcnv4.node import DOMAIN, FUSED, PLAIN, make_node, nodes_of
from orinport.dcnv4.portable import portable_proto
from orinport.errors import OrinportError
from orinport.dcnv4.projections import fuse_projections

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


def run(proto, *arrays):
    session = onnxruntime.InferenceSession(
        portable_proto(proto).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(zip([i.name for i in session.get_inputs()], arrays, strict=True)))[0]


def to_proto(model):
    from orinport.model.save import to_proto

    return to_proto(model)


GUISES = {
    "as exported": Guise(),
    "tokens": Guise(rank=3),
    "Gemm": Guise(rank=2, gemm=True),
    "Gemm, transposed, reshapes apart": Guise(rank=2, gemm=True, transposed=True, separate_reshapes=True),
    "no bias on the value": Guise(bias=(False, True)),
    "no bias on the offsets": Guise(rank=3, bias=(True, False)),
    "no bias at all": Guise(bias=(False, False)),
    "bias first": Guise(bias_first=True),
    "offsets first": Guise(rank=3, offsets_first=True),
    "shared biases": Guise(shared=True),
    "shared biases in Gemm": Guise(rank=2, gemm=True, shared=True),
    "no names": Guise(names="n{}_{}"),
    "deeper scope": Guise(names="/backbone/levels.0/blocks.{}/dcn/{}"),
    "dynamic batch": Guise(batch="batch"),
    "dynamic batch, tokens": Guise(batch="batch", rank=3),
    "opset 13": Guise(opset=13),
    "opset 20": Guise(opset=20, rank=3),
}


@pytest.mark.parametrize("guise", GUISES.values(), ids=GUISES.keys())
def test_every_guise_is_fused(guise):
    proto = Writer(guise).network()
    before = proto.SerializeToString()
    fusion = fuse_projections(proto)
    assert proto.SerializeToString() == before
    assert (len(fusion.log.applied), fusion.operators) == (2, 2)
    assert fusion.proved
    fused = to_proto(fusion.model)
    onnx.checker.check_model(fused)
    found = nodes_of(fusion.model.ir)
    assert [node.op_type for node in found] == [FUSED, FUSED]
    assert all(node.inputs[0].shape[-1] == 32 + 56 for node in found)
    products = [node for node in fusion.model.graph if node.op_type in ("MatMul", "Gemm")]
    assert len(products) == 2
    for count in (1, 3) if guise.batch == "batch" else (2,):
        x = np.random.default_rng(1).standard_normal((count, *SIZE, 32)).astype(np.float32)
        np.testing.assert_allclose(run(fused, x), run(proto, x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("guise", GUISES.values(), ids=GUISES.keys())
def test_there_and_back(guise):
    proto = Writer(guise).network()
    fused = fuse_projections(proto).model
    fusion = fuse_projections(fused, reverse=True)
    assert (len(fusion.log.applied), fusion.operators) == (2, 2)
    assert fusion.proved
    assert [node.op_type for node in nodes_of(fusion.model.ir)] == [PLAIN, PLAIN]
    assert sum(node.op_type in ("MatMul", "Gemm") for node in fusion.model.graph) == 4
    count = 3 if guise.batch == "batch" else 2
    x = np.random.default_rng(1).standard_normal((count, *SIZE, 32)).astype(np.float32)
    np.testing.assert_allclose(run(to_proto(fusion.model), x), run(proto, x), rtol=0, atol=1e-5)


def test_shared_constants_stay():
    """Both blocks read one bias: fusing concatenates copies and never the shared one twice."""
    proto = Writer(Guise(shared=True)).network()
    model = fuse_projections(proto).model
    biases = [node.inputs[1].const_value.numpy() for node in model.graph if node.op_type == "Add"]
    assert [bias.shape for bias in biases] == [(88,), (88,)]


def test_a_fused_network_is_left_alone():
    fused = to_proto(fuse_projections(Writer(Guise()).network()).model)
    again = fuse_projections(fused)
    assert (again.log.applied, again.log.refused, again.operators) == ([], [], 0)
    assert [node.op_type for node in nodes_of(again.model.ir)] == [FUSED, FUSED]


def test_what_it_computes():
    """One fused operator against the reference, with the projections in NumPy."""
    writer = Writer(Guise())
    x = ir.Value(name="input", shape=ir.Shape([2, *SIZE, 32]), type=FLOAT)
    y = writer.block(x, 0)
    graph = ir.Graph(
        [x],
        [y],
        nodes=writer.nodes,
        initializers=writer.constants.values(),
        opset_imports={"": 17, DOMAIN: 1},
        name="g",
    )
    fused = fuse_projections(ir.to_proto(ir.Model(graph, ir_version=8))).model
    arrays = [value.const_value.numpy().astype(np.float64) for value in writer.constants.values()]
    wv, bv, wo, bo = arrays
    images = np.random.default_rng(2).standard_normal((2, *SIZE, 32)).astype(np.float32)
    expected = np.tanh(reference(images @ wv + bv, images @ wo + bo, group=2, group_channels=16))
    np.testing.assert_allclose(run(to_proto(fused), images), expected, rtol=0, atol=2e-5)


def refusals(proto):
    fusion = fuse_projections(proto)
    assert not fusion.log.applied
    assert nodes_of(fusion.model.ir)[0].op_type == PLAIN
    return [entry.reason for entry in fusion.log.refused]


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


def other_input(writer, x):
    value, vectors = writer.linear(writer.op("Relu", [x], x.shape), 32, 0, "v"), writer.linear(x, 56, 1, "o")
    writer.nodes.append(make_node(writer.geometry, [value, vectors], "dcn"))
    return writer.nodes[-1].outputs[0]


def second_reader(writer, x):
    value, vectors = writer.linear(x, 32, 0, "v"), writer.linear(x, 56, 1, "o")
    writer.nodes.append(make_node(writer.geometry, [value, vectors], "dcn"))
    return [writer.nodes[-1].outputs[0], writer.op("Relu", [value], value.shape)]


def graph_output(writer, x):
    value, vectors = writer.linear(x, 32, 0, "v"), writer.linear(x, 56, 1, "o")
    writer.nodes.append(make_node(writer.geometry, [value, vectors], "dcn"))
    return [writer.nodes[-1].outputs[0], vectors]


def strided(writer, x):
    geometry = Geometry(2, 16, stride=(2, 2))
    value, vectors = writer.linear(x, 32, 0, "v"), writer.linear(x, 56, 1, "o")
    bounds = [writer.constant(np.array(v, np.int64)) for v in ([0, 0], SIZE, [1, 2], [2, 2])]
    small = writer.op("Slice", [vectors, *bounds], [2, 3, 3, 56])
    writer.nodes.append(make_node(geometry, [value, small], "dcn"))
    return writer.nodes[-1].outputs[0]


def activated(writer, x):
    value = writer.linear(x, 32, 0, "v")
    vectors = writer.op("Relu", [writer.linear(x, 56, 1, "o")], [2, *SIZE, 56])
    writer.nodes.append(make_node(writer.geometry, [value, vectors], "dcn"))
    return writer.nodes[-1].outputs[0]


def no_projection(writer, x):
    writer.nodes.append(make_node(writer.geometry, [x, writer.linear(x, 56, 1, "o")], "dcn"))
    return writer.nodes[-1].outputs[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (depthwise, "depthwise convolution in front"),
        (other_input, "read different tensors"),
        (second_reader, "is read by others too"),
        (graph_output, "is an output of the network"),
        (strided, "stride 2 and padding 1"),
        (activated, "comes from Relu"),
        (no_projection, "an input of the network"),
    ],
)
def test_what_is_refused_and_why(change, words):
    (reason,) = refusals(changed(change))
    assert re.search(words, reason)


def test_a_broken_node_is_refused_with_its_reason():
    proto = changed(other_input)
    node = next(node for node in proto.graph.node if node.op_type == PLAIN)
    del node.attribute[0]
    (reason,) = refusals(proto)
    assert "lacks the attribute 'kh'" in reason


def test_slices_where_there_is_no_linear_layer():
    """A fused operator on a tensor from elsewhere is taken apart by slices."""
    geometry = Geometry(2, 16)
    x = ir.Value(name="input", shape=ir.Shape([2, *SIZE, 88]), type=FLOAT)
    node = make_node(geometry, [x], "dcn")
    graph = ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 17, DOMAIN: 1}, name="g")
    fusion = fuse_projections(ir.to_proto(ir.Model(graph, ir_version=8)), reverse=True)
    assert fusion.proved
    assert Counter(node.op_type for node in fusion.model.graph) == {"Slice": 2, PLAIN: 1}


def linear_layers(columns, *, bias=True, gemm=False):
    """Parallel layers on one tensor, each an output."""
    writer = Writer(Guise(bias=(bias, bias), gemm=gemm, rank=2))
    x = ir.Value(name="input", shape=ir.Shape([7, 32] if gemm else [2, 7, 32]), type=FLOAT)
    r = writer.op("Relu", [x], x.shape)
    outputs = [writer.op("Relu", [writer.linear(r, c, 0, f"l{c}")], [*x.shape[:-1], c]) for c in columns]
    graph = ir.Graph(
        [x], outputs, nodes=writer.nodes, initializers=writer.constants.values(), opset_imports={"": 17}, name="g"
    )
    return ir.to_proto(ir.Model(graph, ir_version=8))


@pytest.mark.parametrize("gemm", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_parallel_layers_in_general(bias, gemm):
    """Query, key and value: one product and a Split; and back."""
    from orinport.model import load
    from orinport.rewrites.driver import rewrite_model

    model = load(linear_layers((32, 16, 8), bias=bias, gemm=gemm))
    fused, log = rewrite_model(model, select=["fuse-parallel-linear"])
    assert len(log.applied) == 1
    assert not log.rolled_back
    counts = Counter(node.op_type for node in fused.graph)
    assert (counts["MatMul"], counts["Gemm"], counts["Split"]) == (1, 0, 1)
    apart, log = rewrite_model(fused, select=["split-parallel-linear"])
    assert len(log.applied) == 1
    counts = Counter(node.op_type for node in apart.graph)
    assert (counts["MatMul"], counts["Split"]) == (3, 0)


def test_on_request_only():
    """Rewriting at large leaves parallel layers alone, and comes to an end."""
    from orinport.model import load
    from orinport.rewrites.driver import rewrite_model

    _, log = rewrite_model(load(linear_layers((32, 16))), ignore=["matmul", "gemm"])
    assert not {"fuse-parallel-linear", "split-parallel-linear"} & set(log.counts())


def test_fewer_than_two_layers_are_no_parallel_layers():
    from orinport.model import load
    from orinport.rewrites.driver import rewrite_model

    _, log = rewrite_model(load(linear_layers((32,))), select=["fuse-parallel-linear"])
    assert not log.applied


def test_unreadable():
    with pytest.raises(OrinportError):
        fuse_projections(b"nothing")


def test_rewrites_and_operators_speak_of_the_same_nodes():
    from orinport.rewrites.catalogue import _dcnv4

    assert (_dcnv4.DOMAIN, _dcnv4.PLAIN, _dcnv4.FUSED) == (DOMAIN, PLAIN, FUSED)
