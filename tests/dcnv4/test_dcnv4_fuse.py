"""Fusion of DCNv4's projections: found by structure in many guises, refused with reasons, undone, proved."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import onnx
import onnx.version_converter
import onnx_ir as ir
import onnxruntime
import pytest

from dcnv4.networks import FLOAT, SIZE, Guise, Writer, changed, depthwise
from orinport.dcnv4 import Geometry, reference
from orinport.dcnv4.node import DOMAIN, FUSED, PLAIN, make_node, nodes_of
from orinport.dcnv4.portable import portable_proto
from orinport.dcnv4.projections import fuse_projections
from orinport.errors import OrinportError


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


@pytest.mark.parametrize("given", ["str", "Path", "PathLike", "bytes", "bytearray", "memoryview", "proto", "ir"])
def test_a_dynamic_batch_stays_dynamic_however_the_network_is_given(given, tmp_path):
    class PathLike:
        def __fspath__(self):
            return str(path)

    proto, path = Writer(Guise(batch="batch")).network(), tmp_path / "network.onnx"
    data = proto.SerializeToString()
    path.write_bytes(data)
    sources = {
        "str": str(path),
        "Path": path,
        "PathLike": PathLike(),
        "bytes": data,
        "bytearray": bytearray(data),
        "memoryview": memoryview(data),
        "proto": proto,
        "ir": ir.from_proto(proto),
    }
    fusion = fuse_projections(sources[given])
    assert fusion.proved
    assert [str(dim) for dim in fusion.model.graph.inputs[0].shape] == ["batch", *map(str, SIZE), "32"]


@pytest.mark.parametrize("dim", [None, 0, -1])
def test_a_batch_that_is_not_named_is_dynamic(dim):
    proto = Writer(Guise(batch="batch")).network()
    first = proto.graph.input[0].type.tensor_type.shape.dim[0]
    first.ClearField("dim_param")
    if dim is not None:
        first.dim_value = dim
    fusion = fuse_projections(proto)
    assert fusion.proved
    assert str(fusion.model.graph.inputs[0].shape[0]) == "batch"


def test_height_and_width_without_names_are_not_taken_for_the_batch():
    proto = Writer(Guise(batch="batch")).network()
    for dim in proto.graph.input[0].type.tensor_type.shape.dim[:3]:
        dim.Clear()
    with pytest.raises(OrinportError, match="dynamic in more than its batch"):
        fuse_projections(proto)


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
    kept = [attribute for attribute in node.attribute if attribute.name != "group"]
    del node.attribute[:]
    node.attribute.extend(kept)
    (reason,) = refusals(proto)
    assert "lacks the attribute 'group'" in reason


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
