"""split-conv-kernel: long and widely dilated kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.checking import as_target, dla_judge
from orinport.model.load import load
from orinport.rewrites.catalogue.split_conv_kernel import REWRITE
from orinport.rewrites.driver import rewrite_model
from orinport.targets.target import Precision
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    kernel, dilation = [draw.integer(1, 4), draw.integer(33, 70)], [1, 1]
    if draw.chance(0.4):
        kernel, dilation = [draw.integer(1, 3), draw.integer(1, 2)], [draw.integer(33, 40), draw.choose([1, 33])]
    if draw.chance(0.5):
        kernel.reverse()
        dilation.reverse()
    group = draw.choose([1, 1, 2])
    channels = group * draw.integer(1, 2)
    constants = {"w": draw.array(group * draw.integer(1, 2), channels // group, *kernel)}
    if draw.chance(0.5):
        constants["b"] = draw.array(constants["w"].shape[0])
    attributes: dict[str, Any] = {"dilations": dilation, "strides": draw.shape(2, 1, 3), "group": group}
    if draw.chance(0.4):
        attributes["pads"] = [draw.integer(0, 5) for _ in range(4)]
    size = [(k - 1) * d + 1 + draw.integer(0, 6) for k, d in zip(kernel, dilation, strict=True)]
    call = node("Conv", ["x", *constants], "y", **attributes)
    return Pattern([call], {"x": (draw.integer(1, 2), channels, *size)}, ["y"], constants, draw.opset())


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def conv(kernel: tuple[int, int], size: tuple[int, int] = (80, 80), **attributes: Any) -> Any:
    call = node("Conv", ["x", "w"], "y", **attributes)
    return network([call], {"x": (1, 4, *size)}, ["y"], {"w": np.ones((4, 4, *kernel), np.float32)})


def test_parts_are_within_the_limits_and_taken() -> None:
    target = as_target("orin-agx-64gb/jp6.0")
    judge = dla_judge(target, Precision.FP16, standalone=False)
    model, log = rewrite_model(load(conv((1, 65))), target=target, judge=judge, rewrites=[REWRITE])
    assert log.applied
    assert not judge(model.ir)
    kernels = [each.attributes["kernel_shape"].as_ints() for each in model.graph if each.op_type == "Conv"]
    assert [kernel[1] for kernel in kernels] == [21, 22, 22]


def test_usual_kernels_stay() -> None:
    _, log = apply_to(conv((32, 32)), REWRITE)
    assert not log.applied


def test_many_parts_are_refused() -> None:
    check_refused(conv((70, 70)), REWRITE, "9 convolutions")
