"""activation-to-sigmoid and gelu-to-tanh: equal within the stated error, which is measured here; slice-to-4d."""

from __future__ import annotations

from math import erf
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.checking import as_precision, as_target, check_model, dla_judge
from orinport.model.load import load
from orinport.rewrites.catalogue import activation_to_sigmoid, gelu_to_tanh, slice_to_4d
from orinport.rewrites.catalogue._approximations import decay, log_of_sum, reciprocal_of_sum, tanh_argument
from orinport.rewrites.driver import rewrite_model
from orinport.rewrites.rewrite import Safety
from rewrites.harness import SEEDS, Draw, Pattern, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

X = np.linspace(-60.0, 60.0, 400_001)


def _poly(coefficients: Sequence[float], at: np.ndarray) -> np.ndarray:
    return np.polynomial.Polynomial(coefficients)(at)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def test_softplus_error() -> None:
    v = _sigmoid(-np.abs(X))
    gap = np.abs(np.maximum(X, 0) + v * _poly(log_of_sum(), v) - np.logaddexp(0, X)).max()
    assert 0 < gap < 1e-5


def test_elu_error() -> None:
    below = np.minimum(X, 0)
    v = _sigmoid(below)
    gap = np.abs((1 - 2 * v) * _poly(decay(), v) - np.expm1(below)).max()
    assert 0 < gap * 1.9 < activation_to_sigmoid.REWRITE.error


def test_mish_error() -> None:
    s, t = _sigmoid(X), _sigmoid(-X)
    gap = np.abs(X * s * (1 + t) * _poly(reciprocal_of_sum(), t * t) - X * np.tanh(np.logaddexp(0, X)))
    assert 0 < (gap / np.maximum(1, np.abs(X))).max() < activation_to_sigmoid.REWRITE.error


def test_gelu_and_erf_error() -> None:
    exact = np.vectorize(erf)(X[::8])
    a, b = tanh_argument()
    z = X[::8]
    error = np.abs(np.tanh(a * z + b * z**3) - exact).max()
    assert 3e-4 < error < gelu_to_tanh.REWRITE.error
    x = z * np.sqrt(2.0)
    gelu = np.abs(0.5 * x * (np.tanh(a * z + b * z**3) - exact)).max()
    assert 4e-4 < gelu < gelu_to_tanh.REWRITE.error


def generate_smooth(draw: Draw) -> Pattern:
    draw.dtype = np.float32
    kind = draw.choose(["Softplus", "Elu", "Selu", "Celu", "Mish"])
    shape = draw.shape(draw.choose([2, 3, 4, 4]), 1, 6)
    attributes = {}
    if kind in ("Elu", "Celu", "Selu") and draw.chance(0.5):
        attributes["alpha"] = float(draw.choose([0.5, 1.0, 1.5]))
    opset = draw.opset(18 if kind == "Mish" else 12 if kind == "Celu" else 9)
    return Pattern([node(kind, ["x"], "y", **attributes)], {"x": shape}, ["y"], {}, opset, special=False)


def generate_gelu(draw: Draw) -> Pattern:
    draw.dtype = np.float32
    shape = draw.shape(draw.choose([2, 3, 4, 4]), 1, 6)
    if draw.chance(0.5):
        return Pattern([node("Erf", ["x"], "y")], {"x": shape}, ["y"], {}, draw.opset(), special=False)
    attributes = {"approximate": "tanh"} if draw.chance(0.3) else {}
    return Pattern([node("Gelu", ["x"], "y", **attributes)], {"x": shape}, ["y"], {}, draw.opset(20), special=False)


def generate_slice(draw: Draw) -> Pattern:
    rank = draw.choose([2, 3, 5])
    shape = [*draw.shape(rank, 1, 5)]
    axis = draw.integer(0, rank - 1)
    shape[axis] = draw.integer(2, 6)
    size, given = shape[axis], axis - rank if draw.chance(0.3) else axis
    if draw.chance(0.4):
        cut = draw.integer(1, size - 1)
        constants = {"k": np.asarray([cut, size - cut])}
        nodes = [node("Split", ["x", "k"], ["y", "z"], axis=given)]
        return Pattern(nodes, {"x": tuple(shape)}, ["y", "z"], constants, draw.opset(13))
    first = draw.integer(0, size - 1)
    end = draw.integer(first + 1, size)
    if first == 0 and end == size:
        end -= 1
    if draw.chance(0.3):
        first -= size
    opset = draw.opset()
    if opset < 10:
        nodes = [node("Slice", ["x"], "y", starts=[first], ends=[end], axes=[axis])]
        return Pattern(nodes, {"x": tuple(shape)}, ["y"], {}, opset)
    constants = {"s": np.asarray([first]), "e": np.asarray([end]), "a": np.asarray([given])}
    return Pattern([node("Slice", ["x", "s", "e", "a"], "y")], {"x": tuple(shape)}, ["y"], constants, opset)


@pytest.mark.parametrize("seeds", SEEDS)
def test_smooth_equal(seeds: Sequence[int]) -> None:
    check_rewrite(activation_to_sigmoid.REWRITE, generate_smooth, seeds, tolerance=3e-4)


@pytest.mark.parametrize("seeds", SEEDS)
def test_gelu_equal(seeds: Sequence[int]) -> None:
    check_rewrite(gelu_to_tanh.REWRITE, generate_gelu, seeds, tolerance=1e-2)


def generate_heads(draw: Draw) -> Pattern:
    """Queries, keys and values as attention cuts them."""
    count, heads, width = draw.integer(2, 3), draw.integer(1, 3), draw.integer(1, 3)
    n, h, w = draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 3)
    shape = (n, count * heads * width, h, w)
    constants = {"six": np.asarray([n, count, heads, width, h * w])}
    order = draw.choose([(1, 0, 2, 4, 3), (1, 0, 2, 3, 4), (0, 1, 2, 4, 3), (2, 1, 0, 4, 3)])
    axis = order.index(1)
    nodes = [node("Reshape", ["x", "six"], "a"), node("Transpose", ["a"], "b", perm=list(order))]
    names = [f"y{index}" for index in range(count)]
    if draw.chance(0.4):
        constants["k"] = np.asarray([1] * count)
        nodes.append(node("Split", ["b", "k"], names, axis=axis))
    else:
        for index, name in enumerate(names):
            constants |= {f"s{index}": np.asarray([index]), f"e{index}": np.asarray([index + 1])}
            constants["axis"] = np.asarray([axis])
            nodes.append(node("Slice", ["b", f"s{index}", f"e{index}", "axis"], name))
    return Pattern(nodes, {"x": shape}, names, constants, draw.opset(13))


@pytest.mark.parametrize("seeds", SEEDS)
def test_heads_equal(seeds: Sequence[int]) -> None:
    check_rewrite(slice_to_4d.REWRITE, generate_heads, seeds)


@pytest.mark.parametrize("seeds", SEEDS)
def test_slice_equal(seeds: Sequence[int]) -> None:
    check_rewrite(slice_to_4d.REWRITE, generate_slice, seeds)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
@pytest.mark.parametrize("kind", ["Softplus", "Elu", "Selu", "Celu", "Mish", "Erf", "Gelu"])
def test_takes_it_to_the_dla(kind: str, precision: str) -> None:
    target = as_target("orin-agx-64gb/jp6.0" if kind not in ("Gelu", "Mish") else "orin-agx-64gb/jp6.2")
    nodes = [node("Relu", ["x"], "a"), node(kind, ["a"], "b"), node("Relu", ["b"], "y")]
    model = load(network(nodes, {"x": (1, 16, 8, 12)}, ["y"], opset=20))
    judge = dla_judge(target, as_precision(precision), standalone=False)
    consent = [Safety.EXACT, Safety.TOLERANCE]
    result, log = rewrite_model(model, target=target, precision=as_precision(precision), judge=judge, consent=consent)
    assert not log.rolled_back
    assert check_model(result, target, as_precision(precision)).all_dla
    _, log = rewrite_model(model, target=target, precision=as_precision(precision), judge=judge)
    assert not log.applied
    assert any("nobody consented" in each.reason for each in log.refused)


def test_refused() -> None:
    for step, words in ((2, "steps other than 1"), (1, "several axes")):
        axes = [1, 2] if step == 1 else [1]
        constants: dict[str, Any] = {
            "s": np.asarray([1] * len(axes)),
            "e": np.asarray([4] * len(axes)),
            "a": np.asarray(axes),
            "t": np.asarray([step] * len(axes)),
        }
        proto = network([node("Slice", ["x", "s", "e", "a", "t"], "y")], {"x": (2, 5, 5)}, ["y"], constants)
        check_refused(proto, slice_to_4d.REWRITE, words)
    runtime = {"x": (2, 5, 5), "s": ((1,), np.int64)}
    ends = {"e": np.asarray([4]), "a": np.asarray([1])}
    proto = network([node("Slice", ["x", "s", "e", "a"], "y")], runtime, {"y": (2, 3, 5)}, ends)
    check_refused(proto, slice_to_4d.REWRITE, "known at run time only")
    deep = network([node("Elu", ["x"], "y", alpha=3.0)], {"x": (2, 5)}, ["y"])
    check_refused(deep, activation_to_sigmoid.REWRITE, "reaches to -3")
    celu = network([node("Celu", ["x"], "y", alpha=-1.0)], {"x": (2, 5)}, ["y"])
    check_refused(celu, activation_to_sigmoid.REWRITE, "not positive")
