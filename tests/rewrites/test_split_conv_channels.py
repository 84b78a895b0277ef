"""split-conv-channels: convolutions past the buffer, with a target whose buffer the tests can reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue.split_conv_channels import REWRITE
from orinport.rewrites.limits import fits_buffer
from rewrites.harness import Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    """Few rows, long and of many channels: what does not fit is cheap to compute all the same."""
    kernel = (draw.choose([3, 5, 7]), draw.choose([1, 2]))
    group = draw.choose([1, 1, 2, 4])
    width = draw.integer(100, 300)
    channels = 4 * draw.integer(30000 // (width * kernel[0]) // 4 + 60, 200000 // (width * kernel[0]) // 4 + 120)
    constants = {"w": draw.array(group * draw.integer(1, 2), channels // group, *kernel, scale=0.05)}
    if draw.chance(0.5):
        constants["b"] = draw.array(constants["w"].shape[0])
    pads = [draw.integer(0, 1), 0, 2, 0]
    call = node("Conv", ["x", *constants], "y", group=group, pads=pads)
    pattern = Pattern([call], {"x": (1, channels, kernel[0], width)}, ["y"], constants, draw.opset())
    pattern.applies = None
    return pattern


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(8), id="quick"), pytest.param(range(8, 208), id="bulk", marks=pytest.mark.slow)],
)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def conv(channels: int, width: int, kernel: int = 3, **attributes: Any) -> Any:
    weights = np.zeros((1, channels, kernel, kernel), np.float32)
    return network(
        [node("Conv", ["x", "w"], "y", **attributes)], {"x": (1, channels, kernel, width)}, ["y"], {"w": weights}
    )


def test_parts_fit_the_buffer() -> None:
    from orinport.rewrites.context import RewriteContext

    model, _ = apply_to(conv(1024, 160), REWRITE)
    parts = [each for each in model.graph if each.op_type == "Conv"]
    assert len(parts) == 3
    context = RewriteContext(model.ir)
    assert all(fits_buffer(context, each.inputs[0].shape[1], 160, (3, 3)) for each in parts)


def test_what_fits_is_left_alone() -> None:
    _, log = apply_to(conv(256, 160), REWRITE)
    assert not log.applied
    assert not log.refused


def test_rows_that_never_fit_are_refused() -> None:
    check_refused(conv(2048, 1000, 5), REWRITE, "do not fit")
