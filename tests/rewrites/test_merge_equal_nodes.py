"""merge-equal-nodes: twins of every kind become one, and nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue.merge_equal_nodes import REWRITE
from orinport.rewrites.context import RewriteContext
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir


def generate(draw: Draw) -> Pattern:
    count = draw.integer(2, 4)
    kind = draw.choose(["Transpose", "Reshape", "Mul", "Relu", "MaxPool"])
    nodes, constants = [], {}
    for index in range(count):
        result = f"t{index}"
        if kind == "Transpose":
            nodes.append(node(kind, ["x"], result, perm=[0, 2, 3, 1]))
        elif kind == "Reshape":
            constants[f"s{index}"] = np.asarray([2, -1], np.int64)
            nodes.append(node(kind, ["x", f"s{index}"], result))
        elif kind == "Mul":
            constants["k"] = draw.array(4, 1, 1)
            nodes.append(node(kind, ["x", "k"], result))
        elif kind == "MaxPool":
            nodes.append(node(kind, ["x"], result, kernel_shape=[2, 2]))
        else:
            nodes.append(node(kind, ["x"], result))
    nodes += [node("Neg", [f"t{index}"], f"y{index}") for index in range(count)]
    outputs = [f"y{index}" for index in range(count)]
    return Pattern(nodes, {"x": (2, 4, 5, 6)}, outputs, constants, draw.opset(), nan=kind != "MaxPool")


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def test_different_attributes_stay_two() -> None:
    nodes = [node("Transpose", ["x"], "y", perm=[1, 0]), node("Transpose", ["x"], "z", perm=[0, 1])]
    _, log = apply_to(network(nodes, {"x": (3, 3)}, ["y", "z"]), REWRITE)
    assert not log.applied


def test_different_operand_order_stays_two() -> None:
    nodes = [node("Sub", ["x", "w"], "y"), node("Sub", ["w", "x"], "z")]
    _, log = apply_to(network(nodes, {"x": (3, 3), "w": (3, 3)}, ["y", "z"]), REWRITE)
    assert not log.applied


def test_two_outputs_of_the_network_stay_two() -> None:
    nodes = [node("Relu", ["x"], "y"), node("Relu", ["x"], "z")]
    _, log = apply_to(network(nodes, {"x": (3, 3)}, ["y", "z"]), REWRITE)
    assert not log.applied


@pytest.mark.parametrize("scaled", [False, True])
def test_many_readers_of_one_value_are_not_compared_pair_by_pair(monkeypatch: pytest.MonkeyPatch, scaled: bool) -> None:
    looked: list[object] = []
    consumers = RewriteContext.consumers

    def counted(self: RewriteContext, value: ir.Value) -> tuple[ir.Node, ...]:
        looked.append(value)
        return consumers(self, value)

    monkeypatch.setattr(RewriteContext, "consumers", counted)
    names = [f"y{i}" for i in range(500)]
    constants = {f"k{i}": np.asarray(i + 0.5, np.float32) for i in range(len(names))} if scaled else {}
    nodes = [node("Mul", ["x", f"k{i}"], y) if scaled else node("Relu", ["x"], y) for i, y in enumerate(names)]
    _, log = apply_to(network(nodes, {"x": (3, 3)}, names, constants), REWRITE)
    assert not log.applied
    assert len(looked) < 10


def test_a_merge_makes_the_next_one_possible() -> None:
    nodes = [
        *(node("Relu", ["x"], f"r{i}") for i in range(3)),
        *(node("Mul", [f"r{i}", "k"], f"m{i}") for i in range(3)),
        *(node("Neg", [f"m{i}"], f"y{i}") for i in range(3)),
    ]
    constants = {"k": np.asarray(2, np.float32)}
    model, log = apply_to(network(nodes, {"x": (3, 3)}, ["y0", "y1", "y2"], constants), REWRITE)
    assert len(log.applied) == 4
    assert [each.op_type for each in model.graph] == ["Relu", "Mul", "Neg", "Neg", "Neg"]


def test_zeros_of_both_signs_stay_two() -> None:
    constants = {"p": np.asarray(0.0, np.float32), "n": np.asarray(-0.0, np.float32)}
    nodes = [
        node("Mul", ["x", "p"], "a"),
        node("Mul", ["x", "n"], "b"),
        node("Neg", ["a"], "y"),
        node("Neg", ["b"], "z"),
    ]
    _, log = apply_to(network(nodes, {"x": (3, 3)}, ["y", "z"], constants), REWRITE)
    assert not log.applied
