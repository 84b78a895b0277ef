"""windows-to-4d: one-dimensional convolutions and pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue.windows_to_4d import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    op_type = draw.choose(["Conv", "Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"])
    kernel, length = draw.integer(1, 4), draw.integer(5, 12)
    opset = draw.opset()
    attributes: dict[str, object] = {}
    if op_type not in ("Conv", "ConvTranspose") or draw.chance(0.6):
        attributes["kernel_shape"] = [kernel]
    if draw.chance(0.6):
        attributes["strides"] = [draw.integer(1, 3)]
    if draw.chance(0.3) and op_type != "LpPool":
        attributes["auto_pad"] = draw.choose(["VALID", "SAME_UPPER", "SAME_LOWER"])
    elif draw.chance(0.7):
        attributes["pads"] = [draw.integer(0, kernel - 1), draw.integer(0, kernel - 1)]
    n, c = draw.integer(1, 2), draw.integer(1, 4)
    if op_type not in ("Conv", "ConvTranspose"):
        if op_type == "AveragePool":
            attributes["count_include_pad"] = draw.integer(0, 1)
        if opset >= 10 and op_type != "LpPool" and draw.chance(0.3):
            attributes["ceil_mode"] = 1
        if op_type == "LpPool":
            attributes["p"] = draw.integer(1, 2)
        pattern = Pattern([node(op_type, ["x"], "y", **attributes)], {"x": (n, c, length)}, ["y"], {}, opset)
        pattern.nan = op_type != "MaxPool"
        if "ceil_mode" in attributes:
            pattern.applies = None  # engines differ on a last window that starts in the padding, and then none is run
        return pattern
    if "auto_pad" not in attributes and draw.chance(0.4):
        attributes["dilations"] = [draw.integer(1, 2)]
    group = draw.choose([1, c])
    attributes["group"] = group
    outputs = draw.integer(1, 3)
    if op_type == "Conv":
        weights = draw.array(outputs * group, c // group, kernel)
    else:
        weights = draw.array(c, outputs, kernel)
        if attributes.get("strides", [1])[0] == 2 and "auto_pad" not in attributes:  # type: ignore[index]
            attributes["output_padding"] = [draw.integer(0, 1)]
    constants = {"w": weights}
    if draw.chance(0.5):
        constants["b"] = draw.array(outputs * group)
    return Pattern(
        [node(op_type, ["x", *constants], "y", **attributes)], {"x": (n, c, length)}, ["y"], constants, opset
    )


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def test_long_rows_of_many_channels_stand_upright() -> None:
    weights = np.zeros((4, 2048, 3), np.float32)
    proto = network([node("Conv", ["x", "w"], "y")], {"x": (1, 2048, 4000)}, ["y"], {"w": weights})
    model, _ = apply_to(proto, REWRITE)
    (conv,) = (each for each in model.graph if each.op_type == "Conv")
    assert tuple(conv.inputs[0].shape) == (1, 2048, 4000, 1)


def test_a_kernel_at_run_time_is_refused() -> None:
    proto = network([node("Conv", ["x", "w"], "y")], {"x": (1, 2, 9), "w": (4, 2, 3)}, ["y"])
    check_refused(proto, REWRITE, "known at run time only")


def test_used_indices_are_refused() -> None:
    proto = network([node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2])], {"x": (1, 2, 9)}, ["y", "i"])
    check_refused(proto, REWRITE, "indices")


def test_lengths_above_the_limit_are_refused() -> None:
    proto = network([node("MaxPool", ["x"], "y", kernel_shape=[2])], {"x": (1, 2, 9000)}, ["y"])
    check_refused(proto, REWRITE, "8192")
