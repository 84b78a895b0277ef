"""conv-stride-to-channels: strides above the limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue.conv_stride_to_channels import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    strides = [draw.choose([1, 2, 9, 10, 12, 14, 16, 32]), draw.choose([9, 12, 14, 15, 16])]
    if draw.chance(0.5):
        strides.reverse()
    patches = draw.chance(0.5)
    kernel = list(strides) if patches else [draw.choose([s, 2 * s, s + 3, 5, 12]) for s in strides]
    attributes: dict[str, Any] = {"strides": strides}
    group = 1 if patches else draw.choose([1, 1, 2])
    if not patches and draw.chance(0.4):
        attributes["pads"] = [draw.integer(0, k - 1) for k in (*kernel, *kernel)]
    channels = group * draw.integer(1, 3)
    constants = {"w": draw.array(group * draw.integer(1, 3), channels // group, *kernel)}
    if draw.chance(0.5):
        constants["b"] = draw.array(constants["w"].shape[0])
    size = [k + draw.integer(0, 2) * s + draw.integer(0, 3) for k, s in zip(kernel, strides, strict=True)]
    call = node("Conv", ["x", *constants], "y", group=group, **attributes)
    return Pattern([call], {"x": (draw.integer(1, 2), channels, *size)}, ["y"], constants, draw.opset())


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def conv(kernel: int, stride: int, channels: int = 3, **attributes: Any) -> Any:
    weights = np.ones((8, channels, kernel, kernel), np.float32)
    call = node("Conv", ["x", "w"], "y", strides=[stride, stride], **attributes)
    return network([call], {"x": (1, channels, 64, 64)}, ["y"], {"w": weights})


def test_patches_become_a_pointwise_convolution() -> None:
    model, _ = apply_to(conv(16, 16), REWRITE)
    last = model.graph[-1]
    assert last.op_type == "Conv"
    assert tuple(last.inputs[0].shape) == (1, 768, 4, 4)
    assert tuple(last.inputs[1].shape) == (8, 768, 1, 1)
    assert {each.op_type for each in model.graph} == {"Reshape", "Transpose", "Conv"}
    assert all(len(each.outputs[0].shape) == 4 for each in model.graph)


def test_padding_takes_every_second_result() -> None:
    model, _ = apply_to(conv(11, 16, pads=[5, 5, 5, 5]), REWRITE)
    assert [each.op_type for each in model.graph] == ["Conv", "AveragePool"]
    assert model.graph[0].attributes["strides"].as_ints() == (8, 8)


def test_prime_strides_are_refused() -> None:
    check_refused(conv(5, 23), REWRITE, "no factor that helps")
