"""gather-elements-to-slices, gather-nd-to-slices and scatter-nd-to-slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest

from builders import network, node, run_onnx
from orinport.checking import as_precision, as_target, check_model
from orinport.model.load import load
from orinport.pipeline import rewrite_for
from orinport.rewrites.catalogue import (
    gather_elements_to_slices,
    gather_nd_to_slices,
    scatter_nd_to_slices,
    scatter_to_slices,
)
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate_elements(draw: Draw) -> Pattern:
    rank = draw.choose([2, 3, 4, 4, 4, 5])
    shape = draw.shape(rank, 1, 4)
    axis = draw.integer(1 if rank == 4 else 0, rank - 1)
    count = draw.integer(1, 5)
    form = [1] * rank
    form[axis] = count
    given = [draw.integer(1, size) if draw.chance(0.2) and place else size for place, size in enumerate(shape)]
    given[axis] = count
    if draw.chance(0.3):  # the indices change along another axis too
        other = draw.integer(0, rank - 1)
        form[other] = given[other]
    chosen = draw.rng.integers(-shape[axis], shape[axis], form)
    indices = np.ascontiguousarray(np.broadcast_to(chosen, given)).astype(np.int64)
    nodes = [node("GatherElements", ["x", "i"], "y", axis=axis - rank if draw.chance(0.3) else axis)]
    differs = sum(size > 1 for size in form) > 1
    same = shape[axis] == 1 or np.array_equal(chosen.reshape(-1) % shape[axis], np.arange(shape[axis]))
    applies = None if differs or rank != 4 or same else True
    return Pattern(nodes, {"x": shape}, ["y"], {"i": indices}, draw.opset(11), applies=applies)


def generate_places(draw: Draw) -> Pattern:
    rank = draw.choose([2, 3, 4, 4, 5])
    shape = draw.shape(rank, 1, 4)
    opset = draw.opset(11)
    batch = draw.integer(0, min(2, rank - 1)) if opset >= 12 else 0
    depth = draw.integer(1, rank - batch)
    counts = [(1,), (2,), (3,), (4,), (2, 2)]
    count = draw.choose(counts if batch + depth == rank else [*counts, ()])
    head = shape[:batch] if draw.chance(0.4) else (1,) * batch
    sizes = shape[batch : batch + depth]
    chosen = np.stack([draw.rng.integers(-size, size, (*head, *count)) for size in sizes], axis=-1)
    indices = np.ascontiguousarray(np.broadcast_to(chosen, (*shape[:batch], *count, depth))).astype(np.int64)
    nodes, source = [], "x"
    if draw.chance(0.4):  # as PyTorch writes x[:, i, j]
        perm = draw.rng.permutation(rank).tolist()
        before = [0] * rank
        for place, axis in enumerate(perm):
            before[axis] = shape[place]
        nodes, source, shape = [node("Transpose", ["x"], "t", perm=perm)], "t", tuple(before)
    attributes = {"batch_dims": batch} if opset >= 12 else {}
    nodes.append(node("GatherND", [source, "i"], "y", **attributes))
    return Pattern(nodes, {"x": shape}, ["y"], {"i": indices}, opset, applies=None)


def generate_scatter(draw: Draw) -> Pattern:
    rank = draw.choose([2, 3, 4, 4])
    shape = draw.shape(rank, 1, 4)
    depth = draw.integer(1, rank)
    volume = int(np.prod(shape[:depth]))
    count = draw.integer(1, min(volume, 4))
    flat = draw.rng.permutation(volume)[:count]
    if draw.chance(0.4):
        flat = np.sort(flat)
    indices = np.stack(np.unravel_index(flat, shape[:depth]), axis=-1).astype(np.int64)
    if draw.chance(0.3):
        indices = indices - np.asarray(shape[:depth])
    opset = draw.opset(11)
    attributes = {}
    if opset >= 16 and draw.chance(0.4):
        attributes["reduction"] = draw.choose(["none", "add", "mul"])
    combines = attributes.get("reduction", "none") != "none"
    if combines:  # ONNX Runtime combines in FP32 only
        draw.dtype = np.float32
    given = (count, *shape[depth:])
    inputs: dict[str, Any] = {"x": shape, "u": given}
    constants = {"i": indices}
    nodes = []
    names = ["x", "i", "u"]
    kind = draw.choose(["", "", "updates", "data", "transposed"])
    if kind == "updates":
        constants["u"] = draw.array(*given)
        inputs.pop("u")
    elif kind == "data":
        constants["x"] = draw.array(*shape)
        inputs.pop("x")
    elif kind == "transposed" and rank > 1:  # as PyTorch writes x[:, 2:4] = y
        perm = [1, 0, *range(2, rank)]
        inputs["x"] = tuple(shape[axis] for axis in perm)
        nodes.append(node("Transpose", ["x"], "t", perm=perm))
        names[0] = "t"
        if len(given) > 1:
            inputs["u"] = (given[1], given[0], *given[2:])
            nodes.append(node("Transpose", ["u"], "v", perm=[1, 0, *range(2, len(given))]))
            names[2] = "v"
    nodes.append(node("ScatterND", names, "y", **attributes))
    applies = False if combines and kind in ("updates", "data") else None
    return Pattern(nodes, inputs, ["y"], constants, opset, applies=applies)


def test_a_single_number() -> None:
    """All dimensions indexed: the result has none."""
    nodes = [node("GatherND", ["x", "i"], "y")]
    proto = network(nodes, {"x": (1, 3, 4, 2)}, {"y": ()}, {"i": np.asarray([0, -1, 2, 1])})
    model, log = apply_to(proto, gather_nd_to_slices.REWRITE)
    assert log.applied
    x = np.random.default_rng(0).standard_normal((1, 3, 4, 2)).astype(np.float32)
    (found,) = run_onnx(ir.to_proto(model.ir), {"x": x})
    assert found.shape == ()
    assert found == x[0, -1, 2, 1]


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    ("module", "generate"),
    [
        (gather_elements_to_slices, generate_elements),
        (gather_nd_to_slices, generate_places),
        (scatter_nd_to_slices, generate_scatter),
    ],
    ids=lambda each: getattr(each, "__name__", "").rpartition(".")[2],
)
def test_equal(module: Any, generate: Any, seeds: Sequence[int]) -> None:
    check_rewrite(module.REWRITE, generate, seeds)


def between(nodes: list[Any], constants: dict[str, Any], batch: int = 1, updates: tuple[int, ...] = ()) -> Any:
    """The nodes from "a" to "b" between two Relu."""
    inputs: dict[str, Any] = {"x": (batch, 8, 6, 6)}
    head = [node("Relu", ["x"], "a")]
    if updates:
        inputs["z"] = updates
        head.append(node("Relu", ["z"], "u"))
    arrays = {name: np.asarray(array) for name, array in constants.items()}
    return network([*head, *nodes, node("Relu", ["b"], "y")], inputs, ["y"], arrays, opset=18)


def channels(batch: int) -> np.ndarray:
    """Channels 2, 0 and 1 at every pixel."""
    return np.broadcast_to(np.asarray([2, 0, 1]).reshape(1, 3, 1, 1), (batch, 3, 6, 6)).copy()


def assigned(batch: int) -> list[Any]:
    """`a[:, 2:4] = u`, as PyTorch exports it."""
    swap = [1, 0, 2, 3]
    return [
        node("Transpose", ["a"], "at", perm=swap),
        node("Transpose", ["u"], "ut", perm=swap),
        node("ScatterND", ["at", "i", "ut"], "bt"),
        node("Transpose", ["bt"], "b", perm=swap),
    ]


def pixels() -> list[Any]:
    """`a[:, :, [0, 2], [1, 3]]`, as PyTorch exports it."""
    return [
        node("Transpose", ["a"], "at", perm=[2, 3, 0, 1]),
        node("GatherND", ["at", "i"], "bt"),
        node("Transpose", ["bt"], "c", perm=[1, 2, 0]),
        node("Unsqueeze", ["c", "last"], "b"),
    ]


CASES = {
    "gather": (between([node("GatherElements", ["a", "i"], "b", axis=1)], {"i": channels(1)}), 1),
    "gather of two samples": (
        between([node("GatherElements", ["a", "i"], "b", axis=1)], {"i": channels(2)}, 2),
        1,
    ),
    "pixels": (between(pixels(), {"i": [[0, 1], [2, 3]], "last": [3]}), 1),
    "pixels of two samples": (between(pixels(), {"i": [[0, 1], [2, 3]], "last": [3]}, 2), 1),
    "assignment": (between(assigned(1), {"i": [[2], [3]]}, 1, (1, 2, 6, 6)), 1),
    "assignment to two samples": (between(assigned(2), {"i": [[2], [3]]}, 2, (2, 2, 6, 6)), 1),
    "sum": (
        between([node("ScatterND", ["a", "i", "u"], "b", reduction="add")], {"i": [[0, 2], [0, 3]]}, 1, (2, 6, 6)),
        1,
    ),
    "constant": (
        between([node("ScatterND", ["a", "i", "k"], "b")], {"i": [[0, 2]], "k": np.ones((1, 6, 6), np.float32)}),
        1,
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_takes_it_to_the_dla(case: str) -> None:
    proto, count = CASES[case]
    target, precision = as_target("orin-agx-64gb/jp6.2"), as_precision("fp16")
    model = load(proto)
    assert not check_model(model, target, precision).all_dla
    result, log, _ = rewrite_for(model, target, precision)
    assert not log.rolled_back
    assert sum(number for name, number in log.counts().items() if name.endswith("-to-slices")) == count
    report = check_model(result, target, precision)
    assert report.all_dla, [(row.layer.name, row.codes) for row in report.layers if row.verdict.value != "dla"]


def test_an_infinity_that_is_overwritten_goes_away() -> None:
    proto = between([node("ScatterND", ["a", "i", "u"], "b")], {"i": [[0, 2]]}, 1, (1, 6, 6))
    model, log = apply_to(proto, scatter_nd_to_slices.REWRITE)
    assert log.applied
    x = np.zeros((1, 8, 6, 6), np.float32)
    x[:, 2] = np.inf
    assert np.isfinite(run_onnx(ir.to_proto(model.ir), {"x": x, "z": np.ones((1, 6, 6), np.float32)})[0]).all()


def test_scatter_elements_takes_constants() -> None:
    table = np.broadcast_to(np.asarray([1, 3]).reshape(1, 2, 1, 1), (1, 2, 6, 6)).copy()
    kept = {"i": table, "k": np.ones((1, 2, 6, 6), np.float32)}
    _, log = apply_to(between([node("ScatterElements", ["a", "i", "k"], "b", axis=1)], kept), scatter_to_slices.REWRITE)
    assert log.applied


def test_refused() -> None:
    def gather(indices: Any, shape: tuple[int, ...], **attributes: Any) -> Any:
        return network([node("GatherElements", ["x", "i"], "y", **attributes)], {"x": shape}, ["y"], {"i": indices})

    elements = gather_elements_to_slices.REWRITE
    check_refused(gather(np.asarray([[[[0]]], [[[0]]]]), (2, 1, 1, 1), axis=0), elements, "among samples")
    scattered = np.arange(100)[::-1].reshape(1, 100, 1, 1).copy()
    check_refused(gather(scattered, (1, 100, 1, 1), axis=1), elements, "100 slices")
    run_time = network(
        [node("GatherElements", ["x", "i"], "y")], {"x": (2, 2), "i": ((2, 2), np.int64)}, ["y"], opset=13
    )
    check_refused(run_time, elements, "run time")

    def scatter(indices: Any, **attributes: Any) -> Any:
        table = np.asarray(indices)
        given = (*table.shape[:-1], *(2, 3, 4)[table.shape[-1] - 1 :][1:])
        nodes = [node("ScatterND", ["x", "i", "u"], "y", **attributes)]
        return network(nodes, {"x": (1, 2, 3, 4), "u": given}, ["y"], {"i": table}, opset=18)

    nd = scatter_nd_to_slices.REWRITE
    check_refused(scatter([[0, 1], [0, 1]]), nd, "stands twice")
    run_time = network([node("GatherND", ["x", "i"], "y")], {"x": (2, 2), "i": ((2, 1), np.int64)}, ["y"], opset=13)
    check_refused(run_time, gather_nd_to_slices.REWRITE, "run time")
    samples = network(
        [node("GatherND", ["x", "i"], "y")], {"x": (2, 2, 3, 3)}, ["y"], {"i": np.asarray([[1]])}, opset=13
    )
    check_refused(samples, gather_nd_to_slices.REWRITE, "among samples")
