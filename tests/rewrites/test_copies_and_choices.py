"""concat-to-channels, tile-to-concat, pad-to-concat, slice-step-to-conv, and gather-to-slices of other ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.checking import as_precision, as_target, check_model, dla_judge
from orinport.model.load import load
from orinport.rewrites.catalogue import (
    concat_to_channels,
    gather_to_slices,
    pad_to_concat,
    slice_step_to_conv,
    tile_to_concat,
)
from orinport.rewrites.driver import rewrite_model
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate_concat(draw: Draw) -> Pattern:
    rank = draw.choose([2, 3, 3, 4, 4, 5])
    axis = draw.choose([axis for axis in range(rank) if rank != 4 or axis in (2, 3)])
    shape = list(draw.shape(rank, 1, 4))
    names, inputs, constants = [], {}, {}
    for index in range(draw.integer(2, 3)):
        shape[axis] = draw.integer(1, 4)
        name = "x" if index == 1 and draw.chance(0.2) and names else f"x{index}"
        if index == 2 and draw.chance(0.4):
            constants["k"] = draw.array(*shape)
            name = "k"
        elif name == "x":
            name = names[0]
        else:
            inputs[name] = tuple(shape)
        names.append(name)
    moved = []
    nodes = []
    for name in names:
        if name in inputs and draw.chance(0.2):
            constants["flat"] = np.asarray([-1])
            constants[f"{name}_s"] = np.asarray(inputs[name])
            if not any(each.output[0] == f"{name}_b" for each in nodes):
                nodes += [
                    node("Reshape", [name, "flat"], f"{name}_a"),
                    node("Reshape", [f"{name}_a", f"{name}_s"], f"{name}_b"),
                ]
            name = f"{name}_b"
        moved.append(name)
    nodes.append(node("Concat", moved, "y", axis=axis - rank if draw.chance(0.3) else axis))
    return Pattern(nodes, inputs, ["y"], constants, draw.opset(11))


def generate_copies(draw: Draw) -> Pattern:
    shape = (draw.integer(1, 2), *(1 if draw.chance(0.5) else draw.integer(2, 4) for _ in range(3)))
    repeats = [1, *(draw.integer(1, 3) for _ in range(3))]
    changes = any(count > 1 for count in repeats)
    if draw.chance(0.5):
        constants = {"r": np.asarray(repeats)}
        return Pattern([node("Tile", ["x", "r"], "y")], {"x": shape}, ["y"], constants, draw.opset(), applies=changes)
    wanted = [
        1,
        *(count if size == 1 else draw.choose([1, size]) for size, count in zip(shape[1:], repeats[1:], strict=True)),
    ]
    changes = any(count > 1 and size == 1 for size, count in zip(shape[1:], wanted[1:], strict=True))
    constants = {"r": np.asarray(wanted)}
    return Pattern([node("Expand", ["x", "r"], "y")], {"x": shape}, ["y"], constants, draw.opset(), applies=changes)


def generate_pad(draw: Draw) -> Pattern:
    shape = (*draw.shape(2, 1, 3), *draw.shape(2, 3, 6))
    opset = draw.choose([11, 13, 17, 19, 21])
    mode = draw.choose(["reflect", "edge", "wrap"] if opset >= 19 else ["reflect", "edge"])
    added = [draw.integer(0, 2) for _ in range(4)]
    names = ["x", "p"]
    constants = {"p": np.asarray([0, 0, *added[:2], 0, 0, *added[2:]])}
    if opset >= 19 and draw.chance(0.5):
        constants = {"p": np.asarray(added), "axes": np.asarray([2, -1])}
        names += ["", "axes"]
    nodes = [node("Pad", names, "y", mode=mode)]
    return Pattern(nodes, {"x": shape}, ["y"], constants, opset, applies=any(added))


def generate_steps(draw: Draw) -> Pattern:
    shape = (*draw.shape(2, 1, 4), *draw.shape(2, 3, 9))
    axes = sorted({draw.choose([1, 2, 3, 2, 3]) for _ in range(draw.integer(1, 3))})
    starts, ends, steps = [], [], []
    for axis in axes:
        size = shape[axis]
        if draw.chance(0.25):
            starts.append(draw.choose([-1, size - 1, 2**31]))
            ends.append(draw.choose([-(2**31), -size - 1]))
            steps.append(-draw.integer(1, 2))
        else:
            starts.append(draw.integer(0, size - 1) - (size if draw.chance(0.3) else 0))
            ends.append(draw.choose([size, 2**31, 2**62]))
            steps.append(draw.integer(1, 3))
    kind = np.int64
    constants = {
        "s": np.asarray(starts, kind),
        "e": np.asarray(ends, kind),
        "a": np.asarray([axis - 4 if draw.chance(0.3) else axis for axis in axes], kind),
        "t": np.asarray(steps, kind),
    }
    nodes = [node("Slice", ["x", "s", "e", "a", "t"], "y")]
    single = any(shape[axis] == 1 for axis in axes)
    applies = None if single else any(step != 1 for step in steps)
    return Pattern(nodes, {"x": shape}, ["y"], constants, draw.opset(10), applies=applies)


def generate_gather(draw: Draw) -> Pattern:
    rank = draw.choose([2, 3, 5])
    shape = draw.shape(rank, 1, 5)
    axis = draw.integer(0, rank - 1)
    indices: Any = np.asarray([draw.integer(-shape[axis], shape[axis] - 1) for _ in range(draw.integer(1, 4))])
    if draw.chance(0.4):
        indices = indices[0]
    constants = {"i": np.asarray(indices, np.int64)}
    nodes = [node("Gather", ["x", "i"], "y", axis=axis)]
    return Pattern(nodes, {"x": shape}, ["y"], constants, draw.opset(11))


def generate_projections(draw: Draw) -> Pattern:
    """Queries, keys and values from their common projection, as PyTorch exports them."""
    images, parts, features, tokens = draw.integer(1, 2), draw.integer(2, 3), draw.integer(1, 4), draw.integer(2, 5)
    constants: dict[str, np.ndarray] = {"s": np.asarray([images, parts, features, tokens])}
    nodes = [node("Reshape", ["x", "s"], "r"), node("Transpose", ["r"], "t", perm=[1, 3, 0, 2])]
    outputs = []
    for index in range(draw.integer(1, parts)):
        constants[f"i{index}"] = np.asarray(index - parts if draw.chance(0.3) else index)
        nodes.append(node("Gather", ["t", f"i{index}"], f"y{index}", axis=0))
        outputs.append(f"y{index}")
    return Pattern(nodes, {"x": (images, parts * features, 1, tokens)}, outputs, constants, draw.opset(11))


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    ("module", "generate"),
    [
        (gather_to_slices, generate_projections),
        (concat_to_channels, generate_concat),
        (tile_to_concat, generate_copies),
        (pad_to_concat, generate_pad),
        (slice_step_to_conv, generate_steps),
        (gather_to_slices, generate_gather),
    ],
    ids=lambda each: getattr(each, "__name__", "").rpartition(".")[2],
)
def test_equal(module: Any, generate: Any, seeds: Sequence[int]) -> None:
    check_rewrite(module.REWRITE, generate, seeds)


def between(nodes: list[Any], constants: dict[str, np.ndarray], shape: Sequence[int] = (1, 16, 8, 12)) -> Any:
    """The nodes from "a" to "b" between two Relu."""
    return network(
        [node("Relu", ["x"], "a"), *nodes, node("Relu", ["b"], "y")],
        {"x": tuple(shape)},
        ["y"],
        {name: np.asarray(array) for name, array in constants.items()},
        opset=19,
    )


FOCUS = {"s": [0, 1], "e": [2**31, 2**31], "x2": [2, 3], "t": [2, 2]}


@pytest.mark.parametrize(
    "proto",
    [
        between([node("Sigmoid", ["x"], "c"), node("Concat", ["a", "c"], "b", axis=2)], {}),
        between([node("Sigmoid", ["x"], "c"), node("Concat", ["a", "c"], "b", axis=3)], {}),
        between([node("Tile", ["a", "r"], "b")], {"r": [1, 2, 1, 1]}),
        between(
            [node("MaxPool", ["a"], "m", kernel_shape=[8, 1]), node("Expand", ["m", "r"], "b")], {"r": [1, 1, 8, 1]}
        ),
        between([node("Slice", ["a", "s", "e", "x2", "t"], "b")], FOCUS),
        between([node("Pad", ["a", "p"], "b", mode="edge")], {"p": [0, 0, 1, 1, 0, 0, 1, 1]}),
        between([node("Gather", ["a", "i"], "b", axis=1)], {"i": [3, 1, 2]}),
        between([node("Gather", ["a", "i"], "b", axis=-1)], {"i": [3, 1, 2]}),
    ],
    ids=lambda proto: "-".join(each.op_type for each in proto.graph.node[1:-1]),
)
def test_takes_it_to_the_dla(proto: Any) -> None:
    target, precision = as_target("orin-agx-64gb/jp6.2"), as_precision("fp16")
    model = load(proto)
    assert not check_model(model, target, precision).all_dla
    judge = dla_judge(target, precision, standalone=False)
    result, log = rewrite_model(model, target=target, precision=precision, judge=judge)
    assert not log.rolled_back
    report = check_model(result, target, precision)
    assert report.all_dla, [(row.layer.name, row.codes) for row in report.layers if row.verdict.value != "dla"]


def test_what_stands_alone_stays_on_the_gpu() -> None:
    """Nothing around it is 4-D; with a 4-D tensor behind it, it goes."""
    nodes = [node("Abs", ["x"], "a"), node("Neg", ["x"], "b"), node("Concat", ["a", "b"], "y", axis=1)]
    proto = network(nodes, {"x": (1, 20, 32)}, ["y"])
    board = as_target("orin-agx-64gb/jp6.2")
    check_refused(proto, concat_to_channels.REWRITE, "nothing around it is 4-D", target=board)
    nodes.append(node("Reshape", ["y", "s"], "z"))
    proto = network(nodes, {"x": (1, 20, 32)}, ["z"], {"s": np.asarray([1, 40, 32, 1])})
    _, log = apply_to(proto, concat_to_channels.REWRITE, target=board)
    assert log.applied


def test_a_reshape_does_not_follow_a_joint() -> None:
    heads = [node("Concat", ["x", "x"], "a", axis=1), node("Reshape", ["a", "s"], "b")]
    nodes = [*heads, node("Concat", ["b", "b"], "y", axis=2)]
    proto = network(nodes, {"x": (1, 4, 3, 3)}, ["y"], {"s": np.asarray([1, 8, 9])})
    check_refused(proto, concat_to_channels.REWRITE, "may not follow", target=as_target("orin-agx-64gb/jp6.0"))


def test_refused() -> None:
    batch = network([node("Concat", ["x", "z"], "y", axis=0)], {"x": (1, 2, 3, 4), "z": (1, 2, 3, 4)}, ["y"])
    check_refused(batch, concat_to_channels.REWRITE, "joins samples")
    tile = network([node("Tile", ["x", "r"], "y")], {"x": (1, 2, 3, 4)}, ["y"], {"r": np.asarray([2, 1, 1, 1])})
    check_refused(tile, tile_to_concat.REWRITE, "copies the batch")
    many = network([node("Tile", ["x", "r"], "y")], {"x": (1, 2, 3, 4)}, ["y"], {"r": np.asarray([1, 65, 1, 1])})
    check_refused(many, tile_to_concat.REWRITE, "65 copies")
    rank = network([node("Tile", ["x", "r"], "y")], {"x": (2, 3)}, ["y"], {"r": np.asarray([1, 2])})
    check_refused(rank, tile_to_concat.REWRITE, "rank 2")
    pads = {"p": np.asarray([0, 1, 0, 0, 0, 0, 0, 0])}
    channels = network([node("Pad", ["x", "p"], "y", mode="edge")], {"x": (1, 2, 3, 4)}, ["y"], pads)
    check_refused(channels, pad_to_concat.REWRITE, "pads the batch or the channels")
    steps = {name: np.asarray([each]) for name, each in (("s", 0), ("e", 4), ("a", 0), ("t", 2))}
    samples = network([node("Slice", ["x", *steps], "y")], {"x": (4, 2, 3, 4)}, ["y"], steps)
    check_refused(samples, slice_step_to_conv.REWRITE, "slices the batch")
    flip = {name: np.asarray([each]) for name, each in (("s", -1), ("e", -(2**31)), ("a", 2), ("t", -1))}
    tall = network([node("Slice", ["x", *flip], "y")], {"x": (1, 2, 100, 4)}, ["y"], flip)
    check_refused(tall, slice_step_to_conv.REWRITE, "100 slices")
