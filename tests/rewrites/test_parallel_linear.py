"""fuse-parallel-linear and split-parallel-linear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import node
from orinport.rewrites.catalogue import fuse_parallel_linear, split_parallel_linear
from rewrites.harness import SEEDS, Draw, Pattern, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx


def linear(
    draw: Draw, shape: tuple[int, ...], columns: int, name: str, shared: dict[int, str]
) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """A linear layer on x as MatMul, MatMul and Add in either order, or Gemm; biases may be shared."""
    inner, weights = shape[-1], f"{name}_w"
    bias = shared.setdefault(columns, f"{name}_b") if draw.chance(0.5) else f"{name}_b"
    constants = {weights: draw.array(inner, columns)}
    biased = draw.chance(0.6)
    if biased:
        constants[bias] = draw.array(columns)
    if len(shape) == 2 and draw.chance(0.4):
        attributes = {}
        if draw.chance(0.5):
            attributes["transB"] = 1
            constants[weights] = np.ascontiguousarray(constants[weights].T)
        return [node("Gemm", ["x", weights, *([bias] if biased else [])], name, **attributes)], constants
    if not biased:
        return [node("MatMul", ["x", weights], name)], constants
    added = [f"{name}_m", bias]
    nodes = [
        node("MatMul", ["x", weights], f"{name}_m"),
        node("Add", added[::-1] if draw.chance(0.4) else added, name),
    ]
    return nodes, constants


def generate_layers(draw: Draw) -> Pattern:
    shape = draw.shape(draw.choose([2, 3, 3, 4]), 1, 6)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    shared: dict[int, str] = {}
    outputs = [f"y{index}" for index in range(draw.integer(2, 4))]
    for name in outputs:
        made, weights = linear(draw, shape, draw.integer(1, 6), name, shared)
        nodes += made
        constants = weights | constants
    return Pattern(nodes, {"x": shape}, outputs, constants, draw.opset(13))


def generate_split(draw: Draw) -> Pattern:
    shape = draw.shape(draw.choose([2, 3, 3, 4]), 1, 6)
    sizes = [draw.integer(1, 4) for _ in range(draw.integer(2, 4))]
    nodes, constants = linear(draw, shape, sum(sizes), "t", {})
    opset = draw.opset(11)
    attributes: dict[str, Any] = {"axis": -1 if draw.chance(0.5) else len(shape) - 1}
    names = ["t"]
    if opset < 13:
        attributes["split"] = sizes
    else:
        constants["sizes"] = np.asarray(sizes)
        names.append("sizes")
    outputs = [f"y{index}" for index in range(len(sizes))]
    nodes.append(node("Split", names, outputs, **attributes))
    return Pattern(nodes, {"x": shape}, outputs, constants, opset)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    ("module", "generate"),
    [(fuse_parallel_linear, generate_layers), (split_parallel_linear, generate_split)],
    ids=["fuse", "split"],
)
def test_equal(module: Any, generate: Any, seeds: Sequence[int]) -> None:
    check_rewrite(module.REWRITE, generate, seeds)
