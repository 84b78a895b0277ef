"""deconv-to-phases: upsampling by one convolution for each phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.checking import as_target, dla_judge
from orinport.model.load import load
from orinport.rewrites.catalogue.deconv_to_phases import REWRITE
from orinport.rewrites.driver import rewrite_model
from orinport.targets.target import Precision
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    group = draw.choose([1, 1, 2, 3])
    channels, each = group * draw.integer(1, 2), draw.integer(1, 3)
    strides = draw.choose([[2, 2], [2, 1], [1, 2], [3, 2], [4, 4]])
    kernel = [s + draw.integer(0, 2) for s in strides]
    begin = [draw.integer(0, k - 1) for k in kernel]
    end = [draw.integer(0, k - 1) for k in kernel]
    more = [draw.integer(0, min(e, max(0, s - 1))) for e, s in zip(end, strides, strict=True)]
    if draw.chance(0.7):  # the usual form: the result is a multiple of the stride
        begin = [(k - s + 1) // 2 for k, s in zip(kernel, strides, strict=True)]
        more = [draw.integer(0, s - 1) for s in strides]
        end = [k - s - b + m for k, s, b, m in zip(kernel, strides, begin, more, strict=True)]
        more = [m if e >= 0 else m - e for m, e in zip(more, end, strict=True)]
        end = [max(0, e) for e in end]
    constants = {"w": draw.array(channels, each, *kernel)}
    if draw.chance(0.5):
        constants["b"] = draw.array(each * group)
    size = draw.shape(2, 3, 6)
    call = node(
        "ConvTranspose", ["x", *constants], "y", strides=strides, pads=begin + end, output_padding=more, group=group
    )
    pattern = Pattern([call], {"x": (draw.integer(1, 2), channels, *size)}, ["y"], constants, draw.opset())
    pattern.applies = None
    return pattern


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def upsampling(kernel: int, stride: int, pad: int, more: int = 0, group: int = 1, size: int = 12) -> Any:
    weights = np.ones((16, 16 // group, kernel, kernel), np.float32)
    attributes = {"strides": [stride] * 2, "pads": [pad] * 4, "output_padding": [more] * 2, "group": group}
    call = node("ConvTranspose", ["x", "w"], "y", **attributes)
    return network([call], {"x": (1, 16, size, size)}, ["y"], {"w": weights})


@pytest.mark.parametrize(
    "proto", [upsampling(4, 2, 1), upsampling(3, 2, 1, 1), upsampling(4, 2, 1, group=16), upsampling(8, 4, 2)]
)
@pytest.mark.parametrize("precision", list(Precision))
def test_the_dla_takes_all_of_it(proto: Any, precision: Precision) -> None:
    target = as_target("orin-agx-64gb/jp6.0")
    judge = dla_judge(target, precision, standalone=False)
    model, log = rewrite_model(load(proto), target=target, precision=precision, judge=judge, rewrites=[REWRITE])
    assert log.applied
    assert not judge(model.ir)


def test_no_product_is_added() -> None:
    model, _ = apply_to(upsampling(4, 2, 1), REWRITE)
    kernels = [tuple(each.inputs[1].shape) for each in model.graph if each.op_type == "Conv"]
    assert kernels == [(16, 16, 2, 2)] * 4 + [(64, 1, 1, 1)]


def test_refusals() -> None:
    check_refused(upsampling(3, 2, 1), REWRITE, "no multiple")
    check_refused(upsampling(10, 5, 2, 1, group=2), REWRITE, "no multiple")
    check_refused(upsampling(9, 5, 2, group=2), REWRITE, "25 convolutions")
    check_refused(upsampling(2, 3, 0, 1, group=2), REWRITE, "no tap")
