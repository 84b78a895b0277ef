"""fuse-pad: zeros in front of convolutions and pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue.fuse_pad import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    op_type = draw.choose(["Conv", "Conv", "AveragePool", "MaxPool"])
    spatial = draw.choose([1, 2, 2, 2])
    opset = draw.opset()
    kernel = draw.shape(spatial, 2, 4)
    added = [draw.integer(0, k - 1) for k in kernel] + [draw.integer(0, k - 1) for k in kernel]
    attributes: dict[str, Any] = {"strides": [draw.integer(1, 2) for _ in kernel]}
    own = [draw.integer(0, max(0, kernel[i % spatial] - 1 - added[i])) for i in range(2 * spatial)]
    if draw.chance(0.5) or op_type == "AveragePool":
        attributes["pads"] = own
    if op_type != "Conv":
        attributes["kernel_shape"] = kernel
    if op_type == "AveragePool":
        attributes["count_include_pad"] = 1 if any(own) else draw.integer(0, 1)
    channels = draw.integer(1, 3)
    constants: dict[str, np.ndarray] = {}
    if op_type == "Conv":
        constants["w"] = draw.array(draw.integer(1, 3), channels, *kernel)
    floor = op_type == "MaxPool" and opset >= 11 and draw.chance(0.5)
    x, nodes = ["x"], []
    if op_type == "MaxPool" and not floor:
        nodes.append(node("Relu", ["x"], "r"))
        x = ["r"]
    nodes.append(_pad(x[0], added, spatial, opset, draw, constants, -np.inf if floor else 0.0))
    nodes.append(node(op_type, ["p", *(["w"] if op_type == "Conv" else [])], "y", **attributes))
    shape = (draw.integer(1, 2), channels, *draw.shape(spatial, 4, 8))
    return Pattern(nodes, {"x": shape}, ["y"], constants, opset, nan=op_type != "MaxPool")


def _pad(
    x: str, added: list[int], spatial: int, opset: int, draw: Draw, constants: dict[str, np.ndarray], number: float
) -> Any:
    full = [0, 0, *added[:spatial], 0, 0, *added[spatial:]]
    if opset < 11:
        return node("Pad", [x], "p", pads=full)
    names = [x, "pads"]
    constants["pads"] = np.asarray(full, np.int64)
    if number or draw.chance(0.3):
        constants["number"] = np.asarray(number, draw.dtype)
        names.append("number")
    if opset >= 18 and draw.chance(0.5):
        constants["pads"] = np.asarray(added, np.int64)
        constants["axes"] = np.arange(2, 2 + spatial) - draw.choose([0, 2 + spatial])
        names = [*names, *([""] if len(names) == 2 else []), "axes"]
    return node("Pad", names, "p")


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def padded(
    *nodes: Any, pads: Sequence[int] = (0, 0, 1, 1, 0, 0, 1, 1), value: float = 0.0, mode: str = "constant"
) -> Any:
    constants = {"pads": np.asarray(pads, np.int64), "v": np.asarray(value, np.float32)}
    constants["w"] = np.ones((2, 4, 3, 3), np.float32)
    call = node("Pad", ["x", "pads", *(["v"] if mode == "constant" else [])], "p", mode=mode)
    if mode != "constant":
        constants.pop("v")
    if not any("w" in each.input for each in nodes):
        constants.pop("w")
    return network([call, *nodes], {"x": (1, 4, 6, 6)}, ["y"], constants)


CONV = node("Conv", ["p", "w"], "y")


def test_a_padded_convolution_is_one_layer() -> None:
    model, _ = apply_to(padded(CONV), REWRITE)
    (conv,) = model.graph
    assert conv.attributes["pads"].as_ints() == (1, 1, 1, 1)


def test_reflection_is_refused() -> None:
    check_refused(padded(CONV, mode="reflect"), REWRITE, "reflect mode")


def test_other_values_are_refused() -> None:
    check_refused(padded(CONV, value=1.0), REWRITE, "pads with 1")


def test_cropping_is_refused() -> None:
    check_refused(padded(CONV, pads=(0, 0, -1, 0, 0, 0, 0, 0)), REWRITE, "takes rows")


def test_channels_are_refused() -> None:
    pool = node("MaxPool", ["p"], "y", kernel_shape=[2, 2])
    check_refused(padded(pool, pads=(0, 1, 0, 0, 0, 0, 0, 0)), REWRITE, "the channels")


def test_zeros_that_could_be_the_maximum_are_refused() -> None:
    check_refused(padded(node("MaxPool", ["p"], "y", kernel_shape=[3, 3])), REWRITE, "could be the maximum")


def test_a_pool_that_does_not_count_its_own_padding_is_refused() -> None:
    pool = node("AveragePool", ["p"], "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    check_refused(padded(pool), REWRITE, "out of the count")


def test_padding_as_large_as_the_window_is_refused() -> None:
    check_refused(padded(node("AveragePool", ["p"], "y", kernel_shape=[1, 1])), REWRITE, "as large as the window")
