"""The builder: names, constants, shapes and types, the forms of each opset, metadata."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from builders import network, node, run_onnx
from orinport.model.load import load
from orinport.rewrites.builder import REPLACES, REWRITE, Builder, Names, RefusedError
from orinport.rewrites.context import RewriteContext
from orinport.rewrites.rewrite import Match, Rewrite, Safety
from rewrites.harness import apply_to


class Anything(Rewrite):
    """Replaces Relu by what the test builds."""

    name = "anything"
    safety = Safety.EXACT
    op_types = ("Relu",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match:
        return Match((node,), (node.outputs[0],))

    def apply(self, match: Match, builder: Builder) -> list[ir.Value]:
        raise NotImplementedError


def make(opset: int = 17, shape: tuple[int, ...] = (2, 3, 4), **names: str) -> tuple[Builder, ir.Value]:
    nodes = [node("Neg", ["x"], "a"), node("Relu", ["a"], "y", **names)]
    model = load(network(nodes, {"x": shape}, ["y"], opset=opset))
    context = RewriteContext(model.ir)
    relu = next(each for each in model.graph if each.op_type == "Relu")
    builder = Builder(context, Match((relu,), (relu.outputs[0],)), Anything(), Names(model.ir), {})
    value = relu.inputs[0]
    assert value is not None
    return builder, value


def test_names_are_unique_and_say_where_they_come_from() -> None:
    builder, value = make(name="Relu_y")
    first, second = builder.op("Abs", value), builder.op("Abs", value)
    assert [each.name for each in builder.nodes] == ["Relu_y/Abs", "Relu_y/Abs_1"]
    assert first.name != second.name
    unnamed, value = make(name="")
    unnamed.op("Abs", value)
    assert unnamed.nodes[0].name == "Relu_y/Abs"
    assert unnamed.nodes[0].metadata_props[REPLACES] == "Relu:y"


def test_names_of_subgraphs_are_taken_too() -> None:
    branch = onnx.helper.make_graph(
        [onnx.helper.make_node("Neg", ["x"], ["inner"])], "b", [], [onnx.ValueInfoProto(name="inner")]
    )
    nodes = [node("If", ["c"], "y", then_branch=branch, else_branch=branch)]
    model = load(network(nodes, {"x": (2,), "c": ((), np.bool_)}, {"y": (2,)}))
    assert Names(model.ir).unique("inner") != "inner"


def test_constants_of_equal_content_are_one() -> None:
    builder, value = make()
    assert builder.ints([1, 2]) is builder.ints([1, 2])
    assert builder.ints([1, 2]) is not builder.ints([2, 1])
    assert builder.like(value, 1.0) is not builder.constant(np.asarray(1.0))
    large = np.zeros(1000, np.float32)
    assert builder.constant(large) is not builder.constant(large)


def test_shapes_and_types_are_inferred() -> None:
    builder, value = make()
    made = builder.op("Concat", value, value, axis=1)
    assert builder.shape(made) == (2, 6, 4)
    assert made.dtype == ir.DataType.FLOAT
    assert builder.shape(builder.op("Shape", value)) == (3,)
    top = builder.op("TopK", value, builder.ints([2]), outputs=2)
    indices = top.producer().outputs[1]
    assert (builder.shape(indices), indices.dtype) == ((2, 3, 2), ir.DataType.INT64)


def test_what_onnx_refuses_is_a_refusal() -> None:
    builder, value = make()
    with pytest.raises(RefusedError, match="Concat"):
        builder.op("Concat", value, builder.constant(np.zeros((2, 3, 5, 1), np.float32)), axis=1)
    with pytest.raises(RefusedError):
        builder.op("Conv", value)


def test_nothing_is_built_for_nothing() -> None:
    builder, value = make()
    assert builder.reshape(value, (2, 3, 4)) is value
    assert builder.transpose(value, (0, 1, 2)) is value
    assert not builder.nodes


def test_discarded_nodes_leave_no_uses() -> None:
    builder, value = make()
    uses = len(value.uses())
    builder.op("Abs", builder.op("Neg", value))
    assert len(value.uses()) == uses + 1
    builder.discard()
    assert len(value.uses()) == uses


class Forms(Anything):
    """LeakyRelu of two slices: an operator whose form changed between opsets."""

    name = "forms"
    op_types = ("LeakyRelu",)

    def apply(self, match: Match, builder: Builder) -> list[ir.Value]:
        value = match.nodes[0].inputs[0]
        assert value is not None
        top, rest = builder.slice(value, 1, 0, 1), builder.slice(value, 1, 1, 3)
        whole = builder.op("Concat", top, rest, axis=1)
        return [builder.op("Max", whole, builder.op("Mul", whole, builder.like(whole, 0.5)))]


@pytest.mark.parametrize("opset", [9, 10, 11, 13, 18, 21])
def test_forms_of_every_opset(opset: int) -> None:
    nodes = [node("Neg", ["x"], "a"), node("LeakyRelu", ["a"], "y", alpha=0.5)]
    proto = network(nodes, {"x": (2, 3, 4)}, ["y"], opset=opset)
    model, log = apply_to(proto, Forms())
    assert log.counts() == {"forms": 1}
    rewritten = ir.to_proto(model.ir)
    onnx.checker.check_model(rewritten, full_check=True)
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)}
    np.testing.assert_array_equal(run_onnx(rewritten, feeds)[0], run_onnx(proto, feeds)[0])


@pytest.mark.parametrize(("opset", "inputs", "attributes"), [(10, 1, {"min", "max"}), (11, 3, set()), (21, 3, set())])
def test_clip_of_every_opset(opset: int, inputs: int, attributes: set[str]) -> None:
    builder, value = make(opset)
    builder.clip(value, 0.0, 6.0)
    (clip,) = builder.nodes
    assert len(clip.inputs) == inputs
    assert set(clip.attributes) == attributes
    builder.clip(value, None, 6.0)
    if opset >= 11:
        assert builder.nodes[1].inputs[1] is None


def test_metadata_of_several_nodes_is_merged() -> None:
    nodes = [node("Neg", ["x"], "a"), node("Relu", ["a"], "b"), node("Reshape", ["b", "s"], "y")]
    nodes[0].metadata_props.add(key="pkg", value="first")
    nodes[1].metadata_props.add(key=REWRITE, value="earlier")
    nodes[1].metadata_props.add(key=REPLACES, value="one\ntwo")
    nodes[2].metadata_props.add(key="mover", value="leaves no trace")
    model = load(network(nodes, {"x": (2, 3)}, ["y"], {"s": np.asarray([6], np.int64)}))
    matched = tuple(model.graph)
    builder = Builder(
        RewriteContext(model.ir), Match(matched, (matched[-1].outputs[0],)), Anything(), Names(model.ir), {}
    )
    value = matched[0].inputs[0]
    builder.op("Abs", value)
    assert builder.nodes[0].metadata_props == {
        "pkg": "first",
        REWRITE: "earlier;anything",
        REPLACES: "Neg_a\none\ntwo",
    }


def test_constants_are_read_only_and_overridable_ones_are_none() -> None:
    model = load(network([node("Add", ["x", "k"], "y")], {"x": (2,)}, ["y"], {"k": np.ones(2, np.float32)}))
    context = RewriteContext(model.ir)
    array = context.constant(model.graph.initializers["k"])
    assert array is not None
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 2.0
    model.graph.inputs.append(model.graph.initializers["k"])
    assert context.constant(model.graph.initializers["k"]) is None
