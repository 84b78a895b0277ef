"""resize-sizes-to-scales: whole factors only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue.resize_sizes_to_scales import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    n, c, h, w = draw.integer(1, 3), draw.integer(1, 4), draw.integer(1, 6), draw.integer(1, 6)
    factors = draw.integer(1, 4), draw.integer(1, 4)
    opset = draw.opset(11)
    mode = draw.choose(["nearest", "linear"])
    transformation = draw.choose(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    attributes: dict[str, object] = {"mode": mode, "coordinate_transformation_mode": transformation}
    if mode == "nearest":
        attributes["nearest_mode"] = draw.choose(["floor", "round_prefer_floor", "round_prefer_ceil", "ceil"])
    sizes = [n, c, h * factors[0], w * factors[1]]
    if opset >= 18 and draw.chance(0.5):
        attributes["axes"] = [2, 3]
        sizes = sizes[2:]
    constants = {"sizes": np.asarray(sizes, np.int64)}
    names = ["x", "", "", "sizes"]
    if opset < 13:
        constants |= {"roi": np.zeros(0, np.float32), "scales": np.zeros(0, np.float32)}
        names = ["x", "roi", "scales", "sizes"]
    draw.dtype = np.float32
    return Pattern([node("Resize", names, "y", **attributes)], {"x": (n, c, h, w)}, ["y"], constants, opset)


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def _resize(sizes: list[int], shape: tuple[int, ...] = (2, 3, 8, 8), **attributes: object) -> object:
    constants = {"sizes": np.asarray(sizes, np.int64)}
    return network([node("Resize", ["x", "", "", "sizes"], "y", **attributes)], {"x": shape}, ["y"], constants)


def test_batch_keeps_its_scale_of_one() -> None:
    model, _ = apply_to(_resize([2, 3, 16, 24]), REWRITE)
    (resize,) = model.graph
    assert resize.inputs[2] is not None
    np.testing.assert_array_equal(model.constant(resize.inputs[2]), [1, 1, 2, 3])


def test_fractions_are_refused() -> None:
    check_refused(_resize([2, 3, 12, 16]), REWRITE, "12/8 is not a whole number")


def test_downscaling_is_refused() -> None:
    check_refused(_resize([2, 3, 4, 4]), REWRITE, "not a whole number")


def test_crop_and_resize_is_refused() -> None:
    proto = _resize([2, 3, 16, 16], coordinate_transformation_mode="tf_crop_and_resize")
    proto.graph.node[0].input[1] = "roi"
    proto.graph.initializer.add().CopyFrom(
        __import__("onnx").numpy_helper.from_array(np.asarray([0, 0, 0, 0, 1, 1, 1, 1], np.float32), "roi")
    )
    check_refused(proto, REWRITE, "region of interest")
