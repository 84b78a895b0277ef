"""split-average-pool: windows and padding above the limits, counted and not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from builders import network, node
from orinport.rewrites.catalogue.split_average_pool import REWRITE
from orinport.rewrites.runnable import counts_padding_wrong
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    kernel = [draw.integer(1, 12), draw.integer(9, 20)]
    if draw.chance(0.5):
        kernel.reverse()
    attributes: dict[str, Any] = {"kernel_shape": kernel, "count_include_pad": draw.integer(0, 1)}
    form = draw.choose(["pads", "same", "tiles", "plain"])
    strides = [draw.integer(1, 4), draw.integer(1, 4)]
    if form == "pads":
        attributes["pads"] = [draw.integer(0, k - 1) for k in kernel] + [draw.integer(0, k - 1) for k in kernel]
    elif form == "same":
        attributes["auto_pad"] = draw.choose(["SAME_UPPER", "SAME_LOWER"])
        strides = [1, 1]
    elif form == "tiles":
        kernel[:] = [draw.choose([9, 10, 12, 14, 16, 18, 21]), draw.choose([2, 10, 16])]
        strides = [draw.choose([k, 2 * k]) for k in kernel]
    attributes["strides"] = strides
    size = [draw.integer(k, k + 12) for k in kernel]
    opset = draw.opset()
    if counts_padding_wrong() and "auto_pad" in attributes and attributes["count_include_pad"]:
        opset = min(opset, 18)  # from 19 on this ONNX Runtime gives other numbers
    pattern = Pattern(
        [node("AveragePool", ["x"], "y", **attributes)],
        {"x": (draw.integer(1, 2), draw.integer(1, 3), *size)},
        ["y"],
        {},
        opset,
    )
    if form == "tiles":
        pattern.applies = None  # a stride above 16 that does not factor is refused
    return pattern


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def pool(size: int = 28, channels: int = 4, **attributes: Any) -> Any:
    return network([node("AveragePool", ["x"], "y", **attributes)], {"x": (1, channels, size, size)}, ["y"])


def test_tiles_become_pools() -> None:
    model, _ = apply_to(pool(kernel_shape=[14, 14], strides=[14, 14]), REWRITE)
    assert [each.attributes["kernel_shape"].as_ints() for each in model.graph] == [(7, 7), (2, 2)]


def test_overlapping_windows_become_a_depthwise_convolution() -> None:
    model, _ = apply_to(pool(kernel_shape=[9, 9], pads=[4, 4, 4, 4], count_include_pad=1), REWRITE)
    (conv,) = model.graph
    assert conv.op_type == "Conv"
    assert conv.attributes["group"].as_int() == 4


def test_windows_above_every_limit_are_refused() -> None:
    check_refused(pool(40, kernel_shape=[33, 33]), REWRITE, "limit of 32")


def test_wide_tensors_are_refused() -> None:
    check_refused(pool(200, 1024, kernel_shape=[9, 9]), REWRITE, "does not fit the buffer")
