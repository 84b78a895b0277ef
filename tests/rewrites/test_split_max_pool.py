"""split-max-pool: windows above the limit, alone and as pyramids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from builders import network, node
from orinport.rewrites.catalogue.split_max_pool import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    if draw.chance(0.3):
        return pyramid(draw)
    kernel = [draw.integer(1, 30), draw.integer(9, 30)]
    if draw.chance(0.5):
        kernel.reverse()
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    strides = [1, 1]
    if draw.chance(0.6):
        strides = [draw.choose([1, 2, 3, 6, 12, 16]), draw.choose([1, 2, 4, 8])]
        attributes["strides"] = strides
    opset = draw.opset()
    ceil = opset >= 10 and draw.chance(0.2)
    if ceil:
        attributes["ceil_mode"] = 1
    elif draw.chance(0.2) and strides[0] <= kernel[0] and strides[1] <= kernel[1]:
        attributes["auto_pad"] = draw.choose(["SAME_UPPER", "SAME_LOWER"])
    if "auto_pad" not in attributes and draw.chance(0.7):
        attributes["pads"] = [draw.integer(0, k - 1) for k in kernel] + [draw.integer(0, k - 1) for k in kernel]
    size = [draw.integer(k, k + 20) for k in kernel]
    if ceil and not _starts_inside(size, kernel, strides, attributes.get("pads", [0] * 4)):
        ceil = attributes.pop("ceil_mode") == 0
    pattern = Pattern(
        [node("MaxPool", ["x"], "y", **attributes)], {"x": (1, draw.integer(1, 2), *size)}, ["y"], {}, opset, nan=False
    )
    if ceil or "auto_pad" in attributes:
        pattern.applies = None  # the last window may see padding alone
    return pattern


def _starts_inside(size: list[int], kernel: list[int], strides: list[int], pads: list[int]) -> bool:
    """Every last window of ceil mode starts on the tensor: ONNX and ONNX Runtime count others differently."""
    for n, k, s, begin, end in zip(size, kernel, strides, pads[:2], pads[2:], strict=True):
        if -(-(n + begin + end - k) // s) * s >= n + begin:
            return False
    return True


def pyramid(draw: Draw) -> Pattern:
    """Pools of one tensor, each padded to keep its size."""
    reaches = sorted({draw.integer(1, 9) for _ in range(draw.integer(2, 4))})
    if reaches[-1] < 4:
        reaches.append(4)
    nodes = [
        node("MaxPool", ["x"], f"y{reach}", kernel_shape=[2 * reach + 1] * 2, pads=[reach] * 4) for reach in reaches
    ]
    if draw.chance(0.5):
        nodes.reverse()
    names = [f"y{reach}" for reach in reaches]
    pattern = Pattern(nodes, {"x": (1, 2, *draw.shape(2, 9, 20))}, names, {}, draw.opset(), nan=False)
    if draw.chance(0.5):
        nodes.append(node("Concat", ["x", *names], "y", axis=1))
        pattern.outputs = ["y"]
    return pattern


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def test_the_pyramid_of_yolo_becomes_three_pools() -> None:
    nodes = [node("MaxPool", ["x"], f"p{size}", kernel_shape=[size, size], pads=[size // 2] * 4) for size in (13, 9, 5)]
    nodes.append(node("Concat", ["p13", "p9", "p5", "x"], "y", axis=1))
    model, log = apply_to(network(nodes, {"x": (1, 4, 20, 20)}, ["y"]), REWRITE)
    assert [each.op_type for each in model.graph] == ["MaxPool", "MaxPool", "MaxPool", "Concat"]
    assert {each.attributes["kernel_shape"].as_ints() for each in model.graph if each.op_type == "MaxPool"} == {(5, 5)}
    assert len(log.applied) == 1


@pytest.mark.parametrize("kernel", range(9, 60))
def test_pools_stay_within_the_limits(kernel: int) -> None:
    for stride in (1, 3, 16):
        pads = [kernel // 2, 0, kernel // 3, 0]
        call = node("MaxPool", ["x"], "y", kernel_shape=[kernel, 1], strides=[stride, 1], pads=pads)
        model, log = apply_to(network([call], {"x": (1, 1, 97, 1)}, ["y"]), REWRITE)
        assert log.applied
        for pool in model.graph:
            assert max(pool.attributes["kernel_shape"].as_ints()) <= 8
            assert max(pool.attributes["pads"].as_ints()) <= 7
            assert max(pool.attributes["strides"].as_ints()) <= 16


def test_used_indices_are_refused() -> None:
    proto = network([node("MaxPool", ["x"], ["y", "i"], kernel_shape=[9, 9])], {"x": (1, 2, 12, 12)}, ["y", "i"])
    check_refused(proto, REWRITE, "indices")


def test_dilation_is_refused() -> None:
    call = node("MaxPool", ["x"], "y", kernel_shape=[9, 1], dilations=[2, 1])
    check_refused(network([call], {"x": (1, 2, 30, 3)}, ["y"]), REWRITE, "dilated")
