"""hard-activation-to-clip, clip-to-min-max, div-to-mul, pow-to-mul, reciprocal-to-div, sqrt-to-pow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.checking import as_target, check_model, dla_judge
from orinport.model.load import load
from orinport.rewrites.catalogue import (
    clip_to_min_max,
    clip_to_relu,
    div_to_mul,
    hard_activation_to_clip,
    pow_to_mul,
    reciprocal_to_div,
    sqrt_to_pow,
)
from orinport.rewrites.driver import rewrite_model
from orinport.rewrites.rewrite import Safety
from orinport.targets.target import Precision
from rewrites.harness import SEEDS, Draw, Pattern, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate_hard(draw: Draw) -> Pattern:
    shape = draw.shape(draw.choose([2, 3, 4, 4]), 1, 6)
    if draw.chance(0.4):
        draw.dtype = np.float32
        return Pattern([node("HardSwish", ["x"], "y")], {"x": shape}, ["y"], {}, draw.opset(15), nan=False)
    attributes = {}
    if draw.chance(0.7):
        attributes = {"alpha": float(draw.choose([1 / 6, 0.25, 1.0])), "beta": float(draw.choose([0.5, 0.0, 0.3]))}
    nodes = [node("HardSigmoid", ["x"], "y", **attributes)]
    draw.dtype = np.float32
    return Pattern(nodes, {"x": shape}, ["y"], {}, draw.opset(), nan=False)


def generate_clip(draw: Draw, *, open_end: bool = False) -> Pattern:
    opset = draw.opset()
    if opset < 12:
        draw.dtype = np.float32
    low, high = draw.choose(
        [(0, None), (None, 6), (-0.5, None)]
        if open_end
        else [(-1, 1), (0, 0.5), (-128, 127), (0.25, 0.5), (2, 1) if opset >= 12 else (1, 2)]
    )
    shape = draw.shape(draw.choose([2, 3, 4, 4]), 1, 6)
    if opset < 11:
        bounds = {name: float(each) for name, each in (("min", low), ("max", high)) if each is not None}
        return Pattern([node("Clip", ["x"], "y", **bounds)], {"x": shape}, ["y"], {}, opset, nan=False)
    constants = {
        name: np.asarray(each, draw.dtype) for name, each in (("low", low), ("high", high)) if each is not None
    }
    names = ["x", "low" if low is not None else "", *(["high"] if high is not None else [])]
    return Pattern([node("Clip", names, "y")], {"x": shape}, ["y"], constants, opset, nan=False)


def generate_open_clip(draw: Draw) -> Pattern:
    pattern = generate_clip(draw, open_end=True)
    pattern.special = pattern.overflow = False
    return pattern


def generate_div(draw: Draw) -> Pattern:
    shape = draw.shape(draw.choose([2, 3, 4, 4]), 1, 6)
    if draw.chance(0.3):
        return Pattern([node("Neg", ["x"], "y")], {"x": shape}, ["y"], {}, draw.opset())
    form = [size if draw.chance(0.5) else 1 for size in shape][draw.integer(0, len(shape)) :]
    sign = np.asarray(draw.choose([-1, 1]), draw.dtype)
    constants = {"c": np.asarray((np.abs(draw.array(*form)) + np.asarray(0.25, draw.dtype)) * sign, draw.dtype)}
    return Pattern([node("Div", ["x", "c"], "y")], {"x": shape}, ["y"], constants, draw.opset())


def generate_pow(draw: Draw) -> Pattern:
    shape = draw.shape(draw.choose([2, 3, 4, 4]), 1, 6)
    opset = draw.opset(13)
    exponent: Any = np.asarray(draw.choose([2, 3, 4]), draw.choose([draw.dtype, np.float32, np.int64]))
    exponent = exponent.reshape((1,) * draw.integer(0, len(shape)))
    return Pattern([node("Pow", ["x", "e"], "y")], {"x": shape}, ["y"], {"e": exponent}, opset, overflow=False)


def generate_reciprocal(draw: Draw) -> Pattern:
    shape = draw.shape(draw.choose([2, 3, 4, 4]), 1, 6)
    head = [node("Abs", ["x"], "a"), node("Add", ["a", "k"], "b")]
    constants = {"k": np.asarray(0.5, draw.dtype)}
    if draw.chance(0.4):
        constants["e"] = np.asarray(-1, draw.dtype)
        nodes = [*head, node("Pow", ["b", "e"], "y")]
    else:
        nodes = [*head, node("Reciprocal", ["b"], "y")]
    return Pattern(nodes, {"x": shape}, ["y"], constants, draw.opset(13))


def generate_sqrt(draw: Draw) -> Pattern:
    shape = draw.shape(draw.choose([2, 3, 4, 4]), 1, 6)
    nodes = [node("Abs", ["x"], "a"), node("Sqrt", ["a"], "y")]
    return Pattern(nodes, {"x": shape}, ["y"], {}, draw.opset(12), special=False)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    ("module", "generate"),
    [
        (hard_activation_to_clip, generate_hard),
        (clip_to_min_max, generate_clip),
        (clip_to_relu, generate_open_clip),
        (div_to_mul, generate_div),
        (pow_to_mul, generate_pow),
        (reciprocal_to_div, generate_reciprocal),
        (sqrt_to_pow, generate_sqrt),
    ],
    ids=lambda each: getattr(each, "__name__", "").rpartition(".")[2],
)
def test_equal(module: Any, generate: Any, seeds: Sequence[int]) -> None:
    check_rewrite(module.REWRITE, generate, seeds)


def one(op_type: str, constants: dict[str, np.ndarray] | None = None, *more: str, opset: int = 17, **attributes: Any):  # type: ignore[no-untyped-def]
    """A network of Relu, the operator, Relu."""
    nodes = [node("Relu", ["x"], "a"), node(op_type, ["a", *more], "b", **attributes), node("Relu", ["b"], "y")]
    return network(nodes, {"x": (1, 16, 8, 12)}, ["y"], constants or {}, opset=opset)


@pytest.mark.parametrize(
    ("proto", "target"),
    [
        (one("HardSwish"), "jp6.0"),
        (one("HardSigmoid"), "jp6.0"),
        (one("Neg"), "jp6.0"),
        (one("Div", {"c": np.full((1, 16, 1, 1), 3.0, np.float32)}, "c"), "jp6.0"),
        (one("Div", {"c": np.asarray(3.0, np.float32)}, "c"), "jp5.1"),
        (one("Pow", {"c": np.asarray(2.0, np.float32)}, "c"), "jp6.0"),
        (one("Pow", {"c": np.asarray(3.0, np.float32)}, "c"), "jp6.2"),
        (one("Reciprocal"), "jp6.2"),
        (one("Clip", {"l": np.float32(-1), "h": np.float32(1)}, "l", "h"), "jp6.0"),
        (one("Clip", {"l": np.float32(0)}, "l"), "jp6.0"),
        (one("Clip", {"l": np.float32(0), "h": np.float32(0.5)}, "l", "h"), "jp6.2"),
        (one("Clip", {"l": np.float32(0), "h": np.float32(300)}, "l", "h"), "jp6.2"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.graph.node[1].op_type,
)
@pytest.mark.parametrize("precision", list(Precision))
def test_takes_it_to_the_dla(proto: Any, target: str, precision: Precision) -> None:
    board = as_target(f"orin-agx-64gb/{target}")
    model = load(proto)
    assert not check_model(model, board, precision).all_dla or precision is Precision.INT8
    judge = dla_judge(board, precision, standalone=False)
    consent = [Safety.EXACT, Safety.TOLERANCE]
    result, log = rewrite_model(model, target=board, precision=precision, judge=judge, consent=consent)
    assert not log.rolled_back
    assert check_model(result, board, precision).all_dla


def test_refused() -> None:
    check_refused(one("Div", {"c": np.asarray([0.0], np.float32)}, "c"), div_to_mul.REWRITE, "a divisor is 0")
    tiny = one("Div", {"c": np.asarray([3e38], np.float32)}, "c")
    check_refused(tiny, div_to_mul.REWRITE, "in full precision")
    check_refused(one("Pow", {"c": np.float32(0.5)}, "c"), pow_to_mul.REWRITE, "0.5 is not 2, 3 or 4")
    several = one("Pow", {"c": np.arange(2, 14).astype(np.float32)}, "c")
    check_refused(several, pow_to_mul.REWRITE, "several exponents")
    old = as_target("orin-agx-64gb/jp6.0")
    check_refused(one("Sqrt"), sqrt_to_pow.REWRITE, "lacks POW before", target=old)
    check_refused(one("Sqrt"), sqrt_to_pow.REWRITE, "POW in FP16", target=as_target("orin-agx-64gb/jp6.2"))
    check_refused(one("Reciprocal"), reciprocal_to_div.REWRITE, "from TensorRT 10.3 on", target=old)
    integers = network([node("Neg", ["x"], "y")], {"x": ((2, 3), np.int32)}, ["y"])
    check_refused(integers, div_to_mul.REWRITE, "does not compute in")
    half = network([node("Clip", ["x"], "y", min=-1.0, max=1.0)], {"x": ((2, 3), np.float16)}, ["y"], opset=9)
    check_refused(half, clip_to_min_max.REWRITE, "below opset 12")
    runtime = network([node("Clip", ["x", "l"], "y")], {"x": (2, 3), "l": ((), np.float32)}, ["y"])
    check_refused(runtime, clip_to_min_max.REWRITE, "known at run time only")


def test_the_own_clip_is_left_alone() -> None:
    six = network([node("Clip", ["x"], "y", min=0.0, max=6.0)], {"x": (1, 2, 3, 4)}, ["y"], opset=9)
    model = load(six)
    assert not rewrite_model(model, rewrites=[clip_to_min_max.REWRITE])[1].applied
