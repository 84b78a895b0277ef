"""Models back to files: complete, atomic, with what the original carried."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from builders import HOSTILE_NAMES, light_path, network, node, random_feeds, run_onnx, small_cnn
from orinport.errors import OrinportError
from orinport.model import copy_model, load, save, to_proto

if TYPE_CHECKING:
    from pathlib import Path

    from orinport.model.model import Model


def same_results(model: Model | Path, proto: onnx.ModelProto) -> None:
    feeds = random_feeds(proto)
    given = onnx.ModelProto.FromString(model.read_bytes()) if not hasattr(model, "ir") else to_proto(model)
    for got, want in zip(run_onnx(given, feeds), run_onnx(proto, feeds), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("through_ir", [False, True])
def test_what_is_saved_is_what_was_loaded(tmp_path: Path, through_ir: bool) -> None:
    proto = small_cnn()
    proto.doc_string = "about"
    proto.metadata_props.add(key="author", value="somebody")
    proto.graph.doc_string = "graph"
    proto.graph.node[0].doc_string = "first"
    proto.graph.node[0].metadata_props.add(key="origin", value="layer.0")
    target = tmp_path / "out.onnx"
    source = ir.from_proto(proto) if through_ir else proto
    assert save(load(source), target) == (target,)
    onnx.checker.check_model(str(target), full_check=True)
    again = onnx.ModelProto.FromString(target.read_bytes())
    same_results(target, proto)
    assert again.doc_string == "about"
    assert again.producer_name == "tests"
    assert {e.key: e.value for e in again.metadata_props} == {"author": "somebody"}
    assert again.graph.doc_string == "graph"
    assert again.graph.node[0].doc_string == "first"
    assert again.graph.node[0].metadata_props[0].value == "layer.0"
    assert [n.name for n in again.graph.node] == [n.name for n in proto.graph.node]
    assert list(tmp_path.iterdir()) == [target]


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    model = load(light_path("squeezenet"))
    save(model, tmp_path / "a.onnx")
    save(load(tmp_path / "a.onnx"), tmp_path / "b.onnx")
    save(model, tmp_path / "c.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "c.onnx").read_bytes()
    first, second = load(tmp_path / "a.onnx"), load(tmp_path / "b.onnx")
    assert [n.name for n in first.graph] == [n.name for n in second.graph]
    assert first.outputs == second.outputs


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64", "bool"])
def test_weights_are_written_as_they_are(dtype: str, tmp_path: Path) -> None:
    """Large ones go past the proto into the file: bytes, order, names and what is noted on them stay."""
    rng = np.random.default_rng(0)
    sizes = [(3,), (40, 60), (), (5000,), (2, 0)]
    arrays = [(rng.standard_normal(size) * 50).astype(dtype) for size in sizes]
    weights = {f"w{index}": np.asarray(array) for index, array in enumerate(arrays)}
    nodes = [node("Identity", [name], f"{name}_out") for name in weights]
    proto = network(nodes, {}, [f"{name}_out" for name in weights], weights)
    for tensor in proto.graph.initializer:
        tensor.doc_string = f"about {tensor.name}"
    target = tmp_path / "out.onnx"
    save(load(proto), target)
    onnx.checker.check_model(str(target), full_check=True)
    written = onnx.ModelProto.FromString(target.read_bytes())
    assert len(target.read_bytes()) == written.ByteSize()
    assert [tensor.name for tensor in written.graph.initializer] == list(weights)
    for tensor, array in zip(written.graph.initializer, arrays, strict=True):
        assert tensor.data_location == onnx.TensorProto.DEFAULT
        assert not tensor.external_data
        assert tensor.doc_string == f"about {tensor.name}"
        found = onnx.numpy_helper.to_array(tensor)
        assert found.dtype == array.dtype
        assert found.tobytes() == array.tobytes()


def test_large_weights_go_to_a_second_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["orinport.model.save"], "EMBEDDED_BYTES", 10_000)
    rng = np.random.default_rng(0)
    nodes = [node("MatMul", ["x", "a"], "m"), node("MatMul", ["m", "b"], "n"), node("Reshape", ["n", "s"], "y")]
    constants = {
        "a": rng.normal(size=(48, 64)).astype(np.float32),
        "b": rng.normal(size=(64, 31)).astype(np.float32),
        "s": np.array([31, 1]),
    }
    proto = network(nodes, {"x": (1, 48)}, ["y"], constants)
    model = load(proto)
    with pytest.raises(OrinportError, match="more than one ONNX file holds"):
        to_proto(model)
    target = tmp_path / "out.onnx"
    assert save(model, target) == (target, tmp_path / "out.onnx.data")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.onnx", "out.onnx.data"]
    onnx.checker.check_model(str(target), full_check=True)
    assert target.stat().st_size < 2000
    again = load(target)
    for name, array in constants.items():
        read = again.constant(again.graph.initializers[name])
        assert read is not None
        np.testing.assert_array_equal(read, array)
    offset = again.graph.initializers["b"].const_value.offset  # type: ignore[union-attr]
    assert offset % 4096 == 0
    assert again.outputs[0].shape == (31, 1)
    assert isinstance(model.graph.initializers["a"].const_value, ir.TensorProtocol)
    assert not isinstance(model.graph.initializers["a"].const_value, ir.ExternalTensor)

    save(again, target)
    monkeypatch.undo()
    third = load(target)
    np.testing.assert_array_equal(third.constant(third.graph.initializers["a"]), constants["a"])
    save(third, tmp_path / "one.onnx")
    same_results(tmp_path / "one.onnx", proto)
    written = save(third, tmp_path / "two.onnx", apart=True)
    assert [path.name for path in written] == ["two.onnx", "two.onnx.data"]
    same_results(load(tmp_path / "two.onnx"), proto)


def test_an_existing_file_is_replaced_or_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out.onnx"
    target.write_text("old")
    save(load(small_cnn()), target)
    new = target.read_bytes()
    assert len(new) > 1000

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    other = load(light_path("squeezenet"))
    monkeypatch.setattr("pathlib.Path.open", fail)
    with pytest.raises(OrinportError, match=r"out\.onnx' cannot be written: No space left"):
        save(other, target)
    monkeypatch.undo()
    assert target.read_bytes() == new
    assert list(tmp_path.iterdir()) == [target]


def test_folders_that_do_not_exist_or_may_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(OrinportError, match="cannot be written"):
        save(load(small_cnn()), tmp_path / "missing" / "out.onnx")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OrinportError, match="cannot be written"):
        save(load(small_cnn()), tmp_path / "folder")
    assert list((tmp_path / "folder").iterdir()) == []


def test_file_modes_are_those_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "any").touch()
    save(load(small_cnn()), tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").stat().st_mode == (tmp_path / "any").stat().st_mode


@pytest.mark.parametrize("name", [n for n in HOSTILE_NAMES if "/" not in n])
def test_hostile_file_names(name: str, tmp_path: Path) -> None:
    save(load(small_cnn()), tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert load(tmp_path / name).name == name


def test_copies_are_independent() -> None:
    model = load(small_cnn())
    copy = copy_model(model)
    first = next(iter(copy.graph))
    first.name = "renamed"
    first.outputs[0].shape = ir.Shape([1])
    copy.graph.remove(list(copy.graph)[-1])
    assert next(iter(model.graph)).name == "Conv_c1"
    assert next(iter(model.graph)).outputs[0].shape == ir.Shape([1, 8, 16, 16])
    assert len(model.graph) == 8
    for name, value in model.graph.initializers.items():
        assert copy.graph.initializers[name] is not value
        assert copy.graph.initializers[name].const_value is value.const_value
    assert (copy.name, copy.path) == (model.name, model.path)


def test_copies_with_subgraphs_and_known_constants() -> None:
    then = helper.make_graph([node("Add", ["x", "w"], "t")], "then", [], [onnx.ValueInfoProto(name="t")])
    other = helper.make_graph([node("Neg", ["x"], "e")], "else", [], [onnx.ValueInfoProto(name="e")])
    nodes = [
        node("ConstantOfShape", ["s"], "w", value=helper.make_tensor("v", 1, [1], [2.0])),
        node("If", ["c"], "y", then_branch=then, else_branch=other),
    ]
    proto = network(nodes, {"x": ((400, 400), np.float32), "c": ((), np.bool_)}, ["y"], {"s": np.array([400, 400])})
    copy = copy_model(load(proto))
    same_results(copy, proto)
    assert copy.is_constant(next(iter(copy.graph)).outputs[0])


def test_large_constants_of_subgraphs_and_attributes_are_kept() -> None:
    weights = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32)
    held = [onnx.numpy_helper.from_array(weights, "w")]
    then = helper.make_graph([node("Add", ["x", "w"], "t")], "then", [], [onnx.ValueInfoProto(name="t")], held)
    constant = node("Constant", [], "k", value=onnx.numpy_helper.from_array(2 * weights))
    steps = [constant, node("Mul", ["x", "k"], "e")]
    other = helper.make_graph(steps, "else", [], [onnx.ValueInfoProto(name="e")])
    call = node("If", ["c"], "y", then_branch=then, else_branch=other)
    proto = network([call], {"x": (40, 40), "c": ((), np.bool_)}, ["y"])
    model = load(proto)
    for condition in (True, False):
        feeds = {"x": weights[::-1].copy(), "c": np.array(condition)}
        np.testing.assert_array_equal(run_onnx(to_proto(model), feeds)[0], run_onnx(proto, feeds)[0])
    odd = node("Odd", ["x"], "y", domain="other", table=onnx.numpy_helper.from_array(weights))
    again = load(network([odd], {"x": (1,)}, ["y"], domains={"other": 1}))
    np.testing.assert_array_equal(next(iter(again.graph)).attributes["table"].as_tensor().numpy(), weights)
