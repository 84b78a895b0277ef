"""fuse-scale-into-conv: constants behind convolutions, in every operand order, with shared weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node, run_onnx
from orinport.rewrites.catalogue.fuse_scale_into_conv import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    rank = draw.choose([3, 4, 4, 4])
    group, transposed = draw.choose([1, 2]), draw.chance(0.3)
    channels, each = group * draw.integer(1, 3), draw.integer(1, 3)
    kernel = draw.shape(rank - 2, 1, 3)
    outputs = group * each
    constants = {
        "w": draw.array(channels, each, *kernel) if transposed else draw.array(outputs, channels // group, *kernel)
    }
    if draw.chance(0.5):
        constants["b"] = draw.array(outputs)
    op_type = "ConvTranspose" if transposed else "Conv"
    nodes = [node(op_type, ["x", *constants], "c0", group=group)]
    spread = (1,) * (rank - 2)
    for index in range(draw.integer(1, 3)):
        kind = draw.choose(["BatchNormalization", "Mul", "Add", "Sub", "Div"])
        source, result = f"c{index}", f"c{index + 1}"
        if kind == "BatchNormalization":
            names = [f"{part}{index}" for part in ("scale", "shift", "mean", "var")]
            constants |= {name: draw.array(outputs) for name in names}
            constants[names[3]] = np.abs(constants[names[3]]) + draw.dtype(0.5)
            nodes.append(node(kind, [source, *names], result, epsilon=1e-3))
            continue
        shape = draw.choose([(), (1,), (outputs, *spread), (1, outputs, *spread)])
        constants[f"k{index}"] = np.asarray(draw.array(*shape) + draw.dtype(2.0))
        pair = [source, f"k{index}"]
        nodes.append(node(kind, pair if kind == "Div" or draw.chance(0.5) else pair[::-1], result))
    last = f"c{len(nodes) - 1}"
    x = (draw.integer(1, 2), channels, *draw.shape(rank - 2, 3, 6))
    return Pattern(nodes, {"x": x}, [last], constants, draw.opset())


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def behind(*nodes: Any, **constants: np.ndarray) -> Any:
    """A 1x1 convolution of four channels `c` with `nodes` behind it."""
    weights = {"w": np.arange(16, dtype=np.float32).reshape(4, 4, 1, 1), **constants}
    return network([node("Conv", ["x", "w"], "c"), *nodes], {"x": (1, 4, 3, 3)}, ["y"], weights)


def test_shared_weights_are_scaled_once_for_each_user() -> None:
    factor = np.float32(3.0)
    nodes = [
        node("Conv", ["x", "w"], "c"),
        node("Mul", ["c", "k"], "m"),
        node("Conv", ["m", "w"], "d"),
        node("Mul", ["k", "d"], "y"),
    ]
    weights = np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1)
    proto = network(nodes, {"x": (1, 4, 3, 3)}, ["y"], {"w": weights, "k": np.asarray(factor)})
    model, _ = apply_to(proto, REWRITE)
    assert [each.op_type for each in model.graph] == ["Conv", "Conv"]
    import onnx_ir as ir

    x = np.ones((1, 4, 3, 3), np.float32)
    (result,) = run_onnx(ir.to_proto(model.ir), {"x": x})
    assert np.array_equal(result, x * 9)


def test_scaling_positions_is_refused() -> None:
    proto = behind(node("Mul", ["c", "k"], "y"), k=np.ones((3, 3), np.float32))
    check_refused(proto, REWRITE, "not one value a channel")


def test_dividing_by_zero_is_refused() -> None:
    check_refused(behind(node("Div", ["c", "k"], "y"), k=np.zeros(1, np.float32)), REWRITE, "divides by 0")


def test_a_result_with_other_readers_is_refused() -> None:
    proto = behind(node("Mul", ["c", "k"], "m"), node("Add", ["m", "c"], "y"), k=np.ones(1, np.float32) * 2)
    check_refused(proto, REWRITE, "something else reads")


def test_overflow_is_refused() -> None:
    proto = behind(node("Mul", ["c", "k"], "y"), k=np.full(1, 3e38, np.float32))
    check_refused(proto, REWRITE, "too large")


def test_training_mode_is_refused() -> None:
    parts = {name: np.ones(4, np.float32) for name in ("s", "b", "m", "v")}
    proto = behind(node("BatchNormalization", ["c", *parts], ["y", "om", "ov"], training_mode=1), **parts)
    check_refused(proto, REWRITE, "training mode")
