"""conv-pads-to-pad, conv-pads-to-convs and conv-transpose-to-unsliced: padding and cropping in other layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.checking import as_target, dla_judge
from orinport.model.load import load
from orinport.rewrites.catalogue import conv_pads_to_convs, conv_pads_to_pad, conv_transpose_to_unsliced
from orinport.rewrites.driver import rewrite_model
from orinport.rewrites.rewrite import Safety
from orinport.targets.target import Precision
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

PAD, CONVS, CROP = conv_pads_to_pad.REWRITE, conv_pads_to_convs.REWRITE, conv_transpose_to_unsliced.REWRITE


def atrous(draw: Draw) -> Pattern:
    kernel, dilation = draw.shape(2, 1, 3), draw.shape(2, 1, 4)
    group = draw.choose([1, 2])
    channels = group * draw.integer(1, 2)
    constants = {"w": draw.array(group * draw.integer(1, 2), channels // group, *kernel)}
    if draw.chance(0.5):
        constants["b"] = draw.array(constants["w"].shape[0])
    pads = [draw.integer(0, 7) for _ in range(4)]
    pads[0] = kernel[0] + draw.integer(0, 3)
    strides = draw.shape(2, 1, 2)
    call = node("Conv", ["x", *constants], "y", pads=pads, dilations=dilation, strides=strides, group=group)
    size = [(k - 1) * d + draw.integer(1, 4) for k, d in zip(kernel, dilation, strict=True)]
    return Pattern([call], {"x": (draw.integer(1, 2), channels, *size)}, ["y"], constants, draw.opset())


def atrous_finite(draw: Draw) -> Pattern:
    pattern = atrous(draw)
    if draw.chance(0.3):
        opset = pattern.opset
        full = [0, 0, draw.integer(0, 3), draw.integer(1, 3), 0, 0, draw.integer(0, 3), 0]
        pattern.constants = {"pads": np.asarray(full, np.int64)} if opset >= 11 else {}
        call = node("Pad", ["x", "pads"], "y") if opset >= 11 else node("Pad", ["x"], "y", pads=full)
        pattern.nodes = [call]
    pattern.special = pattern.overflow = False
    return pattern


def cropped(draw: Draw) -> Pattern:
    group = draw.choose([1, 1, 3])
    channels, each = group * draw.integer(1, 2), draw.integer(1, 2)
    kernel, strides = [draw.integer(2, 4), draw.integer(2, 4)], [2, draw.integer(1, 3)]
    dilated = draw.chance(0.3)
    dilation = [2, draw.integer(1, 3)] if dilated else [1, 1]
    strides = [1, 1] if dilated else strides
    end = [draw.integer(0, k - 1) for k in kernel]
    pads = [draw.integer(1, k - 1) for k in kernel] + end
    more = [draw.integer(0, min(e, s - 1)) for e, s in zip(end, strides, strict=True)]
    constants = {"w": draw.array(channels, each, *kernel)}
    if draw.chance(0.5):
        constants["b"] = draw.array(each * group)
    call = node(
        "ConvTranspose",
        ["x", *constants],
        "y",
        pads=pads,
        strides=strides,
        output_padding=more,
        group=group,
        dilations=dilation,
    )
    shape = (draw.integer(1, 2), channels, *draw.shape(2, 3, 6))
    return Pattern([call], {"x": shape}, ["y"], constants, draw.opset(), special=False, overflow=False)


@pytest.mark.parametrize("seeds", SEEDS)
def test_padding_before_is_equal(seeds: Sequence[int]) -> None:
    check_rewrite(PAD, atrous, seeds)


@pytest.mark.parametrize("seeds", SEEDS)
def test_padding_by_convolutions_is_equal(seeds: Sequence[int]) -> None:
    check_rewrite(CONVS, atrous_finite, seeds)


@pytest.mark.parametrize("seeds", SEEDS)
def test_cropping_by_convolutions_is_equal(seeds: Sequence[int]) -> None:
    check_rewrite(CROP, cropped, seeds)


def deeplab(dilation: int = 6) -> Any:
    call = node("Conv", ["x", "w"], "y", pads=[dilation] * 4, dilations=[dilation] * 2)
    return network([call], {"x": (1, 8, 33, 33)}, ["y"], {"w": np.ones((8, 8, 3, 3), np.float32)})


def upsampling() -> Any:
    call = node("ConvTranspose", ["x", "w"], "y", strides=[2, 2], pads=[1] * 4, output_padding=[1, 1])
    return network([call], {"x": (1, 8, 9, 9)}, ["y"], {"w": np.ones((8, 8, 3, 3), np.float32)})


@pytest.mark.parametrize(
    ("proto", "stack", "precision", "rewrite"),
    [
        (deeplab(), "jp6.0", "fp16", CONVS),
        (deeplab(), "jp7.2", "fp16", PAD),
        (upsampling(), "jp6.0", "int8", CROP),
    ],
)
def test_the_dla_takes_all_of_it(proto: Any, stack: str, precision: str, rewrite: Any) -> None:
    target = as_target(f"orin-agx-64gb/{stack}")
    judge = dla_judge(target, Precision(precision), standalone=False)
    model, log = rewrite_model(
        load(proto), target=target, precision=Precision(precision), judge=judge, rewrites=[rewrite],
        consent=[Safety.EXACT, Safety.TOLERANCE],
    )  # fmt: skip
    assert log.applied
    assert not judge(model.ir)


@pytest.mark.parametrize("rewrite", [CONVS, CROP])
def test_nothing_happens_without_consent(rewrite: Any) -> None:
    proto = deeplab() if rewrite is CONVS else upsampling()
    _, log = apply_to(proto, rewrite, consent=[Safety.EXACT])
    assert not log.applied
    assert "consented" in log.refused[0].reason


def test_more_padding_than_a_kernel_reaches_is_refused() -> None:
    check_refused(deeplab(16), CONVS, "kernel of 33")


def test_usual_padding_stays() -> None:
    call = node("Conv", ["x", "w"], "y", pads=[1, 1, 1, 1])
    proto = network([call], {"x": (1, 2, 5, 5)}, ["y"], {"w": np.ones((2, 2, 3, 3), np.float32)})
    for rewrite in (PAD, CONVS):
        assert not apply_to(proto, rewrite)[1].applied
