"""merge-equal-nodes: twins of every kind become one, and nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue.merge_equal_nodes import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


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
