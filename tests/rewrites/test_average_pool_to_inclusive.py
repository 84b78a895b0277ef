"""average-pool-to-inclusive: padding left out of the count, in every form that has another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import network, node
from orinport.rewrites.catalogue.average_pool_to_inclusive import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    kernel = [draw.integer(2, 5), draw.integer(2, 5)]
    size = [draw.integer(k, 9) for k in kernel]
    attributes: dict[str, object] = {"kernel_shape": kernel}
    if draw.chance(0.7):
        attributes["strides"] = [draw.integer(1, 3), draw.integer(1, 3)]
    if draw.chance(0.25):
        attributes["auto_pad"] = draw.choose(["SAME_UPPER", "SAME_LOWER"])
    else:
        attributes["pads"] = [draw.integer(0, k - 1) for k in (*kernel, *kernel)]
    shape = (draw.integer(1, 2), draw.integer(1, 4), *size)
    return Pattern([node("AveragePool", ["x"], "y", **attributes)], {"x": shape}, ["y"], {}, draw.opset())


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def test_the_only_window_is_cut_to_the_tensor() -> None:
    proto = network(
        [node("AveragePool", ["x"], "y", kernel_shape=[7, 7], pads=[0, 0, 1, 1])], {"x": (1, 4, 6, 6)}, ["y"]
    )
    model, _ = apply_to(proto, REWRITE)
    (pool,) = model.graph
    assert pool.attributes["kernel_shape"].as_ints() == (6, 6)
    assert pool.attributes["pads"].as_ints() == (0, 0, 0, 0)


def test_without_padding_only_the_setting_changes() -> None:
    proto = network([node("AveragePool", ["x"], "y", kernel_shape=[7, 7])], {"x": (1, 4, 7, 7)}, ["y"])
    model, log = apply_to(proto, REWRITE)
    (pool,) = model.graph
    assert pool.attributes["count_include_pad"].as_int() == 1
    assert len(log.applied) == 1


def test_ceil_mode_past_the_padding_is_refused() -> None:
    proto = network(
        [node("AveragePool", ["x"], "y", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)],
        {"x": (1, 4, 6, 6)},
        ["y"],
    )
    check_refused(proto, REWRITE, "ceil mode")
