"""merge-scales: chains of scales and shifts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue.merge_scales import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    rank, channels = draw.choose([3, 4, 4]), draw.integer(1, 5)
    nodes, constants = [], {}
    for index in range(draw.integer(2, 4)):
        kind = draw.choose(["BatchNormalization", "Mul", "Add", "Sub", "Div"])
        source, result = ("x" if index == 0 else f"v{index}"), f"v{index + 1}"
        if kind == "BatchNormalization":
            names = [f"{part}{index}" for part in ("scale", "shift", "mean", "var")]
            constants |= {name: draw.array(channels) for name in names}
            constants[names[3]] = np.abs(constants[names[3]]) + draw.dtype(0.5)
            nodes.append(node(kind, [source, *names], result))
            continue
        shape = draw.choose([(), (channels, *[1] * (rank - 2))])
        constants[f"k{index}"] = np.asarray(draw.array(*shape) + draw.dtype(2.0))
        pair = [source, f"k{index}"]
        nodes.append(node(kind, pair if kind == "Div" or draw.chance(0.5) else pair[::-1], result))
    shape = (draw.integer(1, 2), channels, *draw.shape(rank - 2, 2, 5))
    return Pattern(nodes, {"x": shape}, [f"v{len(nodes)}"], constants, draw.opset())


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def test_a_constant_of_another_shape_ends_the_chain() -> None:
    constants = {"a": np.float32([2]), "b": np.float32([3]), "c": np.ones((1, 1, 1, 5), np.float32) * 2}
    nodes = [node("Mul", ["x", "a"], "u"), node("Add", ["u", "b"], "v"), node("Mul", ["v", "c"], "y")]
    model, _ = apply_to(network(nodes, {"x": (1, 3, 4, 5)}, ["y"], constants), REWRITE)
    assert [each.op_type for each in model.graph] == ["BatchNormalization", "Mul"]


def test_one_alone_stays() -> None:
    proto = network([node("Mul", ["x", "a"], "y")], {"x": (1, 3, 4, 5)}, ["y"], {"a": np.float32([2])})
    _, log = apply_to(proto, REWRITE)
    assert not log.applied
