"""logic-to-arithmetic, where-to-slices, scatter-to-slices, where-to-arithmetic and topk-to-reduce-max."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest

from builders import network, node, run_onnx
from orinport.checking import as_precision, as_target, check_model, dla_judge
from orinport.model.load import load
from orinport.rewrites.catalogue import (
    logic_to_arithmetic,
    scatter_to_slices,
    topk_to_reduce_max,
    where_to_arithmetic,
    where_to_slices,
)
from orinport.rewrites.driver import rewrite_model
from orinport.rewrites.rewrite import Safety
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate_logic(draw: Draw) -> Pattern:
    kind = draw.choose(["And", "Or", "Xor", "Not"])
    shape = draw.shape(draw.choose([2, 3, 4]), 1, 5)
    inputs: dict[str, Any] = {"p": (shape, np.bool_)}
    constants = {}
    names = ["p"]
    if kind != "Not":
        other = tuple(size if draw.chance(0.7) else 1 for size in shape)
        names.append("q")
        if draw.chance(0.3):
            constants["q"] = np.asarray(draw.rng.integers(0, 2, other), np.bool_)
        else:
            inputs["q"] = (other, np.bool_)
    nodes = [node(kind, names, "r"), node("Cast", ["r"], "y", to=1)]
    if draw.chance(0.3):
        nodes = [node(kind, names, "r"), node("Where", ["r", "x", "z"], "y")]
        inputs |= {"x": shape, "z": shape}
        draw.dtype = np.float32
    return Pattern(nodes, inputs, ["y"], constants, draw.opset(9 if kind != "Or" else 12))


def generate_slices(draw: Draw) -> Pattern:
    shape = draw.shape(4, 2, 5)
    axis = draw.integer(1, 3)
    form = [1, 1, 1, 1]
    form[axis] = shape[axis]
    mask = draw.rng.integers(0, 2, form).astype(np.bool_)
    if draw.chance(0.4):
        mask = mask.reshape(mask.shape[draw.integer(0, 1) :])
    mask = np.ascontiguousarray(np.broadcast_to(mask, shape)) if draw.chance(0.2) else mask
    nodes = [node("Where", ["m", "x", "z"], "y")]
    mixed = bool(mask.any() and not mask.all())
    if draw.chance(0.3):
        nodes.append(node("Where", ["m", "z", "x"], "w"))
    outputs = [each.output[0] for each in nodes]
    inputs = {"x": shape, "z": shape}
    return Pattern(nodes, inputs, outputs, {"m": mask}, draw.opset(), applies=mixed or None)


def generate_scatter(draw: Draw) -> Pattern:
    shape = draw.shape(4, 2, 5)
    axis = draw.integer(1, 3)
    count = draw.integer(1, shape[axis] - 1)
    chosen = draw.rng.permutation(shape[axis])[:count]
    if draw.chance(0.4):
        chosen = chosen - shape[axis]
    given = list(shape)
    given[axis] = count
    form = [1, 1, 1, 1]
    form[axis] = count
    indices = np.ascontiguousarray(np.broadcast_to(chosen.reshape(form), given)).astype(np.int64)
    axis = axis - 4 if draw.chance(0.3) else axis
    opset = draw.opset()
    nodes = [node("Scatter" if opset < 11 else "ScatterElements", ["x", "i", "u"], "y", axis=axis)]
    return Pattern(nodes, {"x": shape, "u": tuple(given)}, ["y"], {"i": indices}, opset)


def generate_where(draw: Draw) -> Pattern:
    draw.dtype = np.float32
    shape = draw.shape(draw.choose([3, 4]), 2, 5)
    inputs: dict[str, Any] = {}
    constants: dict[str, np.ndarray] = {}
    small = tuple(size if draw.chance(0.7) else 1 for size in shape)
    if draw.chance(0.5):
        constants["m"] = draw.rng.integers(0, 2, small).astype(np.bool_)
    else:
        inputs["m"] = (small, np.bool_)
    kinds = draw.choose([("x", "c"), ("c", "x"), ("x", "z"), ("x", "0"), ("0", "x")])
    names = []
    for kind in kinds:
        if kind in ("x", "z"):
            inputs[kind] = shape
        else:
            constants[kind] = np.asarray(0.0 if kind == "0" else draw.choose([-5.0, -10000.0, 1.0]), draw.dtype)
        names.append(kind)
    nodes = [node("Where", ["m", *names], "y")]
    return Pattern(nodes, inputs, ["y"], constants, draw.opset(), special=False, overflow=False)


def generate_topk(draw: Draw) -> Pattern:
    draw.dtype = np.float32
    shape = draw.shape(draw.choose([2, 3, 4]), 1, 6)
    axis = draw.integer(-len(shape), len(shape) - 1)
    opset = draw.opset(11)
    attributes = {"axis": axis, "largest": draw.integer(0, 1)}
    nodes = [node("TopK", ["x", "k"], ["y", "places"], **attributes)]
    return Pattern(nodes, {"x": shape}, ["y"], {"k": np.asarray([1])}, opset, applies=None, nan=False)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    ("module", "generate"),
    [
        (logic_to_arithmetic, generate_logic),
        (where_to_slices, generate_slices),
        (scatter_to_slices, generate_scatter),
        (where_to_arithmetic, generate_where),
        (topk_to_reduce_max, generate_topk),
    ],
    ids=lambda each: getattr(each, "__name__", "").rpartition(".")[2],
)
def test_equal(module: Any, generate: Any, seeds: Sequence[int]) -> None:
    check_rewrite(module.REWRITE, generate, seeds)


def where(mask: Any, shape: Sequence[int] = (1, 3, 3, 3)) -> Any:
    nodes = [node("Where", ["m", "x", "z"], "y")]
    return network(nodes, {"x": tuple(shape), "z": tuple(shape)}, ["y"], {"m": np.asarray(mask)})


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_the_axis_is_not_guessed(axis: int) -> None:
    """Channels, height and width have one size."""
    form = [1, 1, 1, 1]
    form[axis] = 3
    mask = np.asarray([True, False, True]).reshape(form)
    model, log = apply_to(where(mask), where_to_slices.REWRITE)
    assert log.applied
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal((1, 3, 3, 3)).astype(np.float32) for name in "xz"}
    assert np.array_equal(run_onnx(ir.to_proto(model.ir), feeds)[0], np.where(mask, feeds["x"], feeds["z"]))


def test_an_infinity_that_is_not_chosen_stays_out() -> None:
    model, _ = apply_to(where(np.asarray([True, False, True]).reshape(1, 3, 1, 1)), where_to_slices.REWRITE)
    x = np.full((1, 3, 3, 3), 1.0, np.float32)
    x[:, 1] = -np.inf
    found = run_onnx(ir.to_proto(model.ir), {"x": x, "z": np.zeros_like(x)})[0]
    assert np.isfinite(found).all()


@pytest.mark.parametrize("form", [(1, 1, 3, 3), (1, 3, 1, 1), (1, 3, 3, 3)])
def test_a_mask_fill_goes_to_the_dla(form: tuple[int, ...]) -> None:
    mask = np.arange(int(np.prod(form))).reshape(form) % 2 == 0
    nodes = [node("Relu", ["x"], "a"), node("Where", ["m", "f", "a"], "y")]
    model = load(network(nodes, {"x": (1, 3, 3, 3)}, ["y"], {"m": mask, "f": np.asarray(-5, np.float32)}))
    target, precision = as_target("orin-agx-64gb/jp6.2"), as_precision("fp16")
    judge = dla_judge(target, precision, standalone=False)
    consent = [Safety.EXACT, Safety.TOLERANCE]
    result, log = rewrite_model(model, target=target, precision=precision, judge=judge, consent=consent)
    assert log.counts()["where-to-arithmetic"] == 1
    assert check_model(result, target, precision).all_dla


def test_refused() -> None:
    several = where(np.eye(3, dtype=bool).reshape(1, 1, 3, 3))
    check_refused(several, where_to_slices.REWRITE, "several axes")
    batch = where(np.asarray([True, False]).reshape(2, 1, 1, 1), (2, 3, 3, 3))
    check_refused(batch, where_to_slices.REWRITE, "along the batch")
    filled = network(
        [node("Where", ["m", "x", "c"], "y")],
        {"x": (1, 3, 3, 3), "m": ((1, 3, 3, 3), np.bool_)},
        ["y"],
        {"c": np.asarray(-np.inf, np.float32)},
    )
    check_refused(filled, where_to_arithmetic.REWRITE, "holds an infinity")
    check_refused(filled, where_to_slices.REWRITE, "known at run time only")
    for indices, shape, words in (
        ([[1, 1]], (1, 3, 2, 1), "stands twice"),
        ([[0], [1]], (1, 2, 2, 1), "differ along another axis"),
        ([[0]], (1, 3, 2, 1), "leave a part"),
    ):
        table = np.asarray(indices, np.int64).T[None, :, :, None]
        if words == "stands twice":
            table = np.broadcast_to(table, (1, 2, 2, 1)).copy()
        scatter = node("ScatterElements", ["x", "i", "u"], "y", axis=1)
        proto = network([scatter], {"x": shape, "u": table.shape}, ["y"], {"i": table})
        check_refused(proto, scatter_to_slices.REWRITE, words)
    nodes = [node("TopK", ["x", "k"], ["y", "places"])]
    proto = network(nodes, {"x": (2, 5)}, ["y", "places"], {"k": np.asarray([1])})
    check_refused(proto, topk_to_reduce_max.REWRITE, "places are used")
    best = network([node("ArgMax", ["x"], "y", axis=1)], {"x": (2, 5)}, ["y"])
    check_refused(best, topk_to_reduce_max.REWRITE, "returns no places")
