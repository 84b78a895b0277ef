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
    applies = "pads" in attributes and any(attributes["pads"])  # type: ignore[call-overload]
    shape = (draw.integer(1, 2), draw.integer(1, 4), *size)
    pattern = Pattern([node("AveragePool", ["x"], "y", **attributes)], {"x": shape}, ["y"], {}, draw.opset())
    if "auto_pad" in attributes:
        pattern.applies = _needs_padding(size, kernel, attributes.get("strides", [1, 1]))
        return pattern
    pattern.applies = applies
    return pattern


def _needs_padding(size: list[int], kernel: list[int], strides: object) -> bool:
    return any(
        (-(-n // s) - 1) * s + k - n > 0
        for n, k, s in zip(size, kernel, strides, strict=True)  # type: ignore[call-overload]
    )


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


def test_ceil_mode_past_the_padding_is_refused() -> None:
    proto = network(
        [node("AveragePool", ["x"], "y", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)],
        {"x": (1, 4, 6, 6)},
        ["y"],
    )
    check_refused(proto, REWRITE, "ceil mode")
