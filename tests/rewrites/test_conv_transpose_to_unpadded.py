"""conv-transpose-to-unpadded: deconvolutions as frameworks export them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue.conv_transpose_to_unpadded import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    group = draw.choose([1, 1, 2, 3])
    channels, each = group * draw.integer(1, 2), draw.integer(1, 3)
    kernel = [draw.integer(1, 4), draw.integer(1, 4)]
    strides = draw.choose([[1, 1], [2, 2], [2, 1], [3, 2]])
    attributes: dict[str, Any] = {"strides": strides, "group": group}
    size = draw.shape(2, 3, 6)
    form = draw.choose(["pads", "pads", "same"])
    if form == "pads":
        end = [draw.integer(0, k - 1) for k in kernel]
        attributes["pads"] = [draw.integer(0, k - 1) for k in kernel] + end
        if draw.chance(0.5):
            attributes["output_padding"] = [draw.integer(0, min(e, s - 1)) for e, s in zip(end, strides, strict=True)]
        if strides == [1, 1] and draw.chance(0.5):
            attributes["dilations"] = [draw.integer(1, 2), draw.integer(1, 2)]
    else:
        kernel = [max(k, s) for k, s in zip(kernel, strides, strict=True)]
        attributes["auto_pad"] = draw.choose(["SAME_UPPER", "SAME_LOWER"])
    if draw.chance(0.5):
        attributes["kernel_shape"] = kernel
    constants = {"w": draw.array(channels, each, *kernel)}
    if draw.chance(0.5):
        constants["b"] = draw.array(each * group)
    shape = (draw.integer(1, 2), channels, *size)
    pattern = Pattern(
        [node("ConvTranspose", ["x", *constants], "y", **attributes)], {"x": shape}, ["y"], constants, draw.opset()
    )
    pattern.applies = None
    if form == "pads" and strides != [1, 1]:
        left = [e - m for e, m in zip(attributes["pads"][2:], attributes.get("output_padding", [0, 0]), strict=True)]
        pattern.applies = group > 1 or any([*attributes["pads"][:2], *left])
    return pattern


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def transposed(**attributes: Any) -> Any:
    """A ConvTranspose over (1, 8, 10, 10) with 8 outputs."""
    group = attributes.get("group", 1)
    weights = np.ones((8, 8 // group, *attributes["kernel_shape"]), np.float32)
    return network([node("ConvTranspose", ["x", "w"], "y", **attributes)], {"x": (1, 8, 10, 10)}, ["y"], {"w": weights})


def test_pytorch_upsampling_becomes_deconvolution_and_slice() -> None:
    proto = transposed(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
    model, _ = apply_to(proto, REWRITE)
    assert [each.op_type for each in model.graph] == ["ConvTranspose", "Slice"]


def test_stride_one_becomes_a_convolution() -> None:
    model, _ = apply_to(transposed(kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=8), REWRITE)
    (conv,) = model.graph
    assert conv.op_type == "Conv"
    assert conv.attributes["pads"].as_ints() == (1, 1, 1, 1)


def test_output_padding_past_the_product_is_refused() -> None:
    proto = transposed(kernel_shape=[2, 2], strides=[2, 2], output_padding=[1, 1])
    check_refused(proto, REWRITE, "bias stands alone")


def test_dilation_with_stride_is_refused() -> None:
    proto = transposed(kernel_shape=[3, 3], strides=[2, 2], dilations=[2, 2])
    check_refused(proto, REWRITE, "dilation together with a stride")


def test_many_groups_are_refused() -> None:
    weights = np.ones((16, 1, 4, 4), np.float32)
    call = node("ConvTranspose", ["x", "w"], "y", strides=[2, 2], pads=[1, 1, 1, 1], group=16)
    check_refused(network([call], {"x": (1, 16, 5, 5)}, ["y"], {"w": weights}), REWRITE, "16 groups")
