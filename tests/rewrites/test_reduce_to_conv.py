"""reduce-to-conv and reduce-max-to-pool: reductions over any axes of any rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue import reduce_max_to_pool, reduce_to_conv
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

SUMS, MAXIMA = reduce_to_conv.REWRITE, reduce_max_to_pool.REWRITE


def reduction(draw: Draw, op_types: Sequence[str]) -> Pattern:
    op_type = draw.choose(op_types)
    opset = draw.opset()
    rank = draw.choose([2, 3, 4, 4, 4, 5])
    shape = (draw.choose([1, 2]), *(draw.choose([1, 2, 3, 5, 9, 13, 17]) for _ in range(min(rank, 4) - 1)))
    shape = (*shape, 2) if rank == 5 else shape
    axes = [axis for axis in range(1, rank) if draw.chance(0.5)] or [1]
    named = [axis - rank if draw.chance(0.3) else axis for axis in axes]
    if op_type == "GlobalLpPool":
        shape = shape[:2] + (shape[2:] or (3,))
        call = node(op_type, ["x"], "y", p=draw.integer(1, 2))
        pattern = Pattern([call], {"x": shape}, ["y"], {}, opset)
        pattern.applies = None if set(shape[2:]) == {1} else True
        return pattern
    attributes: dict[str, Any] = {"keepdims": draw.integer(0, 1)}
    constants, names = {}, ["x"]
    if opset >= (13 if op_type == "ReduceSum" else 18):
        constants["axes"] = np.asarray(named, np.int64)
        names.append("axes")
    else:
        attributes["axes"] = named
    pattern = Pattern([node(op_type, names, "y", **attributes)], {"x": shape}, ["y"], constants, opset)
    pattern.applies = None
    if rank in (2, 4) and any(shape[axis] > 1 for axis in axes) and 1 in axes:
        pattern.applies = True
    return pattern


def sums(draw: Draw) -> Pattern:
    return reduction(draw, SUMS.op_types)


def maxima(draw: Draw) -> Pattern:
    pattern = reduction(draw, MAXIMA.op_types)
    pattern.nan = False
    pattern.special = "ReduceMin" not in {each.op_type for each in pattern.nodes}
    return pattern


@pytest.mark.parametrize("seeds", SEEDS)
def test_sums_are_equal(seeds: Sequence[int]) -> None:
    check_rewrite(SUMS, sums, seeds)


@pytest.mark.parametrize("seeds", SEEDS)
def test_maxima_are_equal(seeds: Sequence[int]) -> None:
    check_rewrite(MAXIMA, maxima, seeds)


@pytest.mark.parametrize(
    ("op_type", "axes", "made"),
    [
        ("ReduceSum", [1], ["Conv"]),
        ("ReduceMean", [1, 2, 3], ["Conv"]),
        ("ReduceL1", [1], ["Abs", "Conv"]),
        ("ReduceL2", [1], ["Mul", "Conv", "Pow"]),
        ("ReduceSumSquare", [2, 3], ["Mul", "AveragePool", "Mul"]),
    ],
)
def test_what_becomes_of_it(op_type: str, axes: list[int], made: list[str]) -> None:
    constants = {"axes": np.asarray(axes, np.int64)}
    proto = network([node(op_type, ["x", "axes"], "y")], {"x": (1, 16, 8, 8)}, ["y"], constants, opset=18)
    model, _ = apply_to(proto, SUMS)
    assert [each.op_type for each in model.graph] == made


def reduced(op_type: str, shape: tuple[int, ...], axes: list[int], dtype: Any = np.float32) -> Any:
    return network([node(op_type, ["x"], "y", axes=axes)], {"x": (shape, dtype)}, ["y"], opset=11)


@pytest.mark.parametrize("rewrite", [SUMS, MAXIMA])
def test_refusals(rewrite: Any) -> None:
    op_type = rewrite.op_types[-1]
    check_refused(reduced(op_type, (2, 3, 4, 4), [0, 1]), rewrite, "the batch")
    check_refused(reduced(op_type, (1, 3, 4, 4), [1], np.int32), rewrite, "INT32")
    check_refused(reduced(op_type, (1, 2, 2, 2, 2, 2), [1, 3, 5]), rewrite, "alternate")
    check_refused(reduced(op_type, (1, 9000), [1]), rewrite, "8192")


def test_other_norms_are_refused() -> None:
    proto = network([node("GlobalLpPool", ["x"], "y", p=3)], {"x": (1, 3, 4, 4)}, ["y"])
    check_refused(proto, SUMS, "power 3")


def test_masked_maxima_are_refused() -> None:
    nodes = [node("Add", ["x", "mask"], "m"), node("ReduceMax", ["m"], "y", axes=[1])]
    proto = network(nodes, {"x": (1, 3, 4, 4)}, ["y"], {"mask": np.float32([-np.inf])}, opset=11)
    check_refused(proto, MAXIMA, "infinite")
