"""FlashInternImage-T from PyTorch to ONNX: nodes, shapes, all forms against PyTorch, dynamic batch, opsets."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from orinport.dcnv4.node import nodes_of
from orinport.dcnv4.portable import to_plugin, to_portable
from orinport.errors import OrinportError

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def network(torch):
    from orinport.dcnv4.flash_internimage import flash_internimage

    return flash_internimage("t", seed=3)


@pytest.fixture(scope="module")
def exported(torch, network):
    """With a dynamic batch, as bytes that every test reads anew."""
    from orinport.dcnv4.export import export_module

    return ir.to_proto(export_module(network, (torch.zeros(2, 3, 224, 224),), dynamic_batch=True)).SerializeToString()


def read(data):
    return ir.from_proto(onnx.ModelProto.FromString(data))


def run(model, images):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    data = ir.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"input": images})[0]


def images(count, size=224, seed=0):
    return np.random.default_rng(seed).standard_normal((count, 3, size, size)).astype(np.float32)


def error(got, expected):
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


def test_nodes_and_shapes(exported):
    model = read(exported)
    onnx.checker.check_model(exported)
    assert model.graph.opset_imports == {"": 17, "custom_op": 1}
    assert model.graph.inputs[0].shape == ir.Shape(["batch", 3, 224, 224])
    assert model.graph.outputs[0].shape == ir.Shape(["batch", 1000])
    counts = Counter(node.op_type for node in model.graph)
    assert counts["DCNv4_Plugin"] == 30
    assert not counts.keys() & {"Shape", "Slice", "Concat", "Gather", "Reshape", "Unsqueeze"}
    found = [(node.inputs[0].shape, node.inputs[1].shape, node.outputs[0].shape) for node in nodes_of(model)]
    expected = []
    for count, side, group, width in ((4, 56, 4, 112), (4, 28, 8, 216), (18, 14, 16, 432), (4, 7, 32, 864)):
        shape = ir.Shape(["batch", side, side, group * 16])
        expected += [(shape, ir.Shape(["batch", side, side, width]), shape)] * count
    assert found == expected
    assert all(node.outputs[0].dtype == ir.DataType.FLOAT for node in nodes_of(model))
    assert list(nodes_of(model)[0].attributes)[:3] == ["kh", "kw", "sh"]


def test_nothing_of_the_exporting_machine_is_left(exported):
    assert b"/home" not in exported
    assert b"site-packages" not in exported
    assert b"flash_internimage.py" not in exported


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_the_portable_form_equals_pytorch(torch, network, exported, batch):
    """One file for all batches."""
    model = read(exported)
    assert to_portable(model) == 30
    x = images(batch)
    with torch.no_grad():
        expected = network(torch.from_numpy(x)).numpy()
    assert error(run(model, x), expected) < 1e-4


def test_there_and_back(exported):
    model = read(exported)
    before = [(node.name, dict(node.attributes)) for node in nodes_of(model)]
    to_portable(model)
    assert to_plugin(model) == 30
    after = [dict(node.attributes) for node in nodes_of(model)]
    assert after == [attributes for _, attributes in before]
    assert Counter(node.op_type for node in model.graph) == Counter(node.op_type for node in read(exported).graph)


def test_loading_gives_all_shapes(exported):
    """Dynamic batch made concrete: a shape behind every one of the custom operators."""
    from orinport.model import load

    model = load(onnx.ModelProto.FromString(exported), shapes="input:4x3x224x224")
    assert model.outputs[0].shape == (4, 1000)
    for node in model.graph:
        assert all(value.shape is not None and value.shape.is_static() for value in node.outputs)


def test_an_operator_that_gets_lost_is_noticed(torch, network, monkeypatch):
    from orinport.dcnv4 import export

    small = torch.nn.Sequential(network.patch_embed, network.levels[0].blocks[0])
    monkeypatch.setattr(export, "custom_nodes", lambda model: [])
    with pytest.raises(OrinportError, match="lost DCNv4 operators: 0 of 1"):
        export.export_module(small, (torch.zeros(1, 3, 32, 32),))


@pytest.mark.parametrize("opset", [16, 99])
def test_opsets_out_of_reach(torch, network, opset):
    from orinport.dcnv4.export import export_module

    with pytest.raises(OrinportError, match=f"Opset {opset} cannot be written"):
        export_module(network, (torch.zeros(1, 3, 64, 64),), opset=opset)


def test_a_network_that_cannot_be_exported(torch):
    from orinport.dcnv4.export import export_module

    class Network(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(OrinportError, match="torch's exporter failed"):
        export_module(Network(), (torch.zeros(1, 3),))


@pytest.mark.parametrize("opset", [17, 18, 20, 22])
def test_opsets(torch, network, opset):
    """The first block of the network, in the operator sets that ONNX Runtime runs."""
    from orinport.dcnv4.export import export_module

    small = torch.nn.Sequential(network.patch_embed, network.levels[0].blocks[0])
    model = export_module(small, (torch.zeros(1, 3, 64, 64),), opset=opset)
    assert model.graph.opset_imports[""] == opset
    to_portable(model)
    x = images(1, 64)
    with torch.no_grad():
        expected = small(torch.from_numpy(x)).numpy()
    assert error(run(model, x), expected) < 1e-5


@pytest.mark.slow
@pytest.mark.tensorrt
@pytest.mark.parametrize("fused", [False, True])
def test_nvidias_builder_takes_the_portable_form(exported, fused):
    """Parsed and built by tensorrt-rtx, in a process of its own, without a GPU and without a plugin."""
    from orinport.dcnv4.portable import portable_proto
    from orinport.dcnv4.projections import fuse_projections
    from orinport.device.tensorrt_rtx import build_check
    from orinport.model import load

    proto = onnx.ModelProto.FromString(exported)
    if fused:
        proto = ir.to_proto(fuse_projections(proto).model.ir)
    model = load(portable_proto(proto), shapes="input:1x3x224x224")
    result = build_check(model)
    assert result.built, (result.errors, result.messages)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["s", "b", "l"])
def test_the_larger_models(torch, name):
    from orinport.dcnv4.export import export_module
    from orinport.dcnv4.flash_internimage import flash_internimage

    network = flash_internimage(name, seed=1)
    size = network.variant.size
    x = images(1, size)
    model = export_module(network, (torch.from_numpy(x),))
    assert to_portable(model) == sum(network.variant.depths)
    with torch.no_grad():
        expected = network(torch.from_numpy(x)).numpy()
    assert error(run(model, x), expected) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("opset", range(17, 29))
def test_every_opset(torch, network, opset):
    """Written and checked; run where ONNX Runtime knows the operator set."""
    from orinport.dcnv4.export import HIGHEST_OPSET, export_module

    if opset > HIGHEST_OPSET:
        pytest.skip(f"this onnx ends at opset {HIGHEST_OPSET}")
    try:
        model = export_module(network, (torch.zeros(1, 3, 224, 224),), opset=opset)
    except OrinportError as refusal:
        if "This torch writes opset" not in str(refusal):
            raise
        pytest.skip(str(refusal))
    assert model.graph.opset_imports[""] == opset
    to_portable(model)
    onnx.checker.check_model(ir.to_proto(model).SerializeToString(), full_check=True)
    x = images(1)
    with torch.no_grad():
        expected = network(torch.from_numpy(x)).numpy()
    try:
        got = run(model, x)
    except Exception as failure:
        if "opset" not in str(failure) and "NOT_IMPLEMENTED" not in str(failure):
            raise
        pytest.skip(f"ONNX Runtime does not run it: {str(failure)[:80]}")
    assert error(got, expected) < 1e-4


def test_attention_is_exported(torch):
    """FlashDeformAttn from its module to ONNX Runtime, with a dynamic batch."""
    from orinport.dcnv4 import FlashDeformAttn
    from orinport.dcnv4.export import export_module
    from orinport.dcnv4.flash_internimage import randomize

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = FlashDeformAttn(d_model=32, n_levels=2, n_heads=2, n_points=4)
            self.register_buffer("shapes", torch.tensor([[4, 4], [2, 2]]))
            self.register_buffer("starts", torch.tensor([0, 16]))

        def forward(self, query, points, rows):
            return self.attention(query, points, rows, self.shapes, self.starts)

    network = Network().eval()
    randomize(network, 1)
    inputs = torch.randn(2, 5, 32), torch.rand(2, 5, 2, 2), torch.randn(2, 20, 32)
    names = ("query", "points", "rows")
    model = export_module(network, inputs, dynamic_batch=True, input_names=names)
    assert [node.op_type for node in model.graph].count("FlashDeformAttn") == 1
    to_portable(model)
    inputs = torch.randn(3, 5, 32), torch.rand(3, 5, 2, 2), torch.randn(3, 20, 32)
    data = ir.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    found = session.run(None, dict(zip(names, (each.numpy() for each in inputs), strict=True)))[0]
    with torch.no_grad():
        assert error(found, network(*inputs).numpy()) < 1e-5


@pytest.mark.parametrize(
    ("options", "words"),
    [({"batch": "1" * 5000}, "is no batch"), ({"seed": -1}, "--seed must be"), ({"seed": 2**63}, "--seed must be")],
)
def test_numbers_that_are_none_are_refused(tmp_path, options, words):
    from orinport.cli.dcnv4 import export

    with pytest.raises(OrinportError, match=words):
        export("t", output=tmp_path / "network.onnx", **options)
    assert list(tmp_path.iterdir()) == []


def test_absurd_numbers_in_metadata_are_not_said():
    from orinport.dcnv4.facts import Facts

    assert Facts.of({"orinport.size": "9" * 5000, "orinport.seed": "-3"}) == Facts()
