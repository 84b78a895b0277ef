"""Types and shapes: what onnx finds, what the second pass adds, and what stays unknown."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from builders import network, node, single, small_cnn, value
from orinport.errors import OrinportError
from orinport.model import infer as infer_module
from orinport.model import load
from orinport.model.infer import infer_proto, register
from orinport.model.layer import DType, Tensor
from orinport.model.model import dtype_of, shape_of, tensor_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.model import Model


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is forgotten afterwards."""
    monkeypatch.setattr(infer_module, "_FUNCTIONS", dict(infer_module._FUNCTIONS))
    monkeypatch.setattr(infer_module, "_PROVIDERS", dict(infer_module._PROVIDERS))
    return


def found(model: Model) -> dict[str, Tensor]:
    """Every value of the main graph as rules see it."""
    return {v.name or "": tensor_of(v) for n in model.graph for v in n.outputs}


def test_every_value_has_a_type_and_a_shape() -> None:
    tensors = found(load(small_cnn(batch="n"), shapes="x:2x3x16x16"))
    assert tensors["p1"] == Tensor("p1", (2, 8, 8, 8), DType.FP32)
    assert tensors["f1"] == Tensor("f1", (2, 8), DType.FP32)
    assert all(t.shape is not None and t.dtype is DType.FP32 for t in tensors.values())


def test_what_the_file_says_about_standard_operators_does_not_count() -> None:
    proto = small_cnn()
    proto.graph.value_info.extend([value("c1", (9, 9)), value("r1", (7,), np.int8)])
    proto.graph.output[0].CopyFrom(value("y", (5, 5, 5), np.float16))
    tensors = found(load(proto))
    assert tensors["c1"].shape == (1, 8, 16, 16)
    assert tensors["r1"].dtype is DType.FP32
    assert tensors["y"] == Tensor("y", (1, 10), DType.FP32)


def test_large_weights_never_reach_the_inference() -> None:
    weights = np.zeros((1024, 1024), np.float32)
    seen: list[int] = []

    def spy(proto: onnx.ModelProto) -> onnx.ModelProto:
        seen.append(proto.ByteSize())
        return infer_proto(proto)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["orinport.model.load"], "infer_proto", spy)
        model = load(single("MatMul", {"x": (1, 1024)}, {"w": weights}))
    assert model.outputs[0].shape == (1, 1024)
    assert seen[0] < 2000


def test_shape_arithmetic_that_onnx_does_not_follow() -> None:
    """The square root of a product: onnx propagates neither, folding does."""
    nodes = [
        node("Shape", ["x"], "s"),
        node("ReduceProd", ["s"], "n", keepdims=1),
        node("Cast", ["n"], "f", to=1),
        node("Sqrt", ["f"], "r"),
        node("Cast", ["r"], "i", to=7),
        node("Concat", ["i", "i"], "t", axis=0),
        node("Reshape", ["x", "t"], "z"),
        node("MatMul", ["z", "w"], "y"),
    ]
    proto = network(nodes, {"x": (2, 8)}, ["y"], {"w": np.ones((4, 5), np.float32)})
    bare = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    known = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in bare.graph.value_info}
    assert known.get("z") != [4, 4], "onnx has learned it: take another example"
    model = load(proto)
    assert found(model) == {"z": Tensor("z", (4, 4), DType.FP32), "y": Tensor("y", (4, 5), DType.FP32)}


def test_an_operator_nobody_knows() -> None:
    nodes = [
        node("Relu", ["x"], "a"),
        node("Strange", ["a"], "b", domain="other"),
        node("Relu", ["b"], "c"),
        node("Reshape", ["c", "t"], "d"),
        node("Relu", ["x"], "y"),
    ]
    proto = network(nodes, {"x": (1, 4)}, ["y", "d"], {"t": np.array([2, 2])}, domains={"other": 1})
    tensors = found(load(proto))
    assert tensors["a"].shape == tensors["y"].shape == (1, 4)
    assert tensors["b"] == Tensor("b", None, DType.UNKNOWN)
    assert tensors["c"] == Tensor("c", None, DType.UNKNOWN)
    proto.graph.value_info.append(value("b", (1, 2, 2)))
    tensors = found(load(proto))
    assert tensors["b"] == Tensor("b", (1, 2, 2), DType.FP32)
    assert tensors["c"] == Tensor("c", (1, 2, 2), DType.FP32)
    assert tensors["d"] == Tensor("d", (2, 2), DType.FP32)


def test_a_registered_operator() -> None:
    def double(call: ir.Node, constant: Any) -> list[tuple[ir.DataType, tuple[int, ...]] | None]:
        times = constant(call.inputs[1])
        shape = shape_of(call.inputs[0])  # type: ignore[arg-type]
        assert shape is not None
        return [(ir.DataType.FLOAT16, (shape[0], shape[1] * int(times))), None]

    register("other", "Strange", double)
    nodes = [node("Strange", ["x", "n"], ["a", "b"], domain="other"), node("Relu", ["a"], "y")]
    proto = network(nodes, {"x": (2, 3)}, ["y"], {"n": np.array(5)}, domains={"other": 1})
    proto.graph.value_info.append(value("a", (99,)))
    tensors = found(load(proto))
    assert tensors["a"] == Tensor("a", (2, 15), DType.FP16)
    assert tensors["b"] == Tensor("b", None, DType.UNKNOWN)
    assert tensors["y"] == Tensor("y", (2, 15), DType.FP16)


def test_a_domain_with_a_module_of_its_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "provided_operators.py").write_text(
        "import onnx_ir as ir\n"
        "from orinport.model.infer import register\n"
        "register('provided', 'Op', lambda node, constant: [(ir.DataType.FLOAT, (7,))])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    infer_module._PROVIDERS["provided"] = "provided_operators"
    infer_module._PROVIDERS["nowhere"] = "provided_operators_that_are_not_there"
    assert load(single("Op", {"x": (1,)}, domain="provided")).outputs[0].shape == (7,)
    assert load(single("Op", {"x": (1,)}, domain="nowhere")).outputs[0].shape is None


def test_a_node_that_cannot_be_valid_does_not_spoil_the_rest() -> None:
    nodes = [
        node("Conv", ["x", "w"], "bad", kernel_shape=[3, 3], strides=[1, 1, 1, 1, 1]),
        node("MatMul", ["v", "v"], "worse"),
        node("Relu", ["x"], "r"),
        node("Relu", ["bad"], "after"),
    ]
    constants = {"w": np.ones((4, 4, 3, 3), np.float32)}
    proto = network(nodes, {"x": (1, 4, 8, 8), "v": (2, 3)}, ["r", "after", "worse"], constants)
    model = load(proto)
    tensors = found(model)
    assert tensors["r"].shape == (1, 4, 8, 8)
    assert tensors["bad"].shape is None
    assert tensors["after"].shape is None
    assert tensors["worse"].shape is None
    defects = [model.defect(n) for n in model.graph]
    assert "strides" in (defects[0] or "")
    assert "Incompatible dimensions" in (defects[1] or "")
    assert defects[2] is None
    assert defects[3] is None


def test_when_the_inference_fails_altogether(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", fail)
    tensors = found(load(small_cnn()))
    assert all(t.shape is not None and t.dtype is DType.FP32 for t in tensors.values())
    assert tensors["y"].shape == (1, 10)


def test_what_depends_on_data_stays_unknown() -> None:
    nodes = [node("NonZero", ["x"], "n"), node("Transpose", ["n"], "y")]
    tensors = found(load(network(nodes, {"x": (2, 3)}, ["y"])))
    assert tensors["y"] == Tensor("y", None, DType.INT64)
    value_ = next(iter(load(network(nodes, {"x": (2, 3)}, ["y"])).graph)).outputs[0]
    assert value_.shape is not None
    assert value_.shape[0] == 2


def test_sequences_are_no_tensors() -> None:
    nodes = [node("SequenceConstruct", ["x", "x"], "s"), node("ConcatFromSequence", ["s"], "y", axis=0)]
    tensors = found(load(network(nodes, {"x": (2, 3)}, ["y"])))
    assert tensors["s"] == Tensor("s", None, DType.UNKNOWN)
    assert tensors["y"] == Tensor("y", (4, 3), DType.FP32) or tensors["y"].shape is None


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("FLOAT", DType.FP32),
        ("DOUBLE", DType.FP64),
        ("FLOAT16", DType.FP16),
        ("BFLOAT16", DType.BF16),
        ("FLOAT8E4M3FN", DType.FP8),
        ("FLOAT8E5M2", DType.UNKNOWN),
        ("INT8", DType.INT8),
        ("UINT8", DType.UINT8),
        ("INT4", DType.INT4),
        ("INT16", DType.INT16),
        ("INT32", DType.INT32),
        ("INT64", DType.INT64),
        ("BOOL", DType.BOOL),
        ("STRING", DType.STRING),
        ("COMPLEX64", DType.UNKNOWN),
    ],
)
def test_element_types(name: str, dtype: DType) -> None:
    made = ir.Value(name="v", type=ir.TensorType(ir.DataType[name]), shape=ir.Shape([1, 2]))
    assert dtype_of(made) is dtype
    assert tensor_of(made) == Tensor("v", (1, 2), dtype)
    assert dtype_of(ir.Value(name="v")) is DType.UNKNOWN
    assert shape_of(ir.Value(name="v", shape=ir.Shape([1, "n"]))) is None
    sequence = ir.Value(name="v", type=ir.SequenceType(ir.TensorType(ir.DataType.FLOAT)), shape=ir.Shape([1]))
    assert dtype_of(sequence) is DType.UNKNOWN
    assert shape_of(sequence) is None


def test_subgraphs_are_inferred_too() -> None:
    body = helper.make_graph(
        [node("Add", ["carried", "x"], "next"), node("Identity", ["go"], "on")],
        "body",
        [value("i", (), np.int64), value("go", (), np.bool_), onnx.ValueInfoProto(name="carried")],
        [onnx.ValueInfoProto(name="on"), onnx.ValueInfoProto(name="next")],
    )
    call = node("Loop", ["n", "", "x"], "y", body=body)
    model = load(network([call], {"x": (1, 4)}, ["y"], {"n": np.array(3)}))
    assert model.outputs[0].dtype is DType.FP32
    inner = next(iter(model.graph)).attributes["body"].as_graph()
    assert [n.op_type for n in inner] == ["Add", "Identity"]


@pytest.mark.parametrize("opset", [18, 21])
def test_group_normalization_keeps_the_shape(opset: int) -> None:
    """onnx infers nothing for it, nor for what comes behind."""
    count = 4 if opset == 18 else 16
    constants = {name: np.ones(count, np.float32) for name in "sb"}
    nodes = [node("GroupNormalization", ["x", "s", "b"], "g", num_groups=4), node("Relu", ["g"], "y")]
    model = load(network(nodes, {"x": (1, 16, 8, 12)}, ["y"], constants, opset=opset))
    assert [tuple(value.shape or ()) for each in model.graph for value in each.outputs] == [(1, 16, 8, 12)] * 2
    assert all(each.outputs[0].dtype == ir.DataType.FLOAT for each in model.graph)


# --- dimensions below 0 ---------------------------------------------------------------------------------------------


def _conv_and_slice(side: int, **attributes: Any) -> onnx.ModelProto:
    """A convolution with a window of 8x8, and a slice of its width; `side` is that of the input."""
    nodes = [node("Conv", ["x", "w"], "a", **attributes), node("Slice", ["a", "s", "e", "d"], "y")]
    bounds = {name: np.array([number]) for name, number in (("s", 0), ("e", 4), ("d", 3))}
    return network(nodes, {"x": (1, 4, side, side)}, ["y"], {"w": np.ones((4, 4, 8, 8), np.float32), **bounds})


def test_a_slice_of_what_cannot_be_is_refused_and_does_not_end_the_process() -> None:
    with pytest.raises(OrinportError, match="'a' would have the impossible shape 1x4x-3x-3"):
        load(_conv_and_slice(4))
    assert found(load(_conv_and_slice(4, pads=[4, 4, 4, 4])))["y"].shape == (1, 4, 5, 4)


def test_an_impossible_result_is_refused() -> None:
    proto = single("MaxPool", {"x": (1, 4, 4, 4)}, kernel_shape=[9, 9])
    with pytest.raises(OrinportError, match="impossible shape 1x4x-4x-4"):
        load(proto)


def test_guarded_nodes_come_back_as_they_were() -> None:
    proto = _conv_and_slice(16)
    model = load(proto)
    assert [(n.domain, n.op_type) for n in model.graph] == [("", "Conv"), ("", "Slice")]
    assert set(model.graph.opset_imports) == {""}
    assert proto == _conv_and_slice(16)


def test_a_slice_in_a_subgraph_is_guarded() -> None:
    inner = [node("Slice", ["a", "s", "e", "d"], "t")]
    then = helper.make_graph(inner, "then", [], [onnx.ValueInfoProto(name="t")])
    other = helper.make_graph([node("Neg", ["a"], "n")], "else", [], [onnx.ValueInfoProto(name="n")])
    proto = _conv_and_slice(4)
    del proto.graph.node[1]
    proto.graph.node.append(node("If", ["c"], "y", then_branch=then, else_branch=other))
    proto.graph.input.append(value("c", (), np.bool_))
    with pytest.raises(OrinportError, match="impossible shape"):
        load(proto)


def test_a_slice_of_a_shape_is_still_followed() -> None:
    nodes = [
        node("Shape", ["x"], "size"),
        node("Slice", ["size", "s", "e"], "part"),
        node("Concat", ["part", "rest"], "wanted", axis=0),
        node("Reshape", ["x", "wanted"], "y"),
    ]
    constants = {"s": np.array([0]), "e": np.array([2]), "rest": np.array([-1])}
    proto = network(nodes, {"x": (2, 3, 4, 5)}, ["y"], constants)
    types = {info.name: info.type for info in infer_proto(proto).graph.output}
    assert [dim.dim_value for dim in types["y"].tensor_type.shape.dim] == [2, 3, 20]


def test_the_guards_own_operator_set_is_refused() -> None:
    proto = network([node("Relu", ["x"], "y")], {"x": (1, 4)}, ["y"], domains={"orinport.guard": 1})
    with pytest.raises(OrinportError, match="is orinport's own"):
        load(proto)


def test_a_negative_size_that_a_file_states_counts_as_unknown() -> None:
    proto = network(
        [node("Odd", ["x"], "a", domain="custom"), node("Relu", ["a"], "y")],
        {"x": (1, 4)},
        ["y"],
        domains={"custom": 1},
    )
    proto.graph.value_info.append(value("a", (1, -1)))
    assert load(proto).graph.node(0).outputs[0].shape[0] == 1


def test_a_result_of_a_type_that_is_none_is_refused() -> None:
    window = node("BlackmanWindow", ["n"], "a", output_datatype=-2)
    nodes = [window, node("Cast", ["a"], "y", to=onnx.TensorProto.FLOAT)]
    with pytest.raises(OrinportError, match="type that ONNX does not know"):
        load(network(nodes, {}, ["y"], {"n": np.array(5)}, opset=20))
    with pytest.raises(OrinportError, match="cannot be read") as caught:
        load(network([node("BlackmanWindow", ["n"], "y", output_datatype=-2)], {}, ["y"], {"n": np.array(5)}, opset=20))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (node("GatherND", ["x", "i"], "y", batch_dims=-3), "'batch_dims' of the GatherND node 'GatherND_y' is -3"),
        (node("Softmax", ["x"], "y", axis=2**31), "'axis' of the Softmax node 'Softmax_y' is 2147483648"),
        (node("Split", ["x"], ["y", "z"], num_outputs=1), "has 2 outputs, and its 'num_outputs' is 1"),
    ],
)
def test_numbers_outside_all_ranks_are_refused(made: onnx.NodeProto, said: str) -> None:
    with pytest.raises(OrinportError, match=said):
        load(network([made], {"x": (2, 3)}, ["y"], {"i": np.array([[0]])}, opset=18))


def test_numbers_are_held_to_their_bounds_behind_a_call_too() -> None:
    inner = helper.make_node("Softmax", ["a"], ["b"])
    inner.attribute.append(onnx.AttributeProto(name="axis", type=onnx.AttributeProto.INT, ref_attr_name="where"))
    function = helper.make_function("local", "F", ["a"], ["b"], [inner], [helper.make_opsetid("", 17)], ["where"])
    call = helper.make_node("F", ["x"], ["y"], domain="local", where=2**31)
    with pytest.raises(OrinportError, match=r"'axis' of the Softmax node .* is 2147483648"):
        load(network([call], {"x": (2, 3)}, ["y"], domains={"local": 1}, functions=[function]))
