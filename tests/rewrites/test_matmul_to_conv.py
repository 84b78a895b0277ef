"""matmul-to-conv: all ranks, batches and sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from builders import network, node, run_onnx
from orinport.rewrites.catalogue.matmul_to_conv import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    m, k, n = draw.integer(1, 9), draw.integer(1, 9), draw.integer(1, 9)
    left = draw.chance(0.4)
    batch = draw.shape(draw.integer(0, 3), 1, 4)
    weights = draw.choose([(), (), (1,), batch, (1,) * len(batch)])
    if draw.chance(0.15):  # every matrix of the constant times each of the operand
        batch, weights = (*batch[:1], 1), (draw.integer(1, 3),)
    run_time = (*batch, k, n) if left else (*batch, m, k)
    constant = (*weights, m, k) if left else (*weights, k, n)
    if not batch and draw.chance(0.2):
        run_time = (k,)
    elif not weights and draw.chance(0.15):
        constant = (k,)
    operands = ["w", "x"] if left else ["x", "w"]
    nodes = [node("MatMul", operands, "p")]
    constants = {"w": draw.array(*constant)}
    outputs = ["p"]
    if not left and len(constant) > 1 and draw.chance(0.3):
        constants["b"] = draw.array(*draw.choose([(n,), (1, n), ()])) if len(run_time) > 1 else draw.array(n)
        nodes.append(node("Add", draw.choose([["p", "b"], ["b", "p"]]), "y"))
        outputs = ["y"]
    return Pattern(nodes, {"x": run_time}, outputs, constants, draw.opset())


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def test_two_run_time_operands_are_refused() -> None:
    proto = network([node("MatMul", ["a", "b"], "y")], {"a": (4, 8), "b": (8, 3)}, ["y"])
    check_refused(proto, REWRITE, "known at run time only")


def test_integers_are_refused() -> None:
    proto = network(
        [node("MatMul", ["a", "w"], "y")], {"a": ((4, 8), np.int32)}, ["y"], {"w": np.ones((8, 3), np.int32)}
    )
    check_refused(proto, REWRITE, "INT32")


def test_broadcast_in_both_directions_is_refused() -> None:
    proto = network(
        [node("MatMul", ["x", "w"], "y")], {"x": (1, 2, 4, 8)}, ["y"], {"w": np.ones((5, 1, 8, 2), np.float32)}
    )
    check_refused(proto, REWRITE, "broadcast")


def test_too_many_channels_are_refused() -> None:
    proto = network([node("MatMul", ["x", "w"], "y")], {"x": (2, 8193)}, ["y"], {"w": np.ones((8193, 2), np.float32)})
    check_refused(proto, REWRITE, "8193 channels")


def test_rows_become_positions_of_one_convolution() -> None:
    weights = np.random.default_rng(0).standard_normal((1024, 128)).astype(np.float32)
    proto = network([node("MatMul", ["x", "w"], "y")], {"x": (128, 1024)}, ["y"], {"w": weights})
    model, log = apply_to(proto, REWRITE)
    convolutions = [each for each in model.graph if each.op_type == "Conv"]
    assert log.counts() == {"matmul-to-conv": 1}
    assert [tuple(each.outputs[0].shape) for each in convolutions] == [(1, 128, 4, 32)]
    assert log.applied[0].proof.max_error < log.applied[0].proof.tolerance


def test_rows_of_pooled_features_stay_the_batch() -> None:
    nodes = [
        node("GlobalAveragePool", ["x"], "g"),
        node("Flatten", ["g"], "f"),
        node("MatMul", ["f", "w"], "y"),
    ]
    proto = network(nodes, {"x": (4, 8, 5, 5)}, ["y"], {"w": np.ones((8, 3), np.float32)})
    model, _ = apply_to(proto, REWRITE)
    assert [each.op_type for each in model.graph] == ["GlobalAveragePool", "Conv", "Reshape"]
    assert tuple(next(each for each in model.graph if each.op_type == "Conv").outputs[0].shape) == (4, 3, 1, 1)


def test_a_flattened_map_becomes_the_kernel() -> None:
    """Flatten of a channels-last copy too: the weights are sorted to fit."""
    rng = np.random.default_rng(0)
    nodes = [
        node("Transpose", ["x"], "t", perm=[0, 2, 3, 1]),
        node("Flatten", ["t"], "f"),
        node("MatMul", ["f", "w"], "y"),
    ]
    weights = rng.standard_normal((4 * 3 * 5, 7)).astype(np.float32)
    proto = network(nodes, {"x": (2, 4, 3, 5)}, ["y"], {"w": weights})
    model, _ = apply_to(proto, REWRITE)
    convolution = next(each for each in model.graph if each.op_type == "Conv")
    assert [each.op_type for each in model.graph] == ["Conv", "Reshape"]
    assert tuple(convolution.inputs[1].shape) == (7, 4, 3, 5)

    feeds = {"x": rng.standard_normal((2, 4, 3, 5)).astype(np.float32)}
    np.testing.assert_allclose(
        run_onnx(ir.to_proto(model.ir), feeds)[0], run_onnx(proto, feeds)[0], rtol=1e-4, atol=1e-5
    )
