"""FlashInternImage-T as others write it: exported as NVIDIA's script does, renamed, rescoped, simplified, other opsets.

All 30 operators are found, run and fused in every one of them.
"""

from __future__ import annotations

import io
import warnings
from collections import Counter

import numpy as np
import onnx
import onnx.version_converter
import onnx_ir as ir
import onnxruntime
import pytest

from orinport.dcnv4.node import FUSED, nodes_of
from orinport.dcnv4.portable import portable_proto
from orinport.dcnv4.projections import fuse_projections
from orinport.model import load

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(scope="module")
def network(torch):
    from orinport.dcnv4.flash_internimage import flash_internimage

    return flash_internimage("t", seed=4)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)


@pytest.fixture(scope="module")
def logits(torch, network, images):
    with torch.no_grad():
        return network(torch.from_numpy(images)).numpy()


@pytest.fixture(scope="module")
def ours(torch, network):
    from orinport.dcnv4.export import export_module

    return ir.to_proto(export_module(network, (torch.zeros(1, 3, 224, 224),)))


def with_tokens(torch, network, opset):
    """TorchScript exporter, an autograd function whose symbolic sets no output type, tokens (N, H*W, C)."""
    from orinport.dcnv4 import dcnv4, modules

    class Operator(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value, vectors, group, depth, scale):
            return dcnv4(value, vectors, group=group, group_channels=depth, offset_scale=scale)

        @staticmethod
        def symbolic(graph, value, vectors, group, depth, scale):
            ones = dict.fromkeys(("sh_i", "sw_i", "ph_i", "pw_i", "dh_i", "dw_i"), 1)
            return graph.op(
                "custom_op::DCNv4_Plugin",
                value,
                vectors,
                kh_i=3,
                kw_i=3,
                **ones,
                group_i=group,
                group_channels_i=depth,
                offscale_f=scale,
                step_i=256,
                remove_center_i=0,
            )

    def forward(self, pixels):
        n, h, w, c = pixels.shape
        x = pixels.view(n, h * w, c)
        value = self.value_proj(x).reshape(n, h, w, -1)
        vectors = self.offset_mask(x).reshape(n, h, w, -1)
        geometry = self.geometry
        output = Operator.apply(value, vectors, geometry.group, geometry.group_channels, geometry.offset_scale)
        return self.output_proj(output.view(n, h * w, -1)).view(n, h, w, c)

    buffer = io.BytesIO()
    original = modules.DCNv4._on_pixels
    modules.DCNv4._on_pixels = forward
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                network,
                (torch.zeros(1, 3, 224, 224),),
                buffer,
                dynamo=False,
                opset_version=opset,
                input_names=["input"],
                output_names=["output"],
            )
    finally:
        modules.DCNv4._on_pixels = original
    return onnx.ModelProto.FromString(buffer.getvalue())


def renamed(proto, prefix=""):
    """Other names for all nodes and inner values."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)  # tensors of a model from a proto rename those of the proto
    model = ir.from_proto(copy)
    for number, node in enumerate(model.graph):
        node.name = f"{prefix}{number}" if prefix else None
        for value in node.outputs:
            if not value.is_graph_output():
                value.name = f"{prefix}v{number}_{value.index()}"
    for number, value in enumerate(list(model.graph.initializers.values())):
        value.name = f"w{number}"
    return ir.to_proto(model)


def simplified(proto):
    """MatMul+Add as a simplifier writes them: Reshape, Gemm, Reshape, one pair for each layer."""
    model = load(proto).ir
    for node in [node for node in model.graph if node.op_type == "MatMul" and node.inputs[1].const_value is not None]:
        (use,) = node.outputs[0].uses()
        addition = use.node
        bias = next((v for v in addition.inputs if v.const_value is not None), None)
        if addition.op_type != "Add" or bias is None:
            continue
        out = addition.outputs[0]
        made = []

        def op(op_type, inputs, shape, made=made, **attributes):
            new = ir.Node("", op_type, inputs, ir.convenience.convert_attributes(attributes), num_outputs=1)
            new.outputs[0].shape = ir.Shape(shape)
            new.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
            made.append(new)
            return new.outputs[0]

        def target(numbers, model=model):
            tensor = ir.tensor(np.array(numbers, np.int64), name=f"shape{len(model.graph.initializers)}")
            value = ir.Value(name=tensor.name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
            model.graph.register_initializer(value)
            return value

        rows, inner = int(np.prod(node.inputs[0].shape[:-1])), node.inputs[0].shape[-1]
        flat = op("Reshape", [node.inputs[0], target([rows, inner])], [rows, inner])
        product = op("Gemm", [flat, node.inputs[1], bias], [rows, out.shape[-1]])
        result = op("Reshape", [product, target(list(out.shape))], out.shape)
        model.graph.insert_before(addition, made)
        out.replace_all_uses_with(result)
        model.graph.remove([addition, node], safe=True)
    return ir.to_proto(model)


def run(proto, images):
    session = onnxruntime.InferenceSession(
        portable_proto(proto).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {session.get_inputs()[0].name: images})[0]


GUISES = {
    "NVIDIA's, opset 14": lambda torch, network, ours: with_tokens(torch, network, 14),
    "NVIDIA's, opset 17": lambda torch, network, ours: with_tokens(torch, network, 17),
    "no node names": lambda torch, network, ours: renamed(ours),
    "deeper scope": lambda torch, network, ours: renamed(ours, "/backbone/levels.0/blocks.0/dcn/"),
    "simplified": lambda torch, network, ours: simplified(ours),
    "opset 21": lambda torch, network, ours: onnx.version_converter.convert_version(ours, 21),
}


@pytest.mark.parametrize("guise", GUISES)
def test_all_operators_are_found_fused_and_run(torch, network, ours, images, logits, guise):
    proto = GUISES[guise](torch, network, ours)
    assert len(nodes_of(ir.from_proto(proto))) == 30
    fusion = fuse_projections(proto)
    assert (len(fusion.log.applied), fusion.operators, fusion.log.refused) == (30, 30, [])
    assert fusion.proved
    widths = Counter(node.inputs[0].shape[-1] for node in nodes_of(fusion.model.ir))
    assert widths == {176: 4, 344: 4, 688: 18, 1376: 4}
    assert {node.op_type for node in nodes_of(fusion.model.ir)} == {FUSED}
    for each in (ir.to_proto(load(proto).ir), ir.to_proto(fusion.model.ir)):
        assert np.linalg.norm(run(each, images) - logits) / np.linalg.norm(logits) < 1e-4


def test_the_small_model_is_not_fused(torch):
    """The depthwise offset branch of S: none of 33, each with the reason."""
    from orinport.dcnv4.export import export_module
    from orinport.dcnv4.flash_internimage import flash_internimage

    network = flash_internimage("s", seed=1)
    proto = ir.to_proto(export_module(network, (torch.zeros(1, 3, 64, 64),)))
    fusion = fuse_projections(proto)
    assert (len(fusion.log.applied), fusion.operators) == (0, 33)
    assert {entry.reason.split(",")[0] for entry in fusion.log.refused} == {
        "its offset branch has a depthwise convolution in front"
    }


def test_fused_and_dynamic(torch, network, images, logits):
    """One fused file for batches of 1, 3 and 8."""
    from orinport.dcnv4.export import export_module

    proto = ir.to_proto(export_module(network, (torch.zeros(2, 3, 224, 224),), dynamic_batch=True))
    fusion = fuse_projections(proto)
    assert (len(fusion.log.applied), fusion.proved) == (30, True)
    fused = ir.to_proto(fusion.model.ir)
    for batch in (1, 3, 8):
        found = run(fused, images.repeat(batch, axis=0))
        for row in found:
            assert np.linalg.norm(row - logits[0]) / np.linalg.norm(logits) < 1e-4
