"""fuse-parallel-convs and conv-slices-to-convs: convolutions of one tensor joined and taken apart again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.checking import as_target, dla_clock, dla_judge
from orinport.model.load import load
from orinport.rewrites.catalogue import conv_slices_to_convs, fuse_parallel_convs
from orinport.rewrites.driver import rewrite_model
from orinport.targets.target import Precision
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

FUSE, SPLIT = fuse_parallel_convs.REWRITE, conv_slices_to_convs.REWRITE


def branches(draw: Draw) -> Pattern:
    kernel = draw.shape(2, 1, 3)
    attributes: dict[str, Any] = {
        "strides": draw.shape(2, 1, 2),
        "pads": [draw.integer(0, k - 1) for k in (*kernel, *kernel)],
    }
    channels, relu = draw.integer(1, 4), draw.choose([True, False, None])
    nodes, constants, outputs = [], {}, []
    for index in range(draw.integer(2, 4)):
        names = ["x", f"w{index}"]
        constants[f"w{index}"] = draw.array(draw.integer(1, 4), channels, *kernel)
        if draw.chance(0.5):
            names.append(f"b{index}")
            constants[names[-1]] = draw.array(constants[f"w{index}"].shape[0])
        nodes.append(node("Conv", names, f"c{index}", **attributes))
        outputs.append(f"c{index}")
        if relu or (relu is None and draw.chance(0.5)):
            nodes.append(node("Relu", [f"c{index}"], f"r{index}"))
            outputs[-1] = f"r{index}"
    pattern = Pattern(nodes, {"x": (draw.integer(1, 2), channels, 5, 6)}, outputs, constants, draw.opset())
    pattern.applies = None if relu is None or relu else True
    return pattern


def sliced(draw: Draw) -> Pattern:
    opset = draw.opset()
    outputs = draw.integer(2, 7)
    constants = {"w": draw.array(outputs, 3, 2, 2)}
    if draw.chance(0.5):
        constants["b"] = draw.array(outputs)
    nodes = [node("Conv", ["x", *constants], "c")]
    source = "c"
    if draw.chance(0.3):
        nodes.append(node(draw.choose(["Relu", "LeakyRelu", "Tanh"]), ["c"], "r"))
        source = "r"
    if draw.chance(0.4):  # SiLU
        nodes += [node("Sigmoid", [source], "g"), node("Mul", draw.choose([[source, "g"], ["g", source]]), "m")]
        source = "m"
    cut = draw.integer(1, outputs - 1)
    sizes, names = [cut, outputs - cut], ["s0", "s1"]
    if draw.chance(0.4):
        if opset < 13:
            nodes.append(node("Split", [source], names, axis=1, split=sizes))
        else:
            constants["sizes"] = np.asarray(sizes, np.int64)
            nodes.append(node("Split", [source, "sizes"], names, axis=draw.choose([1, -3])))
    else:
        for index, (start, end) in enumerate([(0, cut), (cut - outputs, 2**31 - 1)]):
            if opset < 10:
                nodes.append(node("Slice", [source], f"s{index}", starts=[start], ends=[end], axes=[1]))
                continue
            numbers = {f"{part}{index}": np.asarray([n], np.int64) for part, n in (("f", start), ("e", end), ("a", 1))}
            constants |= numbers
            nodes.append(node("Slice", [source, *numbers], f"s{index}"))
    nodes += [node("Neg", [name], f"y{index}") for index, name in enumerate(names)]
    return Pattern(nodes, {"x": (1, 3, 4, 5)}, ["y0", "y1"], constants, opset)


@pytest.mark.parametrize("seeds", SEEDS)
def test_joined_is_equal(seeds: Sequence[int]) -> None:
    check_rewrite(FUSE, branches, seeds)


@pytest.mark.parametrize("seeds", SEEDS)
def test_taken_apart_is_equal(seeds: Sequence[int]) -> None:
    check_rewrite(SPLIT, sliced, seeds)


def pair(
    second: dict[str, Any], shapes: Sequence[tuple[int, ...]] = ((32, 64, 1, 1), (32, 64, 1, 1)), size: int = 64
) -> Any:
    constants = {f"w{index}": np.ones(shape, np.float32) for index, shape in enumerate(shapes)}
    nodes = [node("Conv", ["x", "w0"], "y"), node("Conv", ["x", "w1"], "z", **second)]
    return network(nodes, {"x": (1, 64, size, size)}, ["y", "z"], constants)


def test_outputs_of_the_network_come_from_the_split() -> None:
    model, _ = apply_to(pair({}), FUSE)
    assert [each.op_type for each in model.graph] == ["Conv", "Split"]
    assert [value.name for value in model.graph.outputs] == ["y", "z"]


@pytest.mark.parametrize("other", [{"strides": [2, 2]}, {"pads": [1, 1, 1, 1]}])
def test_other_windows_are_refused(other: dict[str, Any]) -> None:
    _, log = apply_to(pair(other), FUSE)
    assert not log.applied
    assert {refused.reason for refused in log.refused} == {
        "the convolutions beside it have another kernel, stride, padding, dilation or ReLU"
    }


def test_convolutions_of_different_tensors_stay_two() -> None:
    constants = {"w": np.ones((2, 3, 1, 1), np.float32)}
    nodes = [node("Conv", ["x", "w"], "y"), node("Conv", ["z", "w"], "v")]
    _, log = apply_to(network(nodes, {"x": (1, 3, 4, 4), "z": (1, 3, 4, 4)}, ["y", "v"], constants), FUSE)
    assert not log.applied


def test_too_many_channels_are_refused() -> None:
    proto = pair({}, ((5000, 64, 1, 1), (5000, 64, 1, 1)), 2)
    _, log = apply_to(proto, FUSE)
    assert "10000" in log.refused[0].reason


@pytest.mark.parametrize(("precision", "rewrite", "applied"), [("fp16", FUSE, True), ("int8", FUSE, False)])
def test_applied_only_where_it_pays(precision: str, rewrite: Any, applied: bool) -> None:
    target, kind = as_target("orin-agx-64gb/jp6.0"), Precision(precision)
    _, log = rewrite_model(
        load(pair({})),
        target=target,
        precision=kind,
        judge=dla_judge(target, kind, standalone=False),
        clock=dla_clock(target, kind),
        rewrites=[rewrite, SPLIT],
    )
    assert bool(log.applied) is applied


def test_int8_has_no_slices() -> None:
    proto = pair({})
    joined, _ = apply_to(proto, FUSE)
    target = as_target("orin-agx-64gb/jp6.0")
    model, log = rewrite_model(
        joined,
        target=target,
        precision=Precision.INT8,
        judge=dla_judge(target, Precision.INT8, standalone=False),
        clock=dla_clock(target, Precision.INT8),
        rewrites=[FUSE, SPLIT],
    )
    assert log.counts() == {"conv-slices-to-convs": 1}
    assert [each.op_type for each in model.graph] == ["Conv", "Conv"]
