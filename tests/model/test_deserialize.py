"""Flat networks as onnx_ir models: equal to what onnx_ir itself makes of them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from builders import HOSTILE_NAMES, LIGHT, light_path, network, node, thin_network
from orinport.model import load
from orinport.model.deserialize import deserialize_flat


def both(proto: onnx.ModelProto) -> tuple[bytes, bytes]:
    """The network through our reader and through onnx_ir's, as files."""
    given = onnx.ModelProto.FromString(proto.SerializeToString())
    weights = {tensor.name: ir.serde.deserialize_tensor(tensor) for tensor in given.graph.initializer}
    ours = deserialize_flat(given, weights)
    theirs = ir.serde.deserialize_model(proto)
    return tuple(ir.to_proto(model).SerializeToString(deterministic=True) for model in (ours, theirs))


@pytest.mark.parametrize("name", [name for name in LIGHT if name != "vgg19"])
def test_light_networks(name: str) -> None:
    ours, theirs = both(onnx.load(light_path(name)))  # noqa: TID251 the package's own file
    assert ours == theirs


def test_every_field_of_a_node() -> None:
    """Attributes of all flat types, equal and almost equal ones, left-out inputs and outputs, texts and metadata."""
    tensor = helper.make_tensor("t", onnx.TensorProto.FLOAT, (2,), [1.0, 2.0])
    attributes = {"f": 0.5, "i": 1, "s": "text", "fs": [1.0, 2.0], "is": [1, 2], "ss": ["a", "b"], "t": tensor}
    nodes = [
        node("Foo", ["x", "", "w"], ["a", ""], domain="custom", **attributes),
        node("Foo", ["a"], "b", domain="custom", **attributes),
        node("Foo", ["b"], "c", domain="custom", **{**attributes, "i": 2}),
        *[node("Relu", ["c"], f"r {name}", name=name) for name in HOSTILE_NAMES],
        node("Clip", ["c", "", "w"], "y", name=""),
    ]
    nodes[0].doc_string = "what it is for"
    nodes[1].overload = "second"
    entry = nodes[1].metadata_props.add()
    entry.key, entry.value = "pkg", "value"
    proto = network(nodes, {"x": (1, 4)}, {"y": (1, 4)}, {"w": np.ones((), np.float32)}, domains={"custom": 1})
    proto.graph.output.append(helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, ()))
    ours, theirs = both(proto)
    assert ours == theirs


def test_new_values_take_no_name_of_the_file() -> None:
    """onnx_ir calls them val_0, val_1 and so on, as PyTorch's exporter does."""
    nodes = [node("Add", ["val_0", "val_1"], "val_2"), node("Relu", ["val_2"], "val_3")]
    proto = network(nodes, {"val_0": (1, 4)}, {"val_3": (1, 4)}, {"val_1": np.ones((1, 4), np.float32)})
    graph = load(proto).ir.graph
    added = [ir.Node("", "Relu", [graph.inputs[0]]) for _ in range(4)]
    graph.extend(added)
    assert not {each.outputs[0].name for each in added} & {"val_0", "val_1", "val_2", "val_3"}
    onnx.checker.check_model(ir.to_proto(load(proto).ir))


def test_equal_attributes_are_made_once() -> None:
    model = load(thin_network(400))
    windows = [n.attributes["kernel_shape"] for n in model.graph if n.op_type == "MaxPool"]
    assert len(windows) > 50
    assert len({id(window) for window in windows}) == 1


def test_a_replaced_attribute_is_that_of_one_node() -> None:
    model = load(thin_network(40))
    pools = [n for n in model.graph if n.op_type == "MaxPool"]
    pools[0].attributes["kernel_shape"] = ir.AttrInt64s("kernel_shape", [5, 5])
    assert list(pools[1].attributes["kernel_shape"].as_ints()) == [3, 3]
