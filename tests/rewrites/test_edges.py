"""Moved edges: the board's tensors, and the way back."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from builders import network, node, run_onnx
from orinport.model.load import load
from orinport.rewrites.edges import EdgeMapping, move_edges
from orinport.rewrites.shuffle import Shuffle


def test_the_formula_of_the_document() -> None:
    edge = EdgeMapping.of("input", "x", Shuffle.make((8, 6), (2, 4, 6), (0, 2, 1), (1, 2, 6, 4)))
    array = np.arange(48).reshape(8, 6)
    document = edge.document()
    assert list(document) == ["kind", "name", "original_shape", "expand", "perm", "shape"]
    board = array.reshape(document["expand"]).transpose(document["perm"]).reshape(document["shape"])
    np.testing.assert_array_equal(edge.to_board(array), board)
    np.testing.assert_array_equal(edge.from_board(board), array)
    assert EdgeMapping.from_document(document, "input") == edge
    assert edge.to_board(array).flags.c_contiguous


def _moved(nodes: list, inputs: dict, outputs: list, constants: dict | None = None) -> tuple:
    proto = network(nodes, inputs, outputs, constants)
    model = load(proto)
    before = ir.to_proto(model.ir).SerializeToString()
    moved, edges = move_edges(model)
    assert ir.to_proto(model.ir).SerializeToString() == before
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in inputs.items()}
    known = {(edge.kind, edge.name): edge for edge in edges}
    board = {
        name: known["input", name].to_board(array) if ("input", name) in known else array
        for name, array in feeds.items()
    }
    wanted, found = run_onnx(proto, feeds), run_onnx(ir.to_proto(moved.ir), board)
    for name, want, have in zip(outputs, wanted, found, strict=True):
        edge = known.get(("output", name))
        np.testing.assert_allclose(have if edge is None else edge.from_board(have), want, rtol=1e-6)
    return moved, edges


def test_both_edges_move() -> None:
    nodes = [
        node("Transpose", ["x"], "t", perm=[1, 0]),
        node("Reshape", ["t", "four"], "b"),
        node("Relu", ["b"], "r"),
        node("Flatten", ["r"], "y"),
    ]
    moved, edges = _moved(nodes, {"x": (8, 6)}, ["y"], {"four": np.asarray([1, 6, 2, 4], np.int64)})
    assert [each.op_type for each in moved.graph] == ["Relu"]
    assert [(edge.kind, edge.shape) for edge in edges] == [("input", (1, 6, 2, 4)), ("output", (1, 6, 2, 4))]
    assert [value.name for value in (*moved.graph.inputs, *moved.graph.outputs)] == ["x", "y"]
    assert "four" not in moved.graph.initializers


def test_an_input_with_several_readers_that_agree_moves() -> None:
    four = {"four": np.asarray([1, 6, 1, 1], np.int64)}
    nodes = [
        node("Reshape", ["x", "four"], "a"),
        node("Reshape", ["x", "four"], "b"),
        node("Relu", ["a"], "c"),
        node("Add", ["b", "c"], "y"),
    ]
    moved, edges = _moved(nodes, {"x": (1, 6)}, ["y"], four)
    assert [each.op_type for each in moved.graph] == ["Relu", "Add"]
    assert len(edges) == 1


def test_movers_through_other_ranks_go_as_a_whole() -> None:
    """From four dimensions over three to four again, at both edges: nothing stops half-way."""
    shapes = {"three": [1, 6, 4], "four": [1, 24, 1, 1], "flat": [6, 4], "back": [1, 3, 2, 4]}
    nodes = [
        node("Transpose", ["x"], "t", perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "three"], "a"),
        node("Reshape", ["a", "four"], "b"),
        node("Relu", ["b"], "r"),
        node("Reshape", ["r", "flat"], "c"),
        node("Reshape", ["c", "back"], "d"),
        node("Transpose", ["d"], "y", perm=[0, 2, 1, 3]),
    ]
    constants = {name: np.asarray(shape, np.int64) for name, shape in shapes.items()}
    moved, edges = _moved(nodes, {"x": (1, 2, 3, 4)}, ["y"], constants)
    assert [each.op_type for each in moved.graph] == ["Relu"]
    assert [edge.shape for edge in edges] == [(1, 24, 1, 1), (1, 24, 1, 1)]
    nodes[3:] = [node("Relu", ["b"], "y"), node("Neg", ["a"], "z")]  # read on the way, so it ends in front of that
    moved, edges = _moved(nodes, {"x": (1, 2, 3, 4)}, ["y", "z"], constants)
    assert [edge.shape for edge in edges] == [(1, 3, 2, 4)]


@pytest.mark.parametrize(
    ("nodes", "inputs", "outputs"),
    [
        (
            [node("Reshape", ["x", "four"], "a"), node("Relu", ["a"], "y"), node("Neg", ["x"], "z")],
            {"x": (1, 6)},
            ["y", "z"],
        ),
        (
            [node("Relu", ["x"], "a"), node("Flatten", ["a"], "y"), node("Neg", ["y"], "z")],
            {"x": (1, 6, 1, 1)},
            ["y", "z"],
        ),
        ([node("Relu", ["x"], "a"), node("Flatten", ["a"], "y")], {"x": (1, 6, 1, 1)}, ["y", "a"]),
        ([node("Flatten", ["x"], "y")], {"x": (1, 6, 1, 1)}, ["y"]),
        ([node("Relu", ["x"], "y")], {"x": (1, 6, 1, 1)}, ["y"]),
    ],
    ids=["input read raw too", "output read on", "source returned too", "nothing between", "no mover"],
)
def test_what_stays(nodes: list, inputs: dict, outputs: list) -> None:
    constants = {"four": np.asarray([1, 6, 1, 1], np.int64)} if any("four" in each.input for each in nodes) else {}
    _, edges = _moved(nodes, inputs, outputs, constants)
    assert not edges


def test_batch_is_not_mistaken_for_channels() -> None:
    nodes = [
        node("Reshape", ["x", "four"], "a"),
        node("MaxPool", ["a"], "b", kernel_shape=[1, 1]),
        node("Flatten", ["b"], "y"),
    ]
    _, edges = _moved(nodes, {"x": (4, 6)}, ["y"], {"four": np.asarray([4, 6, 1, 1], np.int64)})
    assert [edge.shape for edge in edges] == [(4, 6, 1, 1), (4, 6, 1, 1)]


def test_with_a_judge_only_what_keeps_the_dla_away_moves() -> None:
    nodes = [node("Reshape", ["x", "four"], "a"), node("Relu", ["a"], "y"), node("Flatten", ["y"], "z")]
    proto = network(nodes, {"x": (1, 6)}, ["z"], {"four": np.asarray([1, 6, 1, 1], np.int64)})
    assert len(move_edges(load(proto), judge=lambda _: {"Reshape_a", "Flatten_z"})[1]) == 2
    assert [edge.kind for edge in move_edges(load(proto), judge=lambda _: {"Reshape_a"})[1]] == ["input"]
    assert not move_edges(load(proto), judge=lambda _: set())[1]
    assert not move_edges(load(proto), judge=lambda _: {"Reshape_a", "Flatten_z", "Relu_y"})[1]
