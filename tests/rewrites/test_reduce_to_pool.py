"""reduce-to-pool: means and maxima of any window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue.reduce_to_pool import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = (1, 2, 3, 5, 7, 8, 9, 12, 13, 14, 16, 17, 20, 23, 37, 49, 53)


def generate(draw: Draw) -> Pattern:
    n, c = draw.integer(1, 3), draw.integer(1, 4)
    spatial = tuple(draw.choose(SIZES) for _ in range(draw.integer(1, 2)))
    opset = draw.opset()
    op_type = draw.choose(["GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceMax"])
    if op_type.startswith("Global"):
        if draw.chance(0.2):
            spatial = (2, *spatial)
        pattern = Pattern([node(op_type, ["x"], "y")], {"x": (n, c, *spatial)}, ["y"], {}, opset)
        pattern.nan = "Max" not in op_type
        pattern.applies = None if set(spatial) == {1} else True
        return pattern
    rank = 2 + len(spatial)
    axes = draw.choose([list(range(2, rank)), [rank - 1], [-1], list(range(-len(spatial), 0)), [2]])
    attributes = {"keepdims": draw.integer(0, 1)}
    constants, names = {}, ["x"]
    if opset >= 18:
        constants["axes"] = np.asarray(axes, np.int64)
        names.append("axes")
    else:
        attributes["axes"] = axes
    nodes = [node(op_type, names, "y", **attributes)]
    pattern = Pattern(nodes, {"x": (n, c, *spatial)}, ["y"], constants, opset, nan="Max" not in op_type)
    if all(([n, c, *spatial])[axis] == 1 for axis in axes):
        pattern.applies = None  # nothing is reduced, and nothing may be left between input and output
    return pattern


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


@pytest.mark.parametrize(
    ("size", "made"),
    [
        ((7, 7), ["AveragePool"]),
        ((49, 49), ["AveragePool", "AveragePool"]),
        ((13, 13), ["Conv"]),
        ((37, 37), ["AveragePool", "AveragePool", "Mul"]),
    ],
)
def test_what_a_global_mean_becomes(size: tuple[int, int], made: list[str]) -> None:
    proto = network([node("GlobalAveragePool", ["x"], "y")], {"x": (1, 16, *size)}, ["y"])
    model, log = apply_to(proto, REWRITE)
    assert [each.op_type for each in model.graph] == made
    assert all(max(each.attributes["kernel_shape"].as_ints()) <= 32 for each in model.graph if each.op_type == "Conv")
    assert len(log.applied) == 1


def test_mean_too_wide_for_the_convolution_buffer_is_pooled() -> None:
    proto = network([node("GlobalAveragePool", ["x"], "y")], {"x": (1, 1000, 13, 13)}, ["y"])
    model, _ = apply_to(proto, REWRITE)
    assert [each.op_type for each in model.graph] == ["AveragePool", "AveragePool", "Mul"]


def test_pools_stay_within_the_limit() -> None:
    for size in range(1, 200):
        proto = network([node("GlobalMaxPool", ["x"], "y")], {"x": (1, 1, size, 3)}, ["y"])
        model, log = apply_to(proto, REWRITE)
        pools = [each for each in model.graph if each.op_type == "MaxPool"]
        assert all(max(each.attributes["kernel_shape"].as_ints()) <= 8 for each in pools)
        assert all(max(each.attributes["pads"].as_ints()) <= 7 for each in pools)
        assert log.applied


def test_channels_are_refused() -> None:
    proto = network([node("ReduceMean", ["x"], "y", axes=[1, 2, 3])], {"x": (1, 4, 5, 5)}, ["y"])
    check_refused(proto, REWRITE, "the batch or the channels")


def test_integers_are_refused() -> None:
    proto = network([node("ReduceMax", ["x"], "y", axes=[2, 3])], {"x": ((1, 4, 5, 5), np.int32)}, ["y"])
    check_refused(proto, REWRITE, "INT32")


def test_a_maximum_behind_a_mask_is_refused() -> None:
    nodes = [node("Where", ["c", "x", "low"], "m"), node("ReduceMax", ["m"], "y", axes=[3])]
    constants = {"low": np.asarray(-np.inf, np.float32)}
    proto = network(nodes, {"c": ((1, 2, 4, 4), np.bool_), "x": (1, 2, 4, 4)}, ["y"], constants)
    check_refused(proto, REWRITE, "-inf")
