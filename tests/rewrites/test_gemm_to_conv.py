"""gemm-to-conv: both sides, both transpositions, alpha, beta and every form of C."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue.gemm_to_conv import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    m, k, n = draw.integer(1, 9), draw.integer(1, 9), draw.integer(1, 9)
    left, trans_a, trans_b = draw.chance(0.3), draw.integer(0, 1), draw.integer(0, 1)
    opset = draw.opset()
    a, b = ((k, m) if trans_a else (m, k)), ((n, k) if trans_b else (k, n))
    inputs, constants, names = {}, {}, ["a", "b"]
    constants["a" if left else "b"] = draw.array(*(a if left else b))
    inputs["b" if left else "a"] = b if left else a
    if opset < 11 or draw.chance(0.75):
        names.append("c")
        form = draw.choose([(), (1,), (n,), (1, n), (m, 1), (m, n), (1, 1)])
        if draw.chance(0.7):
            constants["c"] = draw.array(*form)
        else:
            inputs["c"] = draw.choose([(m, n), (1,), (n,) if not left else (m, 1)])
    attributes = {"transA": trans_a, "transB": trans_b}
    if draw.chance(0.5):
        attributes |= {"alpha": draw.choose([0.5, -2.0, 1.7]), "beta": draw.choose([0.25, 3.0, 0.0])}
    nodes = [node("Gemm", names, "y", **attributes)]
    return Pattern(nodes, inputs, ["y"], constants, opset)


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def generate_head(draw: Draw) -> Pattern:
    """A classifier: pooled features, flattened, two layers."""
    n, c, h, w = draw.integer(1, 3), draw.integer(1, 5), draw.integer(1, 4), draw.integer(1, 4)
    hidden = draw.integer(1, 6)
    nodes = [
        node("Flatten", ["x"], "f"),
        node("Gemm", ["f", "w1", "b1"], "h", transB=1),
        node("Gemm", ["h", "w2"], "y") if (opset := draw.opset(11)) else None,
    ]
    constants = {"w1": draw.array(hidden, c * h * w), "b1": draw.array(hidden), "w2": draw.array(hidden, 3)}
    return Pattern(nodes, {"x": (n, c, h, w)}, ["y"], constants, opset)


@pytest.mark.parametrize("seeds", SEEDS)
def test_classifier_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate_head, seeds)


def test_flatten_of_a_map_becomes_a_kernel_that_covers_it() -> None:
    rng = np.random.default_rng(0)
    nodes = [node("Flatten", ["x"], "f"), node("Gemm", ["f", "w"], "y", transB=1)]
    weights = rng.standard_normal((10, 8 * 7 * 7)).astype(np.float32)
    model, _ = apply_to(network(nodes, {"x": (1, 8, 7, 7)}, ["y"], {"w": weights}), REWRITE)
    convolution = next(each for each in model.graph if each.op_type == "Conv")
    assert [each.op_type for each in model.graph] == ["Conv", "Reshape"]
    assert convolution.attributes["kernel_shape"].as_ints() == (7, 7)
    assert np.shares_memory(model.constant(convolution.inputs[1], limit=None), model.constant(convolution.inputs[1]))


def test_positions_of_an_image_are_no_images() -> None:
    """As PyTorch joins heads of attention, the transpose written as the reshape that it is for one image."""
    constants = {"s": np.asarray([7, 1, 3, 4]), "r": np.asarray([7, 12]), "w": np.ones((12, 5), np.float32)}
    nodes = [
        node("Reshape", ["x", "s"], "a"),
        node("Reshape", ["a", "r"], "b"),
        node("Gemm", ["b", "w"], "y"),
    ]
    model, _ = apply_to(network(nodes, {"x": (1, 7, 3, 4)}, ["y"], constants), REWRITE)
    (conv,) = (each for each in model.graph if each.op_type == "Conv")
    assert list(conv.outputs[0].shape or ()) == [1, 5, 1, 7]


def test_two_run_time_operands_are_refused() -> None:
    proto = network([node("Gemm", ["a", "b"], "y")], {"a": (4, 8), "b": (8, 3)}, ["y"])
    check_refused(proto, REWRITE, "run time only")


def test_odd_run_time_c_is_refused() -> None:
    proto = network(
        [node("Gemm", ["a", "w", "c"], "y")], {"a": (4, 8), "c": (4, 1)}, ["y"], {"w": np.ones((8, 3), np.float32)}
    )
    check_refused(proto, REWRITE, "neither scalar")


def test_overflow_of_a_scaled_constant_is_refused() -> None:
    weights = np.full((8, 3), 6e4, np.float16)
    proto = network([node("Gemm", ["a", "w"], "y", alpha=2.0)], {"a": ((4, 8), np.float16)}, ["y"], {"w": weights})
    check_refused(proto, REWRITE, "too large for its type")
