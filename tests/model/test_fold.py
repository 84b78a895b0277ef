"""Folding: what becomes a constant, what is only known, what stays, and that values are right."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from builders import network, node, run_onnx, single
from orinport.model import copy_model, load, to_proto
from orinport.model.evaluate import _FUNCTIONS, _REFERENCE, evaluate, foldable
from orinport.model.model import SMALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.model.model import Model


def operators(model: Model) -> list[str]:
    return [n.op_type for n in model.graph]


def folded(model: Model, name: str) -> np.ndarray:
    """The constant that a value has become."""
    array = model.constant(model.graph.initializers[name])
    assert array is not None
    return array


# --- shape arithmetic ---------------------------------------------------------------------------------------------


def test_the_shape_arithmetic_of_a_flatten() -> None:
    """View(x, (x.size(0), -1)) as exporters write it."""
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Gather", ["shape", "zero"], "batch", axis=0),
        node("Unsqueeze", ["batch", "axes"], "one"),
        node("Concat", ["one", "rest"], "target", axis=0),
        node("Reshape", ["x", "target"], "y"),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    proto = network(nodes, {"x": ("n", 3, 4, 4)}, ["y"], constants)
    model = load(proto, shapes="x:2x3x4x4")
    assert operators(model) == ["Reshape"]
    np.testing.assert_array_equal(folded(model, "target"), [2, -1])
    assert model.outputs[0].shape == (2, 48)
    assert set(model.graph.initializers) == {"target"}
    assert next(iter(model.graph)).name == "Reshape_y"


def test_upsampling_by_computed_sizes() -> None:
    nodes = [
        node("Shape", ["x"], "s"),
        node("Slice", ["s", "a", "b", "axes"], "hw"),
        node("Mul", ["hw", "two"], "target"),
        node("Slice", ["s", "zero", "a", "axes"], "nc"),
        node("Concat", ["nc", "target"], "sizes", axis=0),
        node("Resize", ["x", "", "", "sizes"], "y", mode="nearest"),
    ]
    constants = {
        "a": np.array([2]),
        "b": np.array([4]),
        "axes": np.array([0]),
        "two": np.array([2, 2]),
        "zero": np.array([0]),
    }
    model = load(network(nodes, {"x": (1, 3, 5, 7)}, ["y"], constants))
    assert operators(model) == ["Resize"]
    assert model.outputs[0].shape == (1, 3, 10, 14)
    np.testing.assert_array_equal(folded(model, "sizes"), [1, 3, 10, 14])


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({}, [2, 3, 4]),
        ({"start": 1}, [3, 4]),
        ({"end": -1}, [2, 3]),
        ({"start": -2, "end": 9}, [3, 4]),
        ({"end": -9}, []),
    ],
)
def test_parts_of_a_shape(attributes: dict[str, int], wanted: list[int]) -> None:
    nodes = [node("Shape", ["x"], "s", **attributes), node("Identity", ["s"], "y")]
    model = load(network(nodes, {"x": (2, 3, 4)}, ["y"]))
    assert model.graph.outputs[0].const_value is not None
    np.testing.assert_array_equal(model.graph.outputs[0].const_value.numpy(), wanted)


def test_size() -> None:
    nodes = [node("Size", ["x"], "n"), node("Cast", ["n"], "f", to=1), node("Mul", ["x", "f"], "y")]
    model = load(network(nodes, {"x": (2, 3)}, ["y"]))
    assert operators(model) == ["Mul"]
    assert folded(model, "f") == np.float32(6)


# --- what stays ---------------------------------------------------------------------------------------------------


def test_quantisation_survives() -> None:
    nodes = [
        node("DequantizeLinear", ["wq", "s", "z"], "w"),
        node("Conv", ["x", "w"], "c"),
        node("QuantizeLinear", ["f", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], "d"),
        node("Add", ["c", "d"], "y"),
    ]
    constants = {
        "wq": np.ones((4, 4, 1, 1), np.int8),
        "s": np.float32(0.1),
        "z": np.int8(0),
        "f": np.ones(1, np.float32),
    }
    model = load(network(nodes, {"x": (1, 4, 2, 2)}, ["y"], constants))
    assert operators(model) == ["DequantizeLinear", "Conv", "QuantizeLinear", "DequantizeLinear", "Add"]
    assert not any(model.is_constant(v) for n in model.graph for v in n.outputs)


@pytest.mark.parametrize("op_type", ["RandomNormal", "RandomUniform"])
def test_chance_is_not_folded(op_type: str) -> None:
    nodes = [node(op_type, [], "r", shape=[1, 4]), node("Add", ["x", "r"], "y")]
    model = load(network(nodes, {"x": (1, 4)}, ["y"]))
    assert operators(model) == [op_type, "Add"]
    assert not model.is_constant(next(iter(model.graph)).outputs[0])


@pytest.mark.parametrize("op_type", ["RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"])
def test_chance_over_a_constant_is_not_folded(op_type: str) -> None:
    model = load(network([node(op_type, ["c"], "y")], {}, ["y"], {"c": np.ones((1, 4), np.float32)}))
    assert operators(model) == [op_type]
    assert not model.is_constant(model.graph.outputs[0])


def test_operators_of_other_domains_are_not_folded() -> None:
    proto = network([node("Add", ["c", "c"], "y", domain="other")], {}, ["y"], {"c": np.ones(4, np.float32)})
    proto.opset_import.add(domain="other", version=1)
    assert operators(load(proto)) == ["Add"]


def test_an_expression_that_cannot_be_computed_stays() -> None:
    nodes = [node("Div", ["a", "zero"], "q"), node("Add", ["x", "q"], "y")]
    proto = network(nodes, {"x": ((2,), np.int64)}, ["y"], {"a": np.array([1, 2]), "zero": np.array([0, 1])})
    assert operators(load(proto)) == ["Div", "Add"]


# --- known, not stored --------------------------------------------------------------------------------------------


def test_large_expressions_are_known_and_stay() -> None:
    nodes = [
        node("ConstantOfShape", ["s"], "w", value=helper.make_tensor("v", 1, [1], [0.5])),
        node("Transpose", ["w"], "t"),
        node("MatMul", ["x", "t"], "y"),
    ]
    model = load(network(nodes, {"x": (1, 1000)}, ["y"], {"s": np.array([300, 1000])}))
    assert operators(model) == ["ConstantOfShape", "Transpose", "MatMul"]
    weights = list(model.graph)[2].inputs[1]
    assert model.is_constant(weights)
    assert model.constant(weights) is None
    for owner in (model, copy_model(model)):
        value = list(owner.graph)[2].inputs[1]
        array = owner.constant(value, limit=None)
        assert array is not None
        assert array.shape == (1000, 300)
        assert np.all(array == 0.5)
    assert len(to_proto(model).SerializeToString()) < 2000


def test_enormous_expressions_cost_nothing() -> None:
    nodes = [
        node("ConstantOfShape", ["s"], "c"),
        node("Expand", ["one", "s"], "e"),
        node("Tile", ["one", "reps"], "t"),
        node("Range", ["zero", "n", "one64"], "r"),
        node("MatMul", ["column", "row"], "m"),
        node("Add", ["column", "row"], "a"),
        *(node("ReduceMax", [name], f"{name}_", keepdims=0) for name in "ceta"),
        node("ReduceMax", ["r"], "r_", keepdims=0),
        node("ReduceMax", ["m"], "m_", keepdims=0),
        node("Sum", ["x", "c_", "e_", "t_", "m_", "a_"], "y"),
    ]
    constants = {
        "s": np.array([1 << 15, 1 << 15]),
        "one": np.ones((1, 1), np.float32),
        "reps": np.array([1 << 14, 1 << 14]),
        "zero": np.array(0),
        "n": np.array(1 << 30),
        "one64": np.array(1),
        "column": np.ones((SMALL, 1), np.float32),
        "row": np.ones((1, SMALL), np.float32),
    }
    proto = network(nodes, {"x": (1,)}, ["y"], constants)
    code = (
        "import resource, sys\nresource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))\n"
        "from orinport.model import load\nprint(len(load(sys.stdin.buffer.read()).graph))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=proto.SerializeToString(), capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert int(done.stdout) == len(nodes)


def test_long_and_repeated_expressions_are_computed_once() -> None:
    """Doubling 3000 times over: neither 2 ** 3000 steps nor 3000 levels of calls."""
    steps = [node("ConstantOfShape", ["s"], "d0", value=helper.make_tensor("v", 1, [1], [1.0]))]
    steps += [node("Max", [f"d{i}", f"d{i}"], f"d{i + 1}") for i in range(3000)]
    proto = network([*steps, node("MatMul", ["x", "d3000"], "y")], {"x": (1, 400)}, ["y"], {"s": np.array([400, 400])})
    model = load(proto)
    assert len(model.graph) == 3002
    array = model.constant(list(model.graph)[-1].inputs[1], limit=None)
    assert array is not None
    assert array.shape == (400, 400)
    assert np.all(array == 1)


def test_identity_of_a_constant_is_left_out() -> None:
    weights = np.ones((512, 512), np.float32)
    nodes = [node("Identity", ["w"], "i"), node("MatMul", ["x", "i"], "y")]
    model = load(network(nodes, {"x": (1, 512)}, ["y"], {"w": weights}))
    assert operators(model) == ["MatMul"]
    assert next(iter(model.graph)).inputs[1] is model.graph.initializers["w"]


def test_constant_outputs_keep_their_node() -> None:
    model = load(network([node("Add", ["a", "a"], "y")], {}, ["y"], {"a": np.ones(2, np.float32)}))
    assert operators(model) == ["Add"]
    assert model.outputs[0].constant
    (result,) = run_onnx(to_proto(model), {})
    np.testing.assert_array_equal(result, [2, 2])


def test_a_node_with_one_output_inside_and_one_outside() -> None:
    nodes = [node("Split", ["c"], ["a", "b"], axis=0), node("Mul", ["x", "b"], "y")]
    proto = network(nodes, {"x": (2,)}, ["y", "a"], {"c": np.arange(4, dtype=np.float32)}, opset=13)
    model = load(proto)
    feeds = {"x": np.array([3, 5], np.float32)}
    for got, want in zip(run_onnx(to_proto(model), feeds), run_onnx(proto, feeds), strict=True):
        np.testing.assert_array_equal(got, want)


# --- branches -----------------------------------------------------------------------------------------------------


def branching(condition: bool, *, output: bool) -> onnx.ModelProto:
    """`relu(x) if condition else x * c`, then, unless it is the output, its negation."""
    then = helper.make_graph([node("Relu", ["x"], "taken")], "then", [], [onnx.ValueInfoProto(name="taken")])
    other = helper.make_graph(
        [node("Mul", ["x", "c"], "other")],
        "else",
        [],
        [onnx.ValueInfoProto(name="other")],
        [onnx.numpy_helper.from_array(np.full(4, 3, np.float32), "c")],
    )
    nodes = [node("If", ["yes"], "y" if output else "z", then_branch=then, else_branch=other)]
    if not output:
        nodes += [node("Neg", ["z"], "y"), node("Abs", ["x"], "taken2")]
    return network(nodes, {"x": (1, 4)}, ["y"], {"yes": np.array(condition), "c": np.ones(4, np.float32)})


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("output", [True, False])
def test_a_branch_that_is_always_taken(condition: bool, output: bool) -> None:
    proto = branching(condition, output=output)
    model = load(proto)
    assert {n.op_type for n in model.graph.inputs[0].consumers()} <= set(operators(model))
    inner = "Relu" if condition else "Mul"
    assert operators(model) == ([inner, "Identity"] if output else [inner, "Neg", "Abs"])
    assert model.outputs[0].name == "y"
    assert model.outputs[0].shape == (1, 4)
    assert all(model.tensor(v).shape == (1, 4) for n in model.graph for v in n.outputs)
    feeds = {"x": np.array([[-1, 2, -3, 4]], np.float32)}
    expected = np.maximum(feeds["x"], 0) if condition else 3 * feeds["x"]
    (result,) = run_onnx(to_proto(model), feeds)
    np.testing.assert_array_equal(result, expected if output else -expected)


def test_a_branch_by_computed_condition() -> None:
    """`Squeeze` as PyTorch's TorchScript exporter writes it: taken only if the dimension is 1."""
    then = helper.make_graph([node("Squeeze", ["x", "axis"], "t")], "then", [], [onnx.ValueInfoProto(name="t")])
    other = helper.make_graph([node("Identity", ["x"], "e")], "else", [], [onnx.ValueInfoProto(name="e")])
    nodes = [
        node("Shape", ["x"], "s"),
        node("Gather", ["s", "one"], "d"),
        node("Equal", ["d", "one"], "is_one"),
        node("If", ["is_one"], "z", then_branch=then, else_branch=other),
        node("Relu", ["z"], "y"),
    ]
    constants = {"one": np.array(1), "axis": np.array([1])}
    assert load(network(nodes, {"x": (2, 1, 3)}, ["y"], constants)).outputs[0].shape == (2, 3)
    model = load(network(nodes, {"x": (2, 5, 3)}, ["y"], constants))
    assert model.outputs[0].shape == (2, 5, 3)
    assert operators(model) == ["Identity", "Relu"]


def test_branches_share_names_with_everything_else() -> None:
    """Two Ifs with the same branches: one is always taken, the other depends on the input."""
    then = helper.make_graph([node("Relu", ["x"], "t")], "then", [], [onnx.ValueInfoProto(name="t")])
    other = helper.make_graph([node("Neg", ["x"], "t")], "else", [], [onnx.ValueInfoProto(name="t")])
    nodes = [
        node("If", ["yes"], "a", then_branch=then, else_branch=other),
        node("If", ["yes"], "b", then_branch=other, else_branch=then),
        node("If", ["c"], "d", then_branch=then, else_branch=other),
        node("Sum", ["a", "b", "d"], "y"),
    ]
    proto = network(nodes, {"x": (1, 4), "c": ((), np.bool_)}, ["y"], {"yes": np.array(True)})
    model = load(proto)
    assert operators(model) == ["Relu", "Neg", "If", "Sum"]
    names = [v.name for n in model.graph.all_nodes() for v in n.outputs]
    assert names.count("t") == 2, "once in each branch of the If that stays"
    for condition in (True, False):
        feeds = {"x": np.array([[-1, 2, -3, 4]], np.float32), "c": np.array(condition)}
        np.testing.assert_array_equal(run_onnx(to_proto(model), feeds)[0], run_onnx(proto, feeds)[0])


def test_a_branch_that_depends_on_the_input_stays() -> None:
    then = helper.make_graph([node("Relu", ["x"], "t")], "then", [], [onnx.ValueInfoProto(name="t")])
    other = helper.make_graph([node("Neg", ["x"], "e")], "else", [], [onnx.ValueInfoProto(name="e")])
    call = node("If", ["c"], "y", then_branch=then, else_branch=other)
    model = load(network([call], {"x": (1, 4), "c": ((), np.bool_)}, ["y"]))
    assert operators(model) == ["If"]
    assert model.outputs[0].shape == (1, 4)


# --- values -------------------------------------------------------------------------------------------------------


def compute(op_type: str, inputs: Sequence[np.ndarray], outputs: int = 1, opset: int = 17, **attributes: Any) -> Any:
    """What our own evaluation gives, and what ONNX Runtime gives."""
    names = [f"i{k}" for k in range(len(inputs))]
    specs = {name: (array.shape, array.dtype.type) for name, array in zip(names, inputs, strict=True)}
    proto = single(op_type, specs, outputs=outputs, opset=opset, **attributes)
    (call,) = ir.from_proto(proto).graph
    ours = evaluate(call, inputs, opset)
    return ours, run_onnx(proto, dict(zip(names, inputs, strict=True)))


integers = np.array([[-7, 5, 0], [3, -2, 9]], np.int64)
floats = np.array([[-1.5, 0.25, 2.0], [3.5, -0.75, 1.0]], np.float32)

CASES: list[tuple[str, list[np.ndarray], dict[str, Any]]] = [
    ("Abs", [integers], {}),
    ("Add", [integers, integers[0]], {}),
    ("And", [integers > 0, integers > 3], {}),
    ("Cast", [floats], {"to": onnx.TensorProto.INT32}),
    ("Cast", [integers], {"to": onnx.TensorProto.BOOL}),
    ("Cast", [integers], {"to": onnx.TensorProto.FLOAT16}),
    ("Ceil", [floats], {}),
    ("Concat", [integers, integers], {"axis": -1}),
    ("ConstantOfShape", [np.array([2, 3])], {}),
    ("Div", [integers, np.array([2, -2, 4])], {}),
    ("Div", [floats, floats], {}),
    ("Equal", [integers, integers[::-1].copy()], {}),
    ("Exp", [floats], {}),
    ("Expand", [integers[:1], np.array([4, 2, 1])], {}),
    ("Flatten", [np.zeros((2, 3, 4), np.float32)], {"axis": -1}),
    ("Flatten", [np.zeros((2, 3, 4), np.float32)], {"axis": 0}),
    ("Floor", [floats], {}),
    ("Gather", [integers, np.array([[1, -1]])], {"axis": 1}),
    ("Gather", [integers, np.array(1)], {}),
    ("Greater", [integers, integers[0]], {}),
    ("LessOrEqual", [floats, floats[0]], {}),
    ("Log", [np.abs(floats)], {}),
    ("MatMul", [floats, floats.T.copy()], {}),
    ("Max", [floats, floats[::-1].copy(), floats[0]], {}),
    ("Min", [integers, integers[0]], {}),
    ("Mod", [integers, np.array([3, -3, 4])], {}),
    ("Mod", [floats, np.array([2, -2, 0.5], np.float32)], {"fmod": 1}),
    ("Mul", [floats, floats], {}),
    ("Neg", [integers], {}),
    ("NonZero", [integers], {}),
    ("Not", [integers > 0], {}),
    ("Or", [integers > 0, integers > 3], {}),
    ("Pow", [np.abs(floats), np.array([2], np.int64)], {}),
    ("Range", [np.array(2), np.array(9), np.array(3)], {}),
    ("Range", [np.array(9.0, np.float32), np.array(2.0, np.float32), np.array(-2.0, np.float32)], {}),
    ("Reciprocal", [floats], {}),
    ("ReduceMax", [floats], {"axes": [1], "keepdims": 0}),
    ("ReduceMean", [floats], {"axes": [0]}),
    ("ReduceMin", [floats], {}),
    ("ReduceProd", [floats], {"axes": [-1]}),
    ("ReduceSum", [floats, np.array([1])], {"keepdims": 0}),
    ("ReduceSum", [floats], {}),
    ("Reshape", [floats, np.array([0, -1, 1])], {}),
    ("Sign", [floats], {}),
    ("Slice", [floats, np.array([0]), np.array([2])], {}),
    ("Slice", [floats, np.array([-1, 2]), np.array([-99, -99]), np.array([0, 1]), np.array([-1, -2])], {}),
    ("Slice", [floats, np.array([9]), np.array([99]), np.array([-1])], {}),
    ("Sqrt", [np.abs(floats)], {}),
    ("Squeeze", [floats[None, :, None]], {}),
    ("Squeeze", [floats[None, :, None], np.array([-2])], {}),
    ("Sub", [integers, integers[0]], {}),
    ("Sum", [floats, floats, floats[0]], {}),
    ("Tile", [floats, np.array([2, 1])], {}),
    ("Transpose", [np.zeros((2, 3, 4), np.float32)], {}),
    ("Transpose", [np.arange(24, dtype=np.float32).reshape(2, 3, 4)], {"perm": [1, 2, 0]}),
    ("Unsqueeze", [floats, np.array([0, -1])], {}),
    ("Where", [integers > 0, floats, floats[0]], {}),
    ("Xor", [integers > 0, integers > 3], {}),
    ("Clip", [floats, np.array(-1, np.float32), np.array(1, np.float32)], {}),
    ("CumSum", [integers, np.array(1)], {"exclusive": 1}),
    ("GatherElements", [integers, np.array([[0, 1, 0]])], {"axis": 0}),
    ("OneHot", [np.array([0, 2]), np.array(3), np.array([0, 1])], {}),
    ("Pad", [floats, np.array([0, 1, 0, 2]), np.array(7, np.float32)], {}),
    ("Relu", [floats], {}),
    ("ScatterND", [floats, np.array([[1]]), floats[:1]], {}),
    ("Softmax", [floats], {"axis": 0}),
    ("Trilu", [floats], {"upper": 0}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), CASES)
def test_values_are_those_of_onnx_runtime(op_type: str, inputs: list[np.ndarray], attributes: dict[str, Any]) -> None:
    ours, theirs = compute(op_type, inputs, **attributes)
    for got, want in zip(ours, theirs, strict=True):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=2e-7)


def test_a_reduction_over_no_axes() -> None:
    (call,) = ir.from_proto(single("ReduceSum", {"x": (2, 3)}, noop_with_empty_axes=1)).graph
    np.testing.assert_array_equal(evaluate(call, [floats], 17)[0], floats)


def test_every_foldable_operator_is_known_to_onnx() -> None:
    for op_type in (*_FUNCTIONS, *_REFERENCE):
        onnx.defs.get_schema(op_type)
    assert not foldable(ir.Node("", "QuantizeLinear", []))
    assert not foldable(ir.Node("other", "Add", []))


@pytest.mark.parametrize(
    ("op_type", "inputs", "opset", "outputs", "attributes"),
    [
        ("Squeeze", [floats[None]], 11, 1, {"axes": [0]}),
        ("Unsqueeze", [floats], 11, 1, {"axes": [0, 3]}),
        ("Slice", [floats], 9, 1, {"starts": [1, 0], "ends": [9, -1]}),
        ("ReduceSum", [floats], 11, 1, {"axes": [-1]}),
        ("Split", [floats], 11, 2, {"axis": 1, "split": [1, 2]}),
        ("Split", [floats, np.array([2, 1])], 13, 2, {"axis": 1}),
        ("Split", [floats], 18, 2, {"axis": 1, "num_outputs": 2}),
        ("Split", [floats], 13, 2, {}),
    ],
)
def test_older_and_newer_forms(
    op_type: str, inputs: list[np.ndarray], opset: int, outputs: int, attributes: dict[str, Any]
) -> None:
    ours, theirs = compute(op_type, inputs, outputs, opset, **attributes)
    for got, want in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(got, want)


@given(
    st.integers(-9, 9),
    st.integers(-9, 9),
    st.integers(-4, 4).filter(bool),
    st.integers(1, 7),
    st.sampled_from([0, 1, -1]),
)
def test_slices_are_those_of_onnx_runtime(start: int, end: int, step: int, size: int, axis: int) -> None:
    data = np.arange(2 * size, dtype=np.int64).reshape(2, size)
    inputs = [data, *(np.array([v]) for v in (start, end, axis, step))]
    names = [f"i{k}" for k in range(5)]
    proto = single("Slice", {n: (a.shape, np.int64) for n, a in zip(names, inputs, strict=True)})
    (want,) = run_onnx(proto, dict(zip(names, inputs, strict=True)))
    (call,) = ir.from_proto(proto).graph
    (got,) = evaluate(call, inputs, 17)
    np.testing.assert_array_equal(got, want)


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=6), st.integers(-50, 50).filter(bool))
def test_integer_division_truncates(values: list[int], divisor: int) -> None:
    (call,) = ir.from_proto(single("Div", {"a": ((len(values),), np.int64), "b": ((), np.int64)})).graph
    (got,) = evaluate(call, [np.array(values), np.array(divisor)], 17)
    assert got.tolist() == [int(abs(v) // abs(divisor)) * (1 if (v < 0) == (divisor < 0) else -1) for v in values]


@given(st.lists(st.integers(1, 4), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_random_shape_arithmetic(dims: list[int], random: Any) -> None:
    """A random chain of shape arithmetic that ends in a Reshape gives the shape that onnx's reference gives."""
    from onnx.reference import ReferenceEvaluator

    order = list(range(len(dims)))
    random.shuffle(order)
    nodes = [
        node("Shape", ["x"], "s"),
        node("Gather", ["s", "order"], "g", axis=0),
        node("Cast", ["g"], "f", to=1),
        node("Mul", ["f", "two"], "m"),
        node("Div", ["m", "two"], "d"),
        node("Cast", ["d"], "t", to=7),
        node("Reshape", ["x", "t"], "y"),
    ]
    constants = {"order": np.array(order), "two": np.array(2, np.float32)}
    proto = network(nodes, {"x": tuple(dims)}, ["y"], constants)
    model = load(proto)
    assert operators(model) == ["Reshape"]
    (result,) = ReferenceEvaluator(proto).run(None, {"x": np.zeros(dims, np.float32)})
    assert model.outputs[0].shape == result.shape
