"""A network in parts and joined again."""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

from orinport.model.load import load
from orinport.rewrites.parts import join_models, split_model
from orinport.rewrites.proof import compare_models


def halves() -> onnx.ModelProto:
    """A Split whose halves are each computed in one part and read in a third, and an input that nothing reads."""
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], name="split", axis=1, num_outputs=2),
        helper.make_node("Relu", ["a"], ["c"], name="relu"),
        helper.make_node("Neg", ["b"], ["d"], name="neg"),
        helper.make_node("Sub", ["a", "b"], ["e"], name="sub"),
        helper.make_node("Add", ["c", "d"], ["f"], name="add"),
        helper.make_node("Mul", ["e", "f"], ["y"], name="mul"),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 2, 2]) for name in ("x", "unread")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 2, 2]) for name in ("y", "b")]
    graph = helper.make_graph(nodes, "halves", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_parts_that_compute_a_node_twice_join_to_the_network() -> None:
    model = load(halves())
    groups = [{"split", "relu"}, {"split", "neg"}, {"sub", "add", "mul"}]
    parts = split_model(model, groups, {"a": 0, "c": 0, "b": 1, "d": 1, "y": 2})
    assert [[value.name for value in part.graph.outputs] for part in parts] == [["a", "c"], ["b", "d"], ["y"]]
    joined = join_models(parts, model)
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(ir.to_proto(joined.ir)), full_check=True)
    assert {value.name for value in joined.graph.inputs} == {"x", "unread"}
    assert compare_models(model, joined).equal
