"""Recurrent layers that PyTorch writes out: merge-slices, reshape-to-transpose, steps in slices, sums and joints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.checking import as_precision, as_target, check_model
from orinport.model.load import load
from orinport.pipeline import rewrite_for
from orinport.rewrites.catalogue import (
    concat_to_channels,
    hoist_shape_mover,
    matmul_to_conv,
    merge_slices,
    reshape_to_transpose,
    sink_shape_mover,
    slice_to_4d,
)
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.rewrites.rewrite import Rewrite


def sliced(source: str, name: str, axis: int, part: range, size: int, constants: dict[str, np.ndarray]) -> Any:
    """A Slice of those elements, with ends and signs as exporters write them."""
    end = part[-1] + (1 if part.step > 0 else -1)
    given = {"s": part[0], "e": end if end >= 0 else -(2**31), "a": axis}
    if part.step != 1:
        given["t"] = part.step
    names = []
    for letter, number in given.items():
        constants[f"{name}_{letter}"] = np.asarray([number])
        names.append(f"{name}_{letter}")
    return node("Slice", [source, *names], name)


def drawn(draw: Draw, size: int) -> range:
    step = draw.choose([1, 1, 2, -1, -1])
    if step < 0:
        first = draw.choose([size - 1, draw.integer(0, size - 1)])
        return range(first, draw.integer(-1, first - 1), step)
    first = draw.integer(0, size - 1)
    return range(first, draw.integer(first + 1, size), step)


def part_of(draw: Draw, size: int, least: int = 1) -> range:
    """Mostly elements that are not all of them in order, at least so many."""
    parts = [drawn(draw, size) for _ in range(8)]
    fit = [part for part in parts if part != range(size) and len(part) >= least]
    return parts[0] if not fit or draw.chance(0.1) else fit[0]


def generate_slices(draw: Draw) -> Pattern:
    shape = list(draw.shape(draw.choose([2, 3, 4]), 1, 4))
    axis = draw.integer(0, len(shape) - 1)
    shape[axis] = draw.integer(3, 8)
    constants: dict[str, np.ndarray] = {}
    first = part_of(draw, shape[axis], 2)
    nodes = [sliced("x", "a", axis, first, shape[axis], constants)]
    outputs = []
    for index in range(draw.integer(1, 3)):
        part = part_of(draw, len(first))
        nodes.append(sliced("a", f"y{index}", axis, part, len(first), constants))
        outputs.append(f"y{index}")
    return Pattern(nodes, {"x": tuple(shape)}, outputs, constants, draw.opset(10), applies=None)


def generate_reshapes(draw: Draw) -> Pattern:
    large, places = draw.integer(2, 5), [1, 2, 3]
    before, after = [draw.integer(1, 2), 1, 1, 1], [1, 1, 1, 1]
    after[0] = before[0]
    place = draw.choose(places)
    before[place] = after[place if draw.chance(0.1) else draw.choose([each for each in places if each != place])] = (
        large
    )
    constants = {"s": np.asarray(after), "o": np.asarray(before)}
    inputs: dict[str, Any] = {"x": tuple(before)}
    applies = before != after
    if draw.chance(0.5):
        inputs["z"] = tuple(after)
        nodes = [node("Reshape", ["x", "s"], "r"), node("Concat", ["r", "z"], "y", axis=1)]
        if draw.chance(0.3):
            nodes[1] = node("Concat", ["r", "r"], "y", axis=1)
            inputs.pop("z")
    else:
        taken = before.index(large, 1)
        part = range(1 if draw.chance(0.1) else draw.integer(2, large))
        nodes = [sliced("x", "c", taken, part, large, constants)]
        small = [size if place == 0 or size == 1 else len(part) for place, size in enumerate(after)]
        constants["s"] = np.asarray(small)
        nodes.append(node("Reshape", ["c", "s"], "y"))
        applies = applies and len(part) > 1
        constants.pop("o")
        return Pattern(nodes, inputs, ["y"], constants, draw.opset(10), applies=applies or None)
    constants.pop("o")
    return Pattern(nodes, inputs, ["y"], constants, draw.opset(10), applies=applies)


def generate_sum(draw: Draw) -> Pattern:
    """Operands of which one lacks its first dimension of 1."""
    images, features = draw.integer(1, 3), draw.integer(2, 5)
    constants = {"s": np.asarray([images, features]), "t": np.asarray([1, images, features])}
    inputs = {"x": (images, features, 1, 1), "z": draw.choose([(1, images, features), (images, features)])}
    nodes = [node("Reshape", ["x", "s"], "r")]
    second = "z"
    if draw.chance(0.4):
        inputs["z"] = (images, features, 1, 1)
        nodes.append(node("Reshape", ["z", "t"], "u"))
        second = "u"
    else:
        constants.pop("t")
        if inputs["z"] == (images, features) and draw.chance(0.5):
            inputs["z"] = (1, images, features)
    nodes.append(node(draw.choose(["Add", "Mul", "Max"]), draw.choose([["r", second], [second, "r"]]), "y"))
    return Pattern(nodes, inputs, ["y"], constants, draw.opset(9), nan=nodes[-1].op_type != "Max")


def generate_sum_in_front(draw: Draw) -> Pattern:
    images, features = draw.integer(1, 3), draw.integer(2, 5)
    constants = {"s": np.asarray([images, features, 1, 1])}
    inputs = {"x": (images, features), "z": (1, images, features)}
    nodes = [node(draw.choose(["Add", "Mul"]), draw.choose([["x", "z"], ["z", "x"]]), "p")]
    nodes.append(node("Reshape", ["p", "s"], "y"))
    return Pattern(nodes, inputs, ["y"], constants, draw.opset(9))


def generate_parts(draw: Draw) -> Pattern:
    """Slices of an axis that movers left whole."""
    images, steps, features = draw.integer(1, 2), draw.integer(2, 5), draw.integer(2, 4)
    source, perm, shape, axis = draw.choose(
        [
            ((images, features, 1, steps), (3, 0, 1, 2), (steps, images, features), 0),
            ((images, steps, features, 1), (1, 0, 2, 3), (steps, images, features), 0),
            ((images, features, steps, 1), (0, 2, 1, 3), (images, steps, features), 1),
            ((images, features, steps, 1), (0, 2, 1, 3), (images, steps, features), 2),
        ]
    )
    constants = {"s": np.asarray(shape)}
    nodes = [node("Transpose", ["x"], "t", perm=list(perm)), node("Reshape", ["t", "s"], "r")]
    outputs = []
    for index in range(draw.integer(1, shape[axis])):
        first = draw.integer(0, shape[axis] - 1)
        part = range(first, draw.integer(first + 1, shape[axis]))
        nodes.append(sliced("r", f"y{index}", axis, part, shape[axis], constants))
        outputs.append(f"y{index}")
    return Pattern(nodes, {"x": source}, outputs, constants, draw.opset(10), applies=None)


def generate_joint(draw: Draw) -> Pattern:
    """Steps of a sequence, or tensors with an axis that movers left whole, side by side."""
    images, features = draw.integer(1, 3), draw.integer(2, 4)
    constants: dict[str, np.ndarray] = {}
    inputs: dict[str, Any] = {}
    nodes, names = [], []
    steps = draw.chance(0.5)
    for index in range(draw.integer(2, 4)):
        name = f"x{index}"
        if steps:
            inputs[name] = (images, features, 1, 1)
            several = draw.integer(1, 3)
            inputs[name] = (images, several * features, 1, 1)
            constants[f"s{index}"] = np.asarray([images, several, features])
            nodes.append(node("Reshape", [name, f"s{index}"], f"t{index}"))
            nodes.append(node("Transpose", [f"t{index}"], f"r{index}", perm=[1, 0, 2]))
        else:
            wide = draw.integer(2, 4)
            inputs[name] = (images, 3, wide, 1)
            constants[f"s{index}"] = np.asarray([3, images, wide])
            nodes.append(node("Transpose", [name], f"t{index}", perm=[1, 0, 2, 3]))
            nodes.append(node("Reshape", [f"t{index}", f"s{index}"], f"r{index}"))
        names.append(f"r{index}")
    nodes.append(node("Concat", names, "y", axis=0 if steps else draw.choose([2, -1])))
    return Pattern(nodes, inputs, ["y"], constants, draw.opset(11), applies=None)


def generate_directions(draw: Draw) -> Pattern:
    """Steps of two directions: joined over the steps first, then over the features."""
    images, steps = draw.integer(1, 3), draw.integer(2, 4)
    inputs: dict[str, Any] = {}
    constants: dict[str, np.ndarray] = {}
    nodes = []
    for direction in range(2):
        features = draw.integer(2, 4)
        constants[f"s{direction}"] = np.asarray([1, images, features])
        names = []
        for step in range(steps):
            name = f"x{direction}{step}"
            inputs[name] = (images, features, 1, 1)
            nodes.append(node("Reshape", [name, f"s{direction}"], f"r{direction}{step}"))
            names.append(f"r{direction}{step}")
        nodes.append(node("Concat", names[::-1] if direction else names, f"c{direction}", axis=0))
    nodes.append(node("Concat", ["c0", "c1"], "y", axis=2))
    return Pattern(nodes, inputs, ["y"], constants, draw.opset(9), applies=None)


def generate_sequence(draw: Draw) -> Pattern:
    """A product over all steps, taken apart behind its bias; forwards or backwards."""
    steps, images, inner, outer = draw.integer(2, 4), draw.integer(1, 3), draw.integer(1, 4), draw.integer(1, 4)
    constants = {"w": draw.array(inner, outer), "b": draw.array(outer)}
    nodes = [node("MatMul", ["x", "w"], "m"), node("Add", ["m", "b"], "l")]
    source = "l"
    if draw.chance(0.4):
        nodes.append(sliced("l", "f", 0, range(steps - 1, -1, -1), steps, constants))
        source = "f"
    outputs = []
    for index in range(steps):
        nodes.append(sliced(source, f"y{index}", 0, range(index, index + 1), steps, constants))
        outputs.append(f"y{index}")
    return Pattern(nodes, {"x": (steps, images, inner)}, outputs, constants, draw.opset(10))


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    ("rewrite", "generate"),
    [
        (merge_slices.REWRITE, generate_slices),
        (reshape_to_transpose.REWRITE, generate_reshapes),
        (sink_shape_mover.REWRITE, generate_sum),
        (hoist_shape_mover.REWRITE, generate_sum_in_front),
        (slice_to_4d.REWRITE, generate_parts),
        (concat_to_channels.REWRITE, generate_joint),
        (concat_to_channels.REWRITE, generate_directions),
        (matmul_to_conv.REWRITE, generate_sequence),
    ],
    ids=["slices", "reshapes", "sum", "sum in front", "parts", "joint", "directions", "sequence"],
)
def test_equal(rewrite: Rewrite, generate: Any, seeds: Sequence[int]) -> None:
    check_rewrite(rewrite, generate, seeds)


def test_a_sequence_lies_along_a_row() -> None:
    """One convolution of all steps, each of which is a column."""
    constants: dict[str, np.ndarray] = {"w": np.ones((8, 16), np.float32)}
    nodes = [node("MatMul", ["x", "w"], "m")]
    nodes += [sliced("m", f"y{index}", 0, range(index, index + 1), 5, constants) for index in range(5)]
    proto = network(nodes, {"x": (5, 2, 8)}, [f"y{index}" for index in range(5)], constants)
    model, log = apply_to(proto, matmul_to_conv.REWRITE, slice_to_4d.REWRITE)
    assert log.counts() == {"matmul-to-conv": 1, "slice-to-4d": 5}
    convolution = next(each for each in model.ir.graph if each.op_type == "Conv")
    assert list(convolution.outputs[0].shape or ()) == [2, 16, 1, 5]
    assert all(each.inputs[0] is convolution.outputs[0] for each in model.ir.graph if each.op_type == "Slice")


@pytest.mark.parametrize("stack", ["jp6.0", "jp6.2"])
def test_a_reshape_keeps_away_from_joined_steps(stack: str) -> None:
    """A convolution of ones stands between, but not where the edge of the network moves."""
    steps = [node("Reshape", [f"x{index}", "s"], f"r{index}") for index in range(3)]
    joint = node("Concat", ["r0", "r1", "r2"], "c", axis=0)
    constants = {"s": np.asarray([1, 1, 8]), "w": np.ones((8, 4), np.float32)}
    inputs = {f"x{index}": (1, 8, 1, 1) for index in range(3)}
    target, precision = as_target(f"orin-agx-64gb/{stack}"), as_precision("fp16")
    places: dict[str, np.ndarray] = {}
    layer = [node("MatMul", ["c", "w"], "m")]
    layer += [sliced("m", f"y{index}", 0, range(index, index + 1), 3, places) for index in range(3)]
    for behind, outputs in ((layer, ["y0", "y1", "y2"]), ([], ["c"])):
        used = constants | places if behind else {"s": constants["s"]}
        model = load(network([*steps, joint, *behind], inputs, outputs, used))
        result, log, _ = rewrite_for(model, target, precision)
        assert log.counts()["concat-to-channels"] == 1
        ones = [each for each in result.ir.graph if each.op_type == "Conv" and each.inputs[0].shape == (1, 24, 1, 1)]
        assert len(ones) == bool(behind)
        assert check_model(result, target, precision).all_dla


def test_features_of_images_stay_a_batch() -> None:
    constants = {"w": np.ones((8, 16), np.float32)}
    proto = network([node("MatMul", ["x", "w"], "y")], {"x": (5, 1, 8)}, ["y"], constants)
    model, _ = apply_to(proto, matmul_to_conv.REWRITE)
    convolution = next(each for each in model.ir.graph if each.op_type == "Conv")
    assert list(convolution.outputs[0].shape or ()) == [5, 16, 1, 1]


def test_refused() -> None:
    nodes = [node("Slice", ["x", "s", "e"], "a"), node("Slice", ["a", "t", "f"], "y")]
    inputs: dict[str, Any] = {"x": (4, 4), "s": ((1,), np.int64), "e": ((1,), np.int64)}
    proto = network(nodes, inputs, ["y"], {"t": np.asarray([0]), "f": np.asarray([1])})
    check_refused(proto, merge_slices.REWRITE, "run time")


@pytest.mark.torch
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_first": False},
        {"bidirectional": True},
        {"num_layers": 2, "nonlinearity": "relu"},
        {"num_layers": 2, "bidirectional": True, "bias": False},
    ],
    ids=["one", "steps first", "both directions", "two layers", "everything"],
)
@pytest.mark.parametrize(("states", "stack"), [(False, "jp6.0"), (False, "jp6.2"), (True, "jp6.2")])
def test_a_layer_of_pytorch_goes_to_the_dla(options: dict[str, Any], states: bool, stack: str) -> None:
    """Every layer of it, in one loadable; as nn.GRU and nn.LSTM do."""
    import torch

    torch.manual_seed(0)
    module = torch.nn.RNN(8, 16, **{"batch_first": True, **options}).eval()
    x = torch.randn(4, 1, 8) if options.get("batch_first") is False else torch.randn(1, 4, 8)
    count = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    inputs = (x, torch.randn(count, 1, 16)) if states else (x,)
    proto = torch.onnx.export(module, inputs, dynamo=True, verbose=False).model_proto
    target, precision = as_target(f"orin-agx-64gb/{stack}"), as_precision("fp16")
    result, log, _ = rewrite_for(load(proto), target, precision)
    assert not log.rolled_back
    report = check_model(result, target, precision)
    assert report.all_dla, [(row.layer.name, row.codes) for row in report.layers if row.verdict.value != "dla"]
    assert report.placement.loadables == 1
