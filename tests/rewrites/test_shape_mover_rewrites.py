"""merge-, sink- and hoist-shape-mover and softmax-to-channels: what moves shapes out of the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue import hoist_shape_mover, merge_shape_movers, sink_shape_mover, softmax_to_channels
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

UNARY = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Clip", "LeakyRelu", "Exp")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min")


def _reshape(name: str, source: str, shape: Sequence[int], constants: dict[str, np.ndarray]) -> Any:
    constants[f"{name}_shape"] = np.asarray(shape, np.int64)
    return node("Reshape", [source, f"{name}_shape"], name)


def generate_chain(draw: Draw) -> Pattern:
    """Two to four movers of random kinds in a row; they compose if they are aligned."""
    shape = (draw.integer(1, 2), *draw.shape(3, 1, 4))
    nodes, constants = [], {}
    current, dims = "x", shape
    for index in range(draw.integer(2, 4)):
        name = f"m{index}"
        kind = draw.choose(["reshape", "transpose", "flatten", "back"])
        if kind == "transpose":
            perm = list(draw.rng.permutation(len(dims)))
            nodes.append(node("Transpose", [current], name, perm=[int(axis) for axis in perm]))
            dims = tuple(dims[axis] for axis in perm)
        elif kind == "flatten":
            axis = draw.integer(0, len(dims))
            nodes.append(node("Flatten", [current], name, axis=axis))
            dims = (int(np.prod(dims[:axis])), int(np.prod(dims[axis:])))
        else:
            flat = [d for d in dims if d != 1] or [1]
            dims = shape if kind == "back" and np.prod(shape) == np.prod(dims) else (1, *flat)
            nodes.append(_reshape(name, current, dims, constants))
        current = name
    nodes.append(node("Neg", [current], "y"))
    return Pattern(nodes, {"x": shape}, ["y"], constants, draw.opset(), applies=True)


@pytest.mark.parametrize("seeds", SEEDS)
def test_merge_equal(seeds: Sequence[int]) -> None:
    def generate(draw: Draw) -> Pattern:
        pattern = generate_chain(draw)
        constants: dict[str, np.ndarray] = dict(pattern.constants)
        # One pair that surely cancels, in front of whatever else was drawn.
        n, c, h, w = pattern.inputs["x"]
        head = [_reshape("h0", "x", (n, c * h * w), constants), _reshape("h1", "h0", (n, c, h, w), constants)]
        for each in pattern.nodes:
            for index, name in enumerate(each.input):
                if name == "x":
                    each.input[index] = "h1"
        return Pattern([*head, *pattern.nodes], pattern.inputs, ["y"], constants, pattern.opset)

    check_rewrite(merge_shape_movers.REWRITE, generate, seeds)


def generate_sink(draw: Draw) -> Pattern:
    shape = (draw.integer(1, 2), *draw.shape(3, 1, 5))
    n, c, h, w = shape
    constants: dict[str, np.ndarray] = {}
    flat = draw.choose([(n, c * h * w), (n, c, h * w), (n * c, h, w), (1, n, c, h, w)])
    transposed = draw.chance(0.3)
    nodes, inputs = [], {"x": shape}

    def moved(source: str, name: str) -> None:
        if transposed:
            nodes.append(node("Transpose", [source], f"{name}_t", perm=[0, 2, 3, 1]))
            nodes.append(_reshape(name, f"{name}_t", (n, h * w, c), constants))
        else:
            nodes.append(_reshape(name, source, flat, constants))

    moved("x", "r")
    result = (n, h * w, c) if transposed else flat
    opset = draw.opset()
    if draw.chance(0.4):
        kind = draw.choose(UNARY)
        names = ["r"]
        if kind == "Clip":
            names, opset = ["r", "low", "high"], max(opset, 12)
            constants |= {"low": np.asarray(-0.5, draw.dtype), "high": np.asarray(0.75, draw.dtype)}
        nodes.append(node(kind, names, "y"))
    elif draw.chance(0.6):
        form = [size if draw.chance(0.6) else 1 for size in result][draw.integer(0, len(result)) :]
        constants["k"] = np.abs(draw.array(*form)) + np.asarray(0.5, draw.dtype)
        nodes.append(node(draw.choose(BINARY), draw.choose([["r", "k"], ["k", "r"]]), "y"))
    else:
        inputs["z"] = shape
        moved("z", "s")
        nodes.append(node(draw.choose(BINARY), ["r", "s"], "y"))
    return Pattern(nodes, inputs, ["y"], constants, opset)


@pytest.mark.parametrize("seeds", SEEDS)
def test_sink_equal(seeds: Sequence[int]) -> None:
    check_rewrite(sink_shape_mover.REWRITE, generate_sink, seeds)


def generate_hoist(draw: Draw) -> Pattern:
    shape = (draw.integer(1, 2), *draw.shape(3, 1, 5))
    n, c, h, w = shape
    constants: dict[str, np.ndarray] = {}
    flat = draw.choose([(n, c * h * w), (n, c, h * w), (n * c, h, w)])
    inputs = {"x": flat}
    opset = draw.opset()
    if draw.chance(0.4):
        kind = draw.choose([kind for kind in UNARY if kind != "Clip"])
        nodes = [node(kind, ["x"], "p")]
    elif draw.chance(0.6):
        form = [size if draw.chance(0.6) else 1 for size in flat][draw.integer(0, len(flat)) :]
        constants["k"] = np.abs(draw.array(*form)) + np.asarray(0.5, draw.dtype)
        nodes = [node(draw.choose(BINARY), draw.choose([["x", "k"], ["k", "x"]]), "p")]
    else:
        inputs["z"] = flat
        nodes = [node(draw.choose(BINARY), ["x", draw.choose(["x", "z"])], "p")]
    nodes.append(_reshape("y", "p", shape, constants))
    return Pattern(nodes, inputs, ["y"], constants, opset)


@pytest.mark.parametrize("seeds", SEEDS)
def test_hoist_equal(seeds: Sequence[int]) -> None:
    check_rewrite(hoist_shape_mover.REWRITE, generate_hoist, seeds)


def generate_softmax(draw: Draw) -> Pattern:
    shape = draw.shape(draw.choose([1, 2, 3, 5]), 1, 5)
    axis = draw.integer(-len(shape), len(shape) - 1)
    nodes = [node("Softmax", ["x"], "y", axis=axis)]
    return Pattern(nodes, {"x": shape}, ["y"], {}, draw.opset(13))


@pytest.mark.parametrize("seeds", SEEDS)
def test_softmax_equal(seeds: Sequence[int]) -> None:
    check_rewrite(softmax_to_channels.REWRITE, generate_softmax, seeds)


def generate_old_softmax(draw: Draw) -> Pattern:
    """Below opset 13, where the opset is raised first; operators around it change their form."""
    shape = draw.shape(draw.integer(2, 3), 2, 5)
    axis = draw.integer(1, len(shape) - 1)
    opset = draw.opset(9, 12)
    constants: dict[str, np.ndarray] = {}
    nodes = [
        node("Dropout", ["x"], "d"),
        node("Unsqueeze", ["d"], "u", axes=[0]),
        node("Squeeze", ["u"], "s", axes=[0]),
    ]
    nodes.append(node("Softmax", ["s"], "y", axis=axis))
    if opset < 11:
        nodes.insert(0, node("Clip", ["w"], "x", min=-1.0, max=2.0))
        return Pattern(nodes, {"w": shape}, ["y"], constants, opset, applies=True)
    return Pattern(nodes, {"x": shape}, ["y"], constants, opset, applies=True)


@pytest.mark.parametrize("seeds", SEEDS)
def test_raised_softmax_equal(seeds: Sequence[int]) -> None:
    check_rewrite(softmax_to_channels.REWRITE, generate_old_softmax, seeds)


def test_an_operator_of_another_meaning_keeps_the_opset() -> None:
    constants = {"scales": np.asarray([1, 1, 2, 2], np.float32)}
    nodes = [node("Resize", ["x", "scales"], "r"), node("Softmax", ["r"], "y")]
    proto = network(nodes, {"x": (1, 2, 3, 3)}, ["y"], constants, opset=10)
    model, log = apply_to(proto, softmax_to_channels.REWRITE)
    assert model.opset == 10
    assert not log.applied
    assert any("Resize changed its meaning" in refused.reason for refused in log.refused)


def test_softmax_of_a_model_that_stays_old_is_refused() -> None:
    constants = {"scales": np.asarray([1, 2, 2], np.float32)}
    nodes = [node("Resize", ["x", "scales"], "r"), node("Softmax", ["r"], "y")]
    proto = network(nodes, {"x": (2, 3, 3)}, ["y"], constants, opset=10)
    _, log = apply_to(proto, softmax_to_channels.REWRITE)
    assert any(refused.rewrite == "softmax-to-channels" for refused in log.refused)
    check_none(proto)


def check_none(proto: Any) -> None:
    """Nothing to merge in a network without movers."""
    _, log = apply_to(proto, merge_shape_movers.REWRITE)
    assert not log.applied
    assert not log.refused


def test_unknown_shape_is_refused_by_softmax() -> None:
    proto = network(
        [node("NonZero", ["x"], "n"), node("Cast", ["n"], "c", to=1), node("Softmax", ["c"], "y")], {"x": (3, 3)}, ["y"]
    )
    check_refused(proto, softmax_to_channels.REWRITE, "shape is not known")
