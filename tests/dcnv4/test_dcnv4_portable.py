"""The ONNX nodes and their portable form: values in ONNX Runtime, shapes, both directions, refusals."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orinport.dcnv4 import Geometry, flash_deform_attn_reference, reference
from orinport.dcnv4.node import (
    ATTENTION,
    DOMAIN,
    FUSED,
    PLAIN,
    is_node,
    make_node,
    node_attributes,
    node_geometry,
    nodes_of,
)
from orinport.dcnv4.portable import to_plugin, to_portable
from orinport.errors import OrinportError

GEOMETRIES = [
    Geometry(4, 16),
    Geometry(4, 16, offset_scale=0.5),
    Geometry(8, 16, offset_scale=2.0),
    Geometry(2, 8, remove_center=True, offset_scale=0.3),
    Geometry(2, 8, kernel=(5, 5), padding=(2, 2)),
    Geometry(3, 4, kernel=(3, 5), padding=(1, 2), offset_scale=1.37),
    Geometry(2, 3, kernel=(2, 2), padding=(0, 1), remove_center=True),
    Geometry(5, 3, stride=(2, 3), dilation=(2, 1), padding=(2, 1)),
    Geometry(2, 4, kernel=(4, 3), dilation=(1, 2), padding=(3, 2)),
    Geometry(1, 8, kernel=(1, 1), padding=(0, 0)),
]


def keywords(geometry):
    names = ("kernel", "stride", "padding", "dilation", "group", "group_channels", "offset_scale", "remove_center")
    return {name: getattr(geometry, name) for name in names}


def name_of(geometry):
    return "-".join(str(number) for number in node_attributes(geometry).values())


def one_node(geometry, size=(9, 7), *, fused=False, batch=2, extra=0, dtype=ir.DataType.FLOAT, opset=17):
    """A network that is one DCNv4 node."""
    height, width = size
    p = geometry.width + extra
    kind = ir.TensorType(dtype)
    if fused:
        shapes = {"both": [batch, height, width, geometry.channels + p]}
    else:
        rows, columns = geometry.output_size(height, width)
        shapes = {"value": [batch, height, width, geometry.channels], "vectors": [batch, rows, columns, p]}
    inputs = [ir.Value(name=name, shape=ir.Shape(shape), type=kind) for name, shape in shapes.items()]
    node = make_node(geometry, inputs, "dcn")
    node.outputs[0].name = "output"
    graph = ir.Graph(inputs, node.outputs, nodes=[node], name="g", opset_imports={"": opset, DOMAIN: 1})
    return ir.Model(graph, ir_version=10)


def run(model, *arrays):
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, arrays, strict=True)))[0]


def random_inputs(geometry, batch=2, size=(9, 7), extra=0, dtype=np.float32, seed=0):
    generator = np.random.default_rng(seed)
    rows, columns = geometry.output_size(*size)
    value = generator.standard_normal((batch, *size, geometry.channels)).astype(dtype)
    vectors = generator.standard_normal((batch, rows, columns, geometry.width + extra)).astype(dtype)
    return value, vectors


def error(got, expected):
    return np.linalg.norm(got.astype(np.float64) - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("opset", [16, 17, 20, 21])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=name_of)
def test_the_portable_form_is_the_operator(geometry, opset):
    model = one_node(geometry, extra=8, opset=opset)
    assert to_portable(model) == 1
    assert not nodes_of(model)
    assert DOMAIN not in model.graph.opset_imports
    value, vectors = random_inputs(geometry, extra=8)
    vectors[..., geometry.used_width :] = np.nan
    assert error(run(model, value, vectors), reference(value, vectors, **keywords(geometry))) < 1e-5


@pytest.mark.parametrize("geometry", [g for g in GEOMETRIES if g.keeps_size], ids=name_of)
def test_the_fused_node(geometry):
    model = one_node(geometry, fused=True)
    to_portable(model)
    value, vectors = random_inputs(geometry)
    got = run(model, np.concatenate([value, vectors], axis=-1))
    assert error(got, reference(value, vectors, **keywords(geometry))) < 1e-5


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_dynamic_batch(batch):
    geometry = Geometry(4, 16)
    model = one_node(geometry, batch="batch")
    to_portable(model)
    assert model.graph.outputs[0].shape == ir.Shape(["batch", 9, 7, 64])
    value, vectors = random_inputs(geometry, batch)
    assert error(run(model, value, vectors), reference(value, vectors, **keywords(geometry))) < 1e-5


def test_half_is_computed_in_single():
    """Rounded once: half coordinates would be off by up to 1/16 pixel at this size."""
    geometry = Geometry(1, 8)
    model = one_node(geometry, (6, 130), dtype=ir.DataType.FLOAT16)
    to_portable(model)
    value, vectors = random_inputs(geometry, size=(6, 130), dtype=np.float16)
    got = run(model, value, vectors)
    assert got.dtype == np.float16
    assert error(got, reference(value, vectors, **keywords(geometry))) < 3e-4


def test_double_stays_double():
    geometry = Geometry(2, 8)
    model = one_node(geometry, dtype=ir.DataType.DOUBLE, opset=20)
    to_portable(model)
    value, vectors = random_inputs(geometry, dtype=np.float64)
    assert error(run(model, value, vectors), reference(value, vectors, **keywords(geometry))) < 1e-13


@pytest.mark.parametrize("where", [-1.0, -0.5, 0.0, 4.5, 5.0, 5.5, 6.0, 1e6, 1e38, np.inf, -np.inf])
@pytest.mark.parametrize("axis", [0, 1])
def test_borders(where, axis):
    size = (6, 1) if axis else (1, 6)
    geometry = Geometry(1, 8, kernel=(1, 1), padding=(0, 0))
    model = one_node(geometry, size, batch=1)
    to_portable(model)
    value = np.arange(1.0, 7.0, dtype=np.float32).reshape(1, *size, 1).repeat(8, axis=3)
    vectors = np.zeros((1, *size, 8), np.float32)
    vectors[..., axis] = (where - np.arange(6.0)).reshape(size)
    vectors[..., 2] = 1
    expected = reference(value, vectors, **keywords(geometry))
    np.testing.assert_allclose(run(model, value, vectors), expected, rtol=0, atol=5e-6)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT, ir.DataType.FLOAT16])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=name_of)
def test_there_and_back(geometry, dtype, fused):
    """The node comes back with equal attributes, or with others of the same grid for a 1x1 kernel."""
    if fused and not geometry.keeps_size:
        pytest.skip("not a fused operator")
    model = one_node(geometry, fused=fused, dtype=dtype, extra=8)
    before = [value.shape for value in (*model.graph.inputs, *model.graph.outputs)]
    to_portable(model)
    for number, value in enumerate(v for node in model.graph for v in node.outputs):
        if not value.is_graph_output():
            value.name = f"renamed{number}"
    for number, node in enumerate(model.graph):
        node.name = f"n{number}"
        node.metadata_props.clear()
    assert to_plugin(model) == 1
    (node,) = model.graph
    assert node.op_type == (FUSED if fused else PLAIN)
    assert keywords(node_geometry(node)) == {
        **keywords(geometry),
        "offset_scale": float(np.float32(geometry.offset_scale)),
    }
    assert [value.shape for value in (*model.graph.inputs, *model.graph.outputs)] == before
    assert not model.graph.initializers
    assert model.graph.opset_imports[DOMAIN] == 1


@st.composite
def problems(draw):
    """Any geometry that fits into a small picture."""
    small = st.integers(1, 4)
    kernel = draw(st.tuples(small, small))
    geometry = Geometry(
        draw(st.integers(1, 3)),
        draw(st.integers(1, 5)),
        kernel,
        draw(st.tuples(small, small)),
        draw(st.tuples(st.integers(0, 3), st.integers(0, 3))),
        draw(st.tuples(small, small)),
        draw(st.sampled_from([1.0, 0.5, 2.0, -1.0, 0.3, 1.37, 0.0])),
        draw(st.booleans()) and kernel != (1, 1),
    )
    size = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    try:
        geometry.output_size(*size)
    except OrinportError:
        assume(False)
    return geometry, size


@given(problems(), st.integers(0, 2**32 - 1))
def test_any_geometry_there_and_back(problem, seed):
    """The portable form computes the operator; the node that comes back computes the same, bit by bit."""
    geometry, size = problem
    model = one_node(geometry, size)
    to_portable(model)
    value, vectors = random_inputs(geometry, size=size, seed=seed)
    expected = run(model, value, vectors)
    wanted = reference(value, vectors, **keywords(node_geometry(next(iter(one_node(geometry, size).graph)))))
    assert np.abs(expected - wanted).max() <= 2e-5 * max(1.0, np.abs(wanted).max())
    if to_plugin(model) == 0:
        assert geometry.offset_scale == 0
        return
    (node,) = model.graph
    assert (node_geometry(node).taps, node_geometry(node).group) == (geometry.taps, geometry.group)
    to_portable(model)
    np.testing.assert_array_equal(run(model, value, vectors), expected)


def test_another_grid_sample_is_left_alone():
    model = one_node(Geometry(2, 8))
    to_portable(model)
    base = next(v for v in model.graph.initializers.values() if v.name.endswith("base"))
    array = base.const_value.numpy().copy()
    array[3, 1] += 1e-3
    base.const_value = ir.tensor(array, name=base.name)
    count = len(model.graph)
    assert to_plugin(model) == 0
    assert len(model.graph) == count


def test_attributes_are_the_plugins_fields():
    node = next(iter(one_node(Geometry(4, 16, offset_scale=0.5, remove_center=True)).graph))
    assert (node.domain, node.op_type) == ("custom_op", "DCNv4_Plugin")
    proto = ir.to_proto(node)
    assert [(a.name, a.type) for a in proto.attribute] == [
        (name, onnx.AttributeProto.FLOAT if name == "offscale" else onnx.AttributeProto.INT)
        for name in (
            *("kh", "kw", "sh", "sw", "ph", "pw", "dh", "dw", "group", "group_channels"),
            *("offscale", "step", "remove_center"),
        )
    ]
    values = {a.name: a.f if a.name == "offscale" else a.i for a in proto.attribute}
    assert values["step"] == 256
    assert values["offscale"] == 0.5
    assert values["remove_center"] == 1
    assert is_node(node)


@pytest.mark.parametrize("missing", ["group", "group_channels"])
def test_a_missing_attribute_is_named(missing):
    node = next(iter(one_node(Geometry(4, 16)).graph))
    del node.attributes[missing]
    with pytest.raises(OrinportError, match=f"DCNv4_Plugin 'dcn' lacks the attribute '{missing}'"):
        node_geometry(node)


def test_attributes_left_out_have_the_plugins_defaults():
    node = next(iter(one_node(Geometry(4, 16)).graph))
    for name in [name for name in node.attributes if not name.startswith("group")]:
        del node.attributes[name]
    assert node_geometry(node) == Geometry(4, 16)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("kh", 3.0, "of type FLOAT, not INT"),
        ("kh", 0, "kernel must be a whole number of at least 1"),
        ("remove_center", 2, "neither 0 nor 1"),
        ("group", 3, "value has 64 channels, but 3 groups of 16 need 48"),
        ("sh", 2, r"needs \(2, 5, 7, P\)"),
    ],
)
def test_wrong_attributes_and_shapes_are_refused(name, value, words):
    model = one_node(Geometry(4, 16))
    node = next(iter(model.graph))
    node.attributes[name] = ir.convenience.convert_attributes({name: value})[0]
    with pytest.raises(OrinportError, match=words):
        to_portable(model)
    assert nodes_of(model) == [node]


def test_what_the_portable_form_needs():
    with pytest.raises(OrinportError, match="needs opset 16, and the network has 13"):
        to_portable(one_node(Geometry(4, 16), opset=13))
    model = one_node(Geometry(4, 16))
    model.graph.inputs[0].shape = ir.Shape([1, "h", 7, 64])
    with pytest.raises(OrinportError, match="more than its batch unknown"):
        to_portable(model)
    model.graph.inputs[0].shape = None
    with pytest.raises(OrinportError, match="shape is not known"):
        to_portable(model)


def test_shape_inference_everywhere():
    """orinport.model knows the operators, also behind a reshape that hides the shapes from ONNX."""
    from orinport.model import load

    geometry = Geometry(4, 16)
    model = one_node(geometry, fused=True)
    model.graph.outputs[0].shape = None
    reader = ir.Node("", "Relu", [model.graph.outputs[0]], num_outputs=1, name="relu")
    reader.outputs[0].name = "last"
    model.graph.append(reader)
    model.graph.outputs[:] = reader.outputs
    loaded = load(ir.to_proto(model))
    assert loaded.outputs[0].shape == (2, 9, 7, 64)


@pytest.mark.parametrize("change", ["rank", "height", "attribute"])
def test_shape_inference_does_not_guess(change):
    from orinport.dcnv4.infer import infer

    node = next(iter(one_node(Geometry(4, 16)).graph))
    assert infer(node) == [(ir.DataType.FLOAT, [2, 9, 7, 64])]
    if change == "rank":
        node.inputs[0].shape = ir.Shape([9, 7, 64])
    elif change == "height":
        node.inputs[0].shape = ir.Shape([1, None, 7, 64])
    else:
        del node.attributes["group"]
    assert infer(node) == [None]


def attention_node(levels, points, *, batch=2, queries=5, group=3, channels=8, dtype=ir.DataType.FLOAT, gap=0):
    """A network that is one FlashDeformAttn node, and its constants."""
    starts, rows = [], 0
    for height, width in levels:
        starts.append(rows)
        rows += height * width + gap
    kind = ir.TensorType(dtype)
    value = ir.Value(name="value", shape=ir.Shape([batch, rows, group, channels]), type=kind)
    vectors = ir.Value(name="v", shape=ir.Shape([batch, queries, group, 3 * len(levels) * points]), type=kind)
    constants = []
    for name, array in (("shapes", levels), ("starts", starts)):
        tensor = ir.tensor(np.array(array, np.int64), name=name)
        constants.append(ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor))
    attributes = ir.convenience.convert_attributes({"im2col_step": 64, "K": points})
    node = ir.Node(DOMAIN, ATTENTION, [value, *constants, vectors], attributes, num_outputs=1, name="attention")
    node.outputs[0].name = "output"
    node.outputs[0].type, node.outputs[0].shape = kind, ir.Shape([batch, queries, group * channels])
    graph = ir.Graph(
        [value, vectors],
        node.outputs,
        nodes=[node],
        initializers=constants,
        opset_imports={"": 17, DOMAIN: 1},
        name="g",
    )
    return ir.Model(graph, ir_version=10), starts, rows


@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT, ir.DataType.FLOAT16])
@pytest.mark.parametrize("batch", [2, "batch"])
@pytest.mark.parametrize(
    ("levels", "points", "gap"), [([(5, 7)], 8, 0), ([(6, 6), (3, 4), (1, 1)], 4, 0), ([(4, 4), (2, 2)], 3, 5)]
)
def test_attention(levels, points, gap, batch, dtype):
    model, starts, rows = attention_node(levels, points, batch=batch, dtype=dtype, gap=gap)
    assert to_portable(model) == 1
    generator = np.random.default_rng(0)
    value = generator.standard_normal((3 if batch == "batch" else 2, rows, 3, 8)).astype(dtype.numpy())
    vectors = generator.uniform(-0.3, 1.3, (len(value), 5, 3, 3 * len(levels) * points)).astype(dtype.numpy())
    vectors[..., 2 * len(levels) * points :] *= 4
    expected = flash_deform_attn_reference(value, levels, starts, vectors, points=points)
    assert error(run(model, value, vectors), expected) < (1e-5 if dtype == ir.DataType.FLOAT else 4e-4)


@pytest.mark.parametrize("change", ["points", "starts", "run time", "rank"])
def test_attention_that_cannot_be(change):
    model, _, _ = attention_node([(4, 4), (2, 2)], 4)
    node = next(iter(model.graph))
    if change == "points":
        node.attributes["K"] = ir.AttrInt64("K", 3)
    elif change == "starts":
        tensor = ir.tensor(np.array([0, 17], np.int64), name="starts")
        node.inputs[2].const_value = tensor
    elif change == "run time":
        node.inputs[1].const_value = None
    else:
        node.inputs[0].shape = ir.Shape([20, 3, 8])
    with pytest.raises(OrinportError, match="The FlashDeformAttn 'attention'"):
        to_portable(model)


def test_attention_shapes():
    from orinport.model import load

    model, _, _ = attention_node([(4, 4), (2, 2)], 4)
    model.graph.outputs[0].shape = None
    assert load(ir.to_proto(model)).outputs[0].shape == (2, 5, 24)
