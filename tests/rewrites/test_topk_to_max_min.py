"""topk-to-max-min."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest

from builders import network, node, run_onnx
from orinport.checking import as_precision, as_target, check_model
from orinport.model.load import load
from orinport.pipeline import rewrite_for
from orinport.rewrites.catalogue.topk_to_max_min import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    draw.dtype = np.float32
    rank = draw.choose([1, 2, 3, 4, 4])
    shape = list(draw.shape(rank, 1, 4))
    axis = draw.integer(1 if rank == 4 else 0, rank - 1)
    shape[axis] = draw.integer(2, 12)
    count = draw.integer(2, min(6, shape[axis]))
    opset = draw.opset(11)
    attributes: dict[str, Any] = {"axis": axis - rank if draw.chance(0.3) else axis, "largest": draw.integer(0, 1)}
    source = "x"
    nodes = []
    if draw.chance(0.3):  # equal numbers
        nodes.append(node("Round", ["x"], "r"))
        source = "r"
    nodes.append(node("TopK", [source, "k"], ["y", "places"], **attributes))
    return Pattern(nodes, {"x": tuple(shape)}, ["y"], {"k": np.asarray([count])}, opset, applies=None, nan=False)


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def best(count: int, shape: tuple[int, ...], axis: int = 1, outputs: Sequence[str] = ("b",), **attributes: Any) -> Any:
    nodes = [
        node("Relu", ["x"], "a"),
        node("TopK", ["a", "k"], ["b", "places"], axis=axis, **attributes),
    ]
    return network(nodes, {"x": shape}, list(outputs), {"k": np.asarray([count])})


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("count", [2, 3, 5, 8])
@pytest.mark.parametrize("size", [8, 13, 100])
def test_every_length(size: int, count: int, largest: int) -> None:
    """Sorted, with repeated numbers, and bit by bit."""
    proto = best(count, (1, size, 2, 3), largest=largest)
    model, log = apply_to(proto, REWRITE)
    if not log.applied:
        assert (size, count) in {(100, 5), (100, 8)}
        assert "layers, more than" in log.refused[0].reason
        return
    assert "TopK" not in {each.op_type for each in model.ir.graph}
    rng = np.random.default_rng(size)
    x = np.round(rng.standard_normal((1, size, 2, 3)) * 4).astype(np.float32)
    wanted, found = (run_onnx(each, {"x": x})[0] for each in (proto, ir.to_proto(model.ir)))
    assert np.array_equal(wanted, found)


@pytest.mark.parametrize("stack", ["jp5.1", "jp6.0", "jp6.2"])
@pytest.mark.parametrize(("shape", "axis"), [((1, 16, 4, 4), 1), ((1, 4, 4, 16), 3)])
def test_takes_it_to_the_dla(stack: str, shape: tuple[int, ...], axis: int) -> None:
    target, precision = as_target(f"orin-agx-64gb/{stack}"), as_precision("fp16")
    model = load(best(3, shape, axis))
    assert not check_model(model, target, precision).all_dla
    result, log, _ = rewrite_for(model, target, precision)
    assert log.counts()[REWRITE.name] == 1
    assert check_model(result, target, precision).all_dla


def test_refused() -> None:
    check_refused(best(2, (1, 5, 2, 2), outputs=("b", "places")), REWRITE, "places are used")
    check_refused(best(2, (1, 5, 2, 2), sorted=0), REWRITE, "in any order")
    check_refused(best(2, (4, 5, 2, 2), axis=0), REWRITE, "among samples")
    check_refused(best(20, (1, 1000, 1, 1)), REWRITE, "layers, more than")
    run_time = network([node("TopK", ["x", "k"], ["y", ""], axis=1)], {"x": (1, 5, 2, 2), "k": ((1,), np.int64)}, ["y"])
    reason = apply_to(run_time, REWRITE)[1].refused[0].reason
    assert "run time" in reason
