"""`load`: what is accepted, what is refused and how, and what the model looks like afterwards."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from builders import (
    HOSTILE_NAMES,
    LIGHT,
    light_path,
    network,
    node,
    operator_models,
    random_feeds,
    run_onnx,
    single,
    small_cnn,
    thin_network,
    value,
)
from orinport.errors import OrinportError
from orinport.model import load, to_proto
from orinport.model.layer import DType, Tensor
from orinport.model.model import display_name
from orinport.model.structure import NEWEST_OPSET, OLDEST_OPSET

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def refusal(source: Any, **options: Any) -> str:
    """The one line that `load` answers with."""
    with pytest.raises(OrinportError) as caught:
        load(source, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 1000
    return text


# --- sources ------------------------------------------------------------------------------------------------------


def test_every_kind_of_source_gives_the_same_model(tmp_path: Path) -> None:
    proto = small_cnn()
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    sources = [
        path,
        str(path),
        path.read_bytes(),
        bytearray(path.read_bytes()),
        proto,
        ir.from_proto(proto),
        load(proto),
    ]
    feeds = random_feeds(proto)
    expected = run_onnx(proto, feeds)
    for source in sources:
        model = load(source)
        assert model.inputs == (Tensor("x", (1, 3, 16, 16), DType.FP32),)
        assert model.outputs == (Tensor("y", (1, 10), DType.FP32),)
        assert [n.op_type for n in model.graph] == [n.op_type for n in proto.graph.node]
        for got, want in zip(run_onnx(to_proto(model), feeds), expected, strict=True):
            np.testing.assert_array_equal(got, want)


def test_name_and_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.onnx").write_bytes(small_cnn().SerializeToString())
    monkeypatch.chdir(tmp_path)
    model = load("net.onnx")
    assert (model.name, model.path) == ("net.onnx", tmp_path / "net.onnx")
    assert (load(small_cnn()).name, load(small_cnn()).path) == ("network", None)
    nameless = small_cnn()
    nameless.graph.name = ""
    assert load(nameless).name == "model"


def test_sources_are_never_changed() -> None:
    proto = network(
        [
            node("Shape", ["x"], "s"),
            node("Reshape", ["x", "s"], "r"),
            node("Constant", [], "c", value_float=2.0),
            node("Mul", ["r", "c"], "y"),
        ],
        {"x": ("batch", 4)},
        ["y"],
    )
    before = proto.SerializeToString(deterministic=True)
    model = ir.from_proto(proto)
    load(proto, shapes={"x": (2, 4)})
    load(model, shapes={"x": (2, 4)})
    assert proto.SerializeToString(deterministic=True) == before
    assert [n.op_type for n in model.graph] == ["Shape", "Reshape", "Constant", "Mul"]
    assert model.graph.inputs[0].shape == ir.Shape(["batch", 4])


def test_weights_are_shared_not_copied() -> None:
    weights = np.zeros((64, 64), np.float32)
    proto = single("MatMul", {"x": (1, 64)}, {"w": weights})
    source = ir.from_proto(proto)
    tensor = ir.Tensor(weights, name="w")
    source.graph.initializers["w"].const_value = tensor
    assert load(source).graph.initializers["w"].const_value is tensor


@pytest.mark.parametrize("source", [None, 3, object(), ["a"]])
def test_what_is_no_source(source: Any) -> None:
    assert "not " + type(source).__name__ in refusal(source)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "missing.onnx")
    assert "no plain file" in refusal(tmp_path)
    assert "cannot be read" in refusal("a\0b")
    os.mkfifo(tmp_path / "pipe")
    assert "no plain file" in refusal(tmp_path / "pipe")
    (tmp_path / "empty.onnx").touch()
    assert "is empty" in refusal(tmp_path / "empty.onnx")
    (tmp_path / "text.onnx").write_text("this is no network")
    assert "no ONNX network" in refusal(tmp_path / "text.onnx")
    assert "no ONNX network" in refusal(small_cnn().SerializeToString()[:-40])
    assert "no ONNX network" in refusal(onnx.ModelProto())


def test_a_file_beyond_the_limit_of_protobuf(tmp_path: Path) -> None:
    path = tmp_path / "huge.onnx"
    path.touch()
    os.truncate(path, 3 << 30)
    text = refusal(path)
    assert "2 GiB" in text
    assert "external data" in text


def test_garbage_collection_is_left_as_it_was() -> None:
    frozen = gc.get_freeze_count()  # Python 3.12 starts with some
    assert gc.isenabled()
    load(small_cnn())
    assert gc.isenabled()
    gc.disable()
    try:
        load(small_cnn())
        refusal(b"x")
        assert not gc.isenabled()
    finally:
        gc.enable()
    refusal(b"x")
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
    gc.freeze()
    try:
        load(small_cnn())
        assert gc.get_freeze_count() > frozen
    finally:
        gc.unfreeze()


# --- operator sets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", range(OLDEST_OPSET, NEWEST_OPSET + 1))
def test_every_opset_from_9_to_the_newest(opset: int) -> None:
    model = load(single("Relu", {"x": (1, 4)}, opset=opset))
    assert model.opset == opset
    assert model.outputs[0].shape == (1, 4)


@pytest.mark.parametrize("opset", [-1, 0, 1, OLDEST_OPSET - 1, NEWEST_OPSET + 1, 2**62])
def test_other_opsets_are_refused_by_number(opset: int) -> None:
    assert f"opset {opset};" in refusal(single("Relu", {"x": (1, 4)}, opset=opset))


def test_missing_and_contradicting_opsets() -> None:
    proto = single("Relu", {"x": (1, 4)})
    proto.opset_import.add(domain="ai.onnx", version=13)
    assert "two versions" in refusal(proto)
    del proto.opset_import[:]
    assert "does not say which" in refusal(proto)
    proto.opset_import.add(domain="ai.onnx", version=13)
    assert load(proto).opset == 13


def test_a_network_without_standard_operators_needs_no_opset() -> None:
    proto = single("Strange", {"x": (1, 4)}, domain="somewhere")
    del proto.opset_import[0]
    assert load(proto).opset == 17


def test_domains_that_are_not_imported_are_added() -> None:
    proto = single("Strange", {"x": (1, 4)}, domain="somewhere")
    del proto.opset_import[1]
    model = load(proto)
    assert model.ir.graph.opset_imports == {"": 17, "somewhere": 1}
    assert model.outputs == (Tensor("y", None, DType.UNKNOWN),)


# --- structure ----------------------------------------------------------------------------------------------------


def change(edit: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    """The small network after `edit`."""
    proto = small_cnn()
    edit(proto)
    return proto


def with_attribute(name: str, **attribute: Any) -> onnx.ModelProto:
    """The small network with another attribute on its first convolution."""

    def edit(proto: onnx.ModelProto) -> None:
        kept = [a for a in proto.graph.node[0].attribute if a.name != name]
        kept.append(onnx.AttributeProto(name=name, **attribute))
        copies = [onnx.AttributeProto.FromString(a.SerializeToString()) for a in kept]
        del proto.graph.node[0].attribute[:]
        proto.graph.node[0].attribute.extend(copies)

    return change(edit)


BROKEN: dict[str, tuple[onnx.ModelProto, str]] = {
    "missing input": (change(lambda p: p.graph.node[1].input.__setitem__(0, "nowhere")), "reads 'nowhere'"),
    "missing output": (change(lambda p: setattr(p.graph.output[0], "name", "nothing")), "output 'nothing'"),
    "no outputs": (change(lambda p: p.graph.ClearField("output")), "no outputs"),
    "defined twice": (change(lambda p: p.graph.node[1].output.__setitem__(0, "c1")), "'c1' is defined twice"),
    "shadows a constant": (change(lambda p: p.graph.node[1].output.__setitem__(0, "w1")), "'w1' is defined twice"),
    "constant twice": (change(lambda p: p.graph.initializer.append(p.graph.initializer[0])), "'w1' is unnamed or"),
    "input twice": (change(lambda p: p.graph.input.append(p.graph.input[0])), "'x' is unnamed or declared twice"),
    "no operator": (change(lambda p: setattr(p.graph.node[0], "op_type", "")), "has no operator"),
    "too few inputs": (change(lambda p: p.graph.node[0].input.__delitem__(slice(1, 3))), "has 1 inputs"),
    "too many inputs": (change(lambda p: p.graph.node[1].input.append("c1")), "has 2 inputs; opset 17 wants 1"),
    "too many outputs": (change(lambda p: p.graph.node[1].output.append("more")), "has 2 outputs"),
    "lacks an attribute": (change(lambda p: p.graph.node[2].attribute.__delitem__(0)), "lacks its attribute"),
    "wrong attribute type": (with_attribute("pads", type=1, f=1.0), "'pads' of the Conv node 'Conv_c1' is FLOAT"),
    "unknown attribute type": (with_attribute("extra", type=0), "has a type that is not supported"),
    "empty attribute": (with_attribute("auto_pad", type=3), "has no value"),
    "negative size": (change(lambda p: p.graph.initializer[0].dims.__setitem__(0, -8)), "impossible shape -8x3x3x3"),
    "absurd size": (change(lambda p: p.graph.initializer[0].dims.__setitem__(0, 2**60)), "absurd shape"),
    "absurd rank": (change(lambda p: p.graph.initializer[0].dims.extend([1] * 40)), "has 44 dimensions"),
    "data do not match": (change(lambda p: p.graph.initializer[0].dims.__setitem__(0, 9)), "do not match its shape 9x"),
    "no element type": (change(lambda p: setattr(p.graph.initializer[0], "data_type", 0)), "no element type"),
    "unknown element type": (change(lambda p: setattr(p.graph.initializer[0], "data_type", 99)), "(99)"),
    "sparse weights": (change(lambda p: p.graph.sparse_initializer.add()), "Sparse initializers"),
    "long name": (change(lambda p: setattr(p.graph.node[0], "name", "n" * 70_000)), "70000 characters"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_networks_are_refused_in_one_line(name: str) -> None:
    proto, expected = BROKEN[name]
    assert expected in refusal(proto)
    assert expected in refusal(proto.SerializeToString())


def test_operators_of_other_domains_are_held_to_their_schema() -> None:
    """onnx's inference reads a left-out input of this one through a null pointer."""
    encoder = node("LabelEncoder", [""], "y", domain="ai.onnx.ml", keys_strings=["a"], values_int64s=[1])
    text = refusal(network([encoder], {"x": (5,)}, ["y"], domains={"ai.onnx.ml": 4}))
    assert "LabelEncoder node 'LabelEncoder_y' has 0 inputs; opset 4 wants 1" in text
    unknown = node("Foo", [""], "y", domain="ai.onnx.ml")
    load(network([unknown, node("Relu", ["x"], "z")], {"x": (5,)}, ["z"], domains={"ai.onnx.ml": 4}))


def test_cycles_are_shown() -> None:
    proto = network(
        [node("Add", ["x", "c"], "a"), node("Relu", ["a"], "b"), node("Neg", ["b"], "c"), node("Abs", ["c"], "y")],
        {"x": (1, 4)},
        ["y"],
    )
    text = refusal(proto)
    assert "cycle" in text
    for name in ("Add_a", "Relu_b", "Neg_c"):
        assert name in text
    assert "Abs_y" not in text
    itself = network([node("Add", ["x", "y"], "y")], {"x": (1, 4)}, ["y"])
    assert "cycle: Add node 'Add_y'" in refusal(itself)


def test_nodes_out_of_order_are_sorted() -> None:
    proto = small_cnn()
    expected = [n.name for n in proto.graph.node]
    shuffled = [onnx.NodeProto.FromString(n.SerializeToString()) for n in reversed(proto.graph.node)]
    del proto.graph.node[:]
    proto.graph.node.extend(shuffled)
    model = load(proto)
    assert [n.name for n in model.graph] == expected
    assert model.outputs[0].shape == (1, 10)


def test_text_that_is_not_utf8() -> None:
    data = small_cnn().SerializeToString()
    assert "not UTF-8" in refusal(data.replace(b"Conv_c1", b"Conv_\xff\xfe"))
    assert load(data.replace(b"tests", b"\xff\xfests")).ir.producer_name == "\\xff\\xfests"
    assert load(data.replace(b"network", b"\xff\xfetwork")).name == "\\xff\\xfetwork"


def test_unnamed_and_equally_named_nodes() -> None:
    proto = small_cnn()
    for item in proto.graph.node:
        item.name = ""
    model = load(proto)
    assert [display_name(n) for n in model.graph][:2] == ["Conv:c1", "Relu:r1"]
    for item in proto.graph.node:
        item.name = "same"
    assert {display_name(n) for n in load(proto).graph} == {"same"}


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_kept_as_they_are(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    proto = network(
        [node("Relu", [name], f"{name}1", name=name), node("Add", [f"{name}1", f"{name}w"], f"{name}2", name=name)],
        {name: ("n", 4)},
        [f"{name}2"],
        {f"{name}w": np.ones(4, np.float32)},
        name=name,
    )
    model = load(proto.SerializeToString(), shapes={name: (2, 4)})
    assert model.inputs[0] == Tensor(name, (2, 4), DType.FP32)
    assert model.outputs[0] == Tensor(f"{name}2", (2, 4), DType.FP32)
    assert [n.name for n in model.graph] == [name, name]
    assert list(tmp_path.iterdir()) == []
    text = refusal(proto)
    assert text.isprintable()


# --- initializers and constants -----------------------------------------------------------------------------------


def test_constants_that_are_inputs_too_are_no_inputs() -> None:
    proto = small_cnn()
    proto.ir_version = 3
    proto.graph.input.extend(value(t.name, list(t.dims)) for t in proto.graph.initializer)
    model = load(proto)
    assert [t.name for t in model.inputs] == ["x"]
    assert model.ir.ir_version == 4
    assert model.is_constant(model.graph.initializers["w1"])
    onnx.checker.check_model(to_proto(model))


def test_constant_nodes_become_initializers() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    given = [
        node("Constant", [], "t", value=onnx.numpy_helper.from_array(array)),
        node("Constant", [], "f", value_float=2.5),
        node("Constant", [], "fs", value_floats=[1.0, 2.0]),
        node("Constant", [], "i", value_int=7),
        node("Constant", [], "is", value_ints=[1, 2, 3]),
        node("Constant", [], "s", value_string="text"),
    ]
    proto = network([*given, node("Mul", ["x", "f"], "y")], {"x": (1, 3)}, ["y", "t", "fs", "i", "is", "s"])
    model = load(proto)
    assert [n.op_type for n in model.graph] == ["Mul"]
    found = {name: model.constant(v) for name, v in model.graph.initializers.items()}
    np.testing.assert_array_equal(found["t"], array)
    assert found["f"] == np.float32(2.5)
    assert found["f"].shape == ()  # type: ignore[union-attr]
    assert found["i"].dtype == np.int64  # type: ignore[union-attr]
    np.testing.assert_array_equal(found["is"], [1, 2, 3])
    assert model.graph.initializers["s"].dtype == ir.DataType.STRING


def test_reading_constants() -> None:
    model = load(small_cnn())
    weights = model.graph.initializers["w1"]
    array = model.constant(weights)
    assert array is not None
    assert array.shape == (8, 3, 3, 3)
    assert model.constant(weights) is array
    assert not array.flags.writeable
    assert model.constant(weights, limit=10) is None
    assert model.constant(None) is None
    assert model.constant(model.graph.inputs[0]) is None
    assert not model.is_constant(None)


@pytest.mark.parametrize(
    "kind",
    ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT8", "UINT8", "INT4", "INT16", "INT32", "INT64", "BOOL", "UINT64"],
)
def test_every_element_type_of_a_constant(kind: str) -> None:
    number = onnx.TensorProto.DataType.Value(kind)
    tensor = helper.make_tensor("w", number, (3,), [0, 1, 1])
    proto = network([node("Identity", ["w"], "i"), node("Shape", ["x"], "y")], {"x": (2,)}, ["y", "i"])
    proto.graph.initializer.append(tensor)
    model = load(proto)
    array = model.constant(model.graph.initializers["w"])
    assert array is not None
    assert array.astype(np.float64).tolist() == [0, 1, 1]
    tensor.int32_data.append(1)
    tensor.float_data.append(1)
    tensor.double_data.append(1)
    tensor.int64_data.append(1)
    tensor.uint64_data.append(1)
    proto.graph.initializer[0].CopyFrom(tensor)
    assert "do not match" in refusal(proto)


# --- inputs -------------------------------------------------------------------------------------------------------


def test_inputs_that_are_no_tensors() -> None:
    proto = single("Relu", {"x": (1, 4)})
    element = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [1])
    proto.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(element))
    assert "'x' is no tensor" in refusal(proto)
    proto.graph.input[0].ClearField("type")
    assert "'x' is no tensor" in refusal(proto)
    proto.graph.input[0].type.tensor_type.shape.dim.add().dim_value = 1
    assert "no element type" in refusal(proto)
    proto.graph.input[0].type.map_type.key_type = 7
    assert "'x' is a map" in refusal(proto)


def test_absurd_inputs() -> None:
    assert "absurd shape" in refusal(single("Relu", {"x": (2**40, 2**20)}))
    assert "has 40 dimensions" in refusal(single("Relu", {"x": (1,) * 40}))
    grown = network([node("Expand", ["x", "s"], "y")], {"x": (2**39, 1)}, ["y"], {"s": np.array([1, 8])})
    assert "'y' would have the absurd shape" in refusal(grown)


def test_inputs_and_constants_that_are_outputs_too() -> None:
    proto = network([node("Relu", ["x"], "y")], {"x": ("n", 4)}, ["y", "x", "c"], {"c": np.ones((2, 2), np.float32)})
    model = load(proto, shapes="x:3x4")
    assert model.inputs == (Tensor("x", (3, 4), DType.FP32),)
    assert model.outputs == (
        Tensor("y", (3, 4), DType.FP32),
        Tensor("x", (3, 4), DType.FP32),
        Tensor("c", (2, 2), DType.FP32, constant=True),
    )
    feeds = {"x": np.ones((3, 4), np.float32)}
    assert [r.shape for r in run_onnx(to_proto(model), feeds)] == [(3, 4), (3, 4), (2, 2)]


# --- functions ----------------------------------------------------------------------------------------------------


def function(name: str, steps: list[onnx.NodeProto], *, opset: int = 17, attributes: tuple[str, ...] = ()) -> Any:
    """A function of domain `local` from `v` to `r`."""
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["v"], ["r"], steps, imports, list(attributes))


def call(name: str, given: str, result: str, **attributes: Any) -> onnx.NodeProto:
    return node(name, [given], result, domain="local", **attributes)


def leaky(given: str, result: str) -> onnx.NodeProto:
    """LeakyRelu whose slope is the function's attribute `slope`."""
    made = node("LeakyRelu", [given], result, name="leaky")
    attribute = made.attribute.add()
    attribute.name, attribute.ref_attr_name, attribute.type = "alpha", "slope", onnx.AttributeProto.FLOAT
    return made


def test_functions_are_inlined() -> None:
    inner = function("Inner", [leaky("v", "w"), node("Add", ["w", "w"], "r")], attributes=("slope",))
    through = node("Inner", ["v"], "m", domain="local")
    attribute = through.attribute.add()
    attribute.name, attribute.ref_attr_name, attribute.type = "slope", "slope", onnx.AttributeProto.FLOAT
    outer = function("Outer", [through, node("Neg", ["m"], "r")], attributes=("slope",))
    nodes = [call("Outer", "x", "a", slope=0.5), call("Inner", "a", "b"), call("Outer", "b", "y", slope=0.25)]
    proto = network(nodes, {"x": (1, 8)}, ["y"], domains={"local": 1}, functions=[inner, outer])
    model = load(proto)
    assert [n.op_type for n in model.graph] == [
        "LeakyRelu",
        "Add",
        "Neg",
        "LeakyRelu",
        "Add",
        "LeakyRelu",
        "Add",
        "Neg",
    ]
    slopes = [n.attributes["alpha"].as_float() for n in model.graph if "alpha" in n.attributes]
    assert slopes == [0.5, 0.25]
    assert len({n.name for n in model.graph}) == 8
    assert all((n.name or "").startswith(("Outer_a/", "Inner_b/", "Outer_y/")) for n in model.graph)
    assert not model.ir.functions
    feeds = random_feeds(proto)
    proto.graph.output[0].type.CopyFrom(value("y", (1, 8)).type)
    np.testing.assert_array_equal(run_onnx(to_proto(model), feeds)[0], run_onnx(proto, feeds)[0])


def test_a_function_named_like_a_standard_operator_does_not_replace_it() -> None:
    other = helper.make_function("", "Relu", ["v"], ["r"], [node("Neg", ["v"], "r")], [helper.make_opsetid("", 17)])
    proto = network([node("Relu", ["x"], "y")], {"x": (1, 8)}, ["y"], functions=[other])
    assert [n.op_type for n in load(proto).graph] == ["Relu"]


def test_functions_that_pass_a_value_on_or_leave_one_out() -> None:
    imports = [helper.make_opsetid("", 17)]
    both = helper.make_function("local", "Both", ["v", "o"], ["r", "s", "t"], [node("Clip", ["v", "o"], "r")], imports)
    both.output[1], both.output[2] = "v", "r"
    calls = [node("Both", ["x"], ["a", "b", "c"], domain="local"), node("Sum", ["a", "b", "c"], "y")]
    proto = network(calls, {"x": (1, 8)}, ["y"], domains={"local": 1}, functions=[both])
    model = load(proto)
    assert [n.op_type for n in model.graph] == ["Clip", "Identity", "Identity", "Sum"]
    assert next(iter(model.graph)).inputs[1:] in ((), (None,))
    (result,) = run_onnx(to_proto(model), {"x": np.full((1, 8), 2, np.float32)})
    np.testing.assert_array_equal(result, np.full((1, 8), 6, np.float32))


def test_functions_with_subgraphs_and_names_of_the_network() -> None:
    then = helper.make_graph([node("Neg", ["w"], "t")], "then", [], [onnx.ValueInfoProto(name="t")])
    other = helper.make_graph([node("Abs", ["v"], "t")], "else", [], [onnx.ValueInfoProto(name="t")])
    steps = [
        node("Relu", ["v"], "w"),
        node("ReduceMax", ["v"], "m", keepdims=0),
        node("Cast", ["m"], "c", to=onnx.TensorProto.BOOL),
        node("If", ["c"], "r", then_branch=then, else_branch=other),
    ]
    branchy = function("Branchy", steps)
    nodes = [node("Relu", ["x"], "w"), call("Branchy", "w", "t"), call("Branchy", "t", "y")]
    proto = network(nodes, {"x": (1, 8)}, ["y"], domains={"local": 1}, functions=[branchy])
    model = load(proto)
    feeds = random_feeds(proto)
    proto.graph.output[0].type.CopyFrom(value("y", (1, 8)).type)
    np.testing.assert_array_equal(run_onnx(to_proto(model), feeds)[0], run_onnx(proto, feeds)[0])


def test_functions_that_cannot_be_inlined() -> None:
    def of(*functions: Any, calls: str = "F") -> onnx.ModelProto:
        return network([call(calls, "x", "y")], {"x": (1, 8)}, ["y"], domains={"local": 1}, functions=functions)

    assert "calls itself" in refusal(of(function("F", [call("F", "v", "r")])))
    ring = [function("F", [call("G", "v", "r")]), function("G", [call("F", "v", "r")])]
    assert "calls itself" in refusal(of(*ring))
    explosion = [function(f"F{i}", [call(f"F{i + 1}", "v", "w"), call(f"F{i + 1}", "w", "r")]) for i in range(40)]
    explosion.append(function("F40", [node("Relu", ["v"], "r")]))
    assert "more than 200000 nodes" in refusal(of(*explosion, calls="F0"))
    assert "twice" in refusal(of(function("F", [node("Relu", ["v"], "r")]), function("F", [node("Neg", ["v"], "r")])))
    old = function("F", [node("ReduceSum", ["v"], "r", axes=[1])], opset=11)
    assert "opset 11" in refusal(of(old))
    fine = function("F", [node("Relu", ["v"], "r")], opset=15)
    assert load(of(fine)).outputs[0].shape == (1, 8)


# --- real networks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LIGHT)
def test_light_networks(name: str) -> None:
    model = load(light_path(name))
    assert next(t.name for t in model.inputs).endswith("data_0")
    unknown = [v.name for n in model.graph for v in n.outputs if v.uses() and model.tensor(v).shape is None]
    assert unknown == []
    for item in model.graph:
        if item.op_type in ("Conv", "Gemm"):
            assert model.is_constant(item.inputs[1])


def test_some_operator_models_keep_their_function() -> None:
    assert compare_operator_models(every=20) > 30


@pytest.mark.slow
def test_all_operator_models_keep_their_function() -> None:
    assert compare_operator_models(every=1) > 1000


def compare_operator_models(every: int) -> int:
    """Whatever loading does to the onnx package's own operator models, ONNX Runtime sees no difference."""
    compared = 0
    for name, proto in sorted(operator_models().items())[::every]:
        if not _comparable(proto):
            continue
        try:
            model = load(proto)
        except OrinportError:
            continue
        feeds = random_feeds(proto)
        try:
            expected = run_onnx(proto, feeds)
        except Exception:  # ONNX Runtime lacks the operator, or the random inputs do not suit it
            continue
        for got, want in zip(run_onnx(to_proto(model), feeds), expected, strict=True):
            np.testing.assert_allclose(got, want, **_tolerance(proto, want), err_msg=name)
        compared += 1
    return compared


def _tolerance(proto: onnx.ModelProto, want: np.ndarray) -> dict[str, float]:
    """None, but for half precision, which ONNX Runtime computes in single precision where that suits it."""
    element = {i.type.tensor_type.elem_type for i in (*proto.graph.input, *proto.graph.output)}
    if element & {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}:
        return {"rtol": 1e-2, "atol": 2e-3}
    return {"rtol": 1e-6, "atol": 1e-7} if np.issubdtype(want.dtype, np.floating) else {"rtol": 0, "atol": 0}


def _comparable(proto: onnx.ModelProto) -> bool:
    """Networks whose result is a function of their inputs, in tensors."""
    kinds = {i.type.WhichOneof("value") for i in (*proto.graph.input, *proto.graph.output)}
    text = {i.type.tensor_type.elem_type for i in proto.graph.input}
    chance = any("Random" in n.op_type or n.op_type in ("Bernoulli", "Multinomial") for n in proto.graph.node)
    return kinds == {"tensor_type"} and onnx.TensorProto.STRING not in text and not chance


def test_loading_imports_none_of_the_heavy_packages() -> None:
    code = (
        "import sys, orinport.model; heavy = {'onnxruntime', 'onnxscript', 'torch'}\n"
        "assert not ({'onnx', 'onnx_ir', 'numpy'} & set(sys.modules)), 'the package itself has to stay light'\n"
        "from orinport.model import load\n"
        f"load({str(light_path('squeezenet'))!r})\n"
        "assert not (heavy & set(sys.modules)), heavy & set(sys.modules)\n"
        "assert 'onnx.reference' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_functions_keep_their_name_beside_their_module() -> None:
    code = (
        "from orinport.model.load import load as first\nfrom orinport.model.save import save as second\n"
        "from orinport.model.lower.lower import lower as third\nfrom orinport.model import load, lower, save\n"
        "assert (load, save, lower) == (first, second, third)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_many_nodes() -> None:
    model = load(thin_network(4000))
    assert len(model.graph) == 4000
    assert all(model.tensor(v).shape == (1, 8, 16, 16) for n in model.graph for v in n.outputs)
