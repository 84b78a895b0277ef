"""fuse-scale-before-conv: constants in front of convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue.fuse_scale_before_conv import REWRITE
from orinport.targets.target import Precision
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    rank, group = draw.choose([3, 4, 4]), draw.choose([1, 1, 2])
    channels = group * draw.integer(1, 3)
    kernel = draw.shape(rank - 2, 1, 3)
    constants = {"w": draw.array(group * draw.integer(1, 3), channels // group, *kernel)}
    if draw.chance(0.5):
        constants["b"] = draw.array(constants["w"].shape[0])
    kind = draw.choose(["Mul", "Div", "Add", "Sub"])
    shape = draw.choose([(), (1,), (channels, *[1] * (rank - 2)), (1, channels, *[1] * (rank - 2))])
    constants["k"] = np.asarray(np.abs(draw.array(*shape, scale=0.3)) + draw.dtype(1.0)).astype(draw.dtype)
    pair = ["x", "k"] if kind == "Div" or draw.chance(0.5) else ["k", "x"]
    pads = [draw.integer(0, k - 1) for k in (*kernel, *kernel)] if kind in ("Mul", "Div") else [0] * (2 * rank - 4)
    convolution = node("Conv", ["s", *(name for name in constants if name != "k")], "y", group=group, pads=pads)
    nodes = [node(kind, pair, "s"), convolution]
    x = (draw.integer(1, 2), channels, *draw.shape(rank - 2, 3, 6))
    return Pattern(nodes, {"x": x}, ["y"], constants, draw.opset())


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def before(kind: str, constant: np.ndarray, **attributes: Any) -> Any:
    constants = {"w": np.ones((2, 3, 3, 3), np.float32), "k": constant}
    nodes = [node(kind, ["x", "k"], "s"), node("Conv", ["s", "w"], "y", **attributes)]
    return network(nodes, {"x": (1, 3, 5, 5)}, ["y"], constants)


def test_division_by_255_goes_into_the_weights() -> None:
    model, _ = apply_to(before("Div", np.float32([255]), pads=[1, 1, 1, 1]), REWRITE)
    assert [each.op_type for each in model.graph] == ["Conv"]


def test_shifts_before_padding_are_refused() -> None:
    check_refused(before("Add", np.float32([1]), pads=[1, 1, 1, 1]), REWRITE, "pads with zeros")


def test_shifts_in_int8_are_refused() -> None:
    check_refused(before("Sub", np.float32([1])), REWRITE, "resolution", precision=Precision.INT8)


def test_factors_of_different_size_are_refused() -> None:
    check_refused(before("Mul", np.float32([1, 2, 9]).reshape(3, 1, 1)), REWRITE, "differ more")


def test_a_scaled_tensor_that_others_read_stays() -> None:
    constants = {"w": np.ones((2, 3, 1, 1), np.float32), "k": np.float32([2])}
    nodes = [node("Mul", ["x", "k"], "s"), node("Conv", ["s", "w"], "y"), node("Relu", ["s"], "z")]
    _, log = apply_to(network(nodes, {"x": (1, 3, 5, 5)}, ["y", "z"], constants), REWRITE)
    assert not log.applied
