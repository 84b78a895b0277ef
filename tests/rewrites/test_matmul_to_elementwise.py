"""matmul-to-elementwise: products of two run-time tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.checking import as_target, check_model, dla_judge
from orinport.model.load import load
from orinport.pipeline import rewrite_for
from orinport.rewrites.catalogue.matmul_to_elementwise import REWRITE
from orinport.rewrites.driver import rewrite_model
from orinport.targets.target import Precision
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = (1, 2, 3, 8, 12, 33, 37)


def generate(draw: Draw) -> Pattern:
    opset = draw.opset()
    m, k, p = draw.choose(SIZES), draw.integer(1, 9), draw.choose(SIZES)
    if draw.chance(0.3):
        return gemm(draw, m, k, p, opset)
    batch = draw.choose([(), (2,), (1, 3), (2, 2), (1,)])
    a, b = (*batch, m, k), (*batch, k, p)
    form = draw.choose(["equal", "equal", "shared", "vector"])
    if form == "shared":
        b = (k, p)
    elif form == "vector":
        a = (k,)
        b = (k, p)
    nodes, names = [], ["x", "z"]
    inputs = {"x": a, "z": b}
    if len(a) == 4 and form == "equal" and draw.chance(0.5):  # as attention exports it
        inputs["x"] = (a[0], m, a[1], k)
        nodes.append(node("Transpose", ["x"], "xt", perm=[0, 2, 1, 3]))
        names[0] = "xt"
    nodes.append(node("MatMul", names, "y"))
    return Pattern(nodes, inputs, ["y"], {}, opset)


def gemm(draw: Draw, m: int, k: int, p: int, opset: int) -> Pattern:
    turn_a, turn_b = draw.integer(0, 1), draw.integer(0, 1)
    inputs = {"x": (k, m) if turn_a else (m, k), "z": (p, k) if turn_b else (k, p)}
    names, constants = ["x", "z"], {}
    if draw.chance(0.7) or opset < 11:
        names.append("c")
        shape = draw.choose([(m, p), (1, p), (p,), (1,), (m, 1)])
        if draw.chance(0.5):
            constants["c"] = draw.array(*shape)
        else:
            inputs["c"] = shape
    call = node(
        "Gemm", names, "y", transA=turn_a, transB=turn_b, alpha=draw.choose([1.0, 0.5]), beta=draw.choose([1.0, 2.0])
    )
    return Pattern([call], inputs, ["y"], constants, opset)


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def product(a: tuple[int, ...], b: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return network([node("MatMul", ["x", "z"], "y")], {"x": (a, dtype), "z": (b, dtype)}, ["y"])


def test_scores_of_attention_are_done_at_once() -> None:
    model, _ = apply_to(product((1, 4, 64, 32), (1, 4, 32, 64)), REWRITE)
    kinds = [each.op_type for each in model.graph]
    assert kinds.count("Mul") == 1
    (conv,) = (each for each in model.graph if each.op_type == "Conv")
    assert conv.attributes["group"].as_int() == 4


def test_few_columns_are_done_one_by_one() -> None:
    model, _ = apply_to(product((1, 1, 4096, 256), (1, 1, 256, 3)), REWRITE)
    assert [each.op_type for each in model.graph].count("Mul") == 3


@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 4, 64, 32), (1, 4, 32, 64)),
        ((1, 2, 197, 16), (1, 2, 16, 197)),
        ((1, 2, 16, 64), (1, 2, 64, 8)),
        ((1, 8, 4), (1, 4, 8)),
    ],
)
def test_the_dla_takes_all_of_it(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    target = as_target("orin-agx-64gb/jp6.0")
    judge = dla_judge(target, Precision.FP16, standalone=False)
    model, log = rewrite_model(load(product(*shapes)), target=target, judge=judge, rewrites=[REWRITE])
    assert log.applied
    off = judge(model.ir)
    assert {each.op_type for each in model.graph if each.name in off} <= {"Reshape", "Transpose"}


@pytest.mark.parametrize("stack", ["jp6.0", "jp6.2"])
def test_no_reshape_stands_next_to_columns(stack: str) -> None:
    """Attention over 197 tokens times 64 columns: 197 is a prime above the factors of Resize."""
    target, precision = as_target(f"orin-agx-64gb/{stack}"), Precision.FP16
    model, log, _ = rewrite_for(load(product((1, 3, 197, 197), (1, 3, 197, 64))), target, precision)
    assert log.counts()["matmul-to-elementwise"] == 1
    assert sum(each.op_type == "Mul" for each in model.graph) == 64
    report = check_model(model, target, precision)
    assert report.all_dla
    assert report.placement.loadables == 1


def test_cost_is_refused() -> None:
    check_refused(product((1, 8, 1024, 64), (1, 8, 64, 1024)), REWRITE, "that pay")


def test_broadcast_is_refused() -> None:
    check_refused(product((2, 1, 3, 4), (1, 5, 4, 3)), REWRITE, "broadcast")


def test_integers_are_refused() -> None:
    check_refused(product((3, 4), (4, 3), np.int32), REWRITE, "INT32")
