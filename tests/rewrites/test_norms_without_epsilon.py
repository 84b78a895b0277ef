"""mean-variance-to-div, lp-normalization-to-div and log-softmax-to-softmax."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest

from builders import network, node, run_onnx
from orinport.checking import as_precision, as_target, check_model
from orinport.model.load import load
from orinport.pipeline import rewrite_for
from orinport.rewrites.catalogue import log_softmax_to_softmax, lp_normalization_to_div, mean_variance_to_div
from orinport.rewrites.rewrite import Rewrite, Safety
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

MEANS = mean_variance_to_div.REWRITE
NORMS = lp_normalization_to_div.REWRITE
LOGS = log_softmax_to_softmax.REWRITE
BOTH = [Safety.EXACT, Safety.TOLERANCE]


def generate_means(draw: Draw) -> Pattern:
    draw.dtype = np.float32  # ONNX Runtime has no other
    rank = draw.choose([3, 4, 4, 5])
    shape = (1 if draw.chance(0.6) else 2, *draw.shape(rank - 1, 1, 5))
    axes = sorted({draw.integer(1, rank - 1) for _ in range(draw.integer(1, rank - 1))})
    if shape[0] == 1 and draw.chance(0.4):
        axes = [0, *axes]
    size = prod(shape[axis] for axis in axes)
    given = [axis - rank if draw.chance(0.2) else axis for axis in axes]
    nodes = [node("MeanVarianceNormalization", ["x"], "y", axes=given)]
    # Of two or three numbers the variance may be so small that rounding decides.
    applies = size > 1
    low, high = draw.choose([13, 17, 18, 21]), 21
    return Pattern(
        [node("Mul", ["x", "k"], "w"), node("Add", ["w", "ramp"], "v"), node(nodes[0].op_type, ["v"], "y", axes=given)],
        {"x": shape},
        ["y"],
        {"k": np.asarray(0.1, np.float32), "ramp": _ramp(shape)},
        min(low, high),
        applies=applies,
        special=False,
        overflow=False,
    )


def _ramp(shape: tuple[int, ...]) -> np.ndarray:
    """Numbers that differ along every axis, so that no variance is close to zero."""
    return np.arange(prod(shape), dtype=np.float32).reshape(shape) * np.float32(0.7)


def generate_norms(draw: Draw) -> Pattern:
    draw.dtype = np.float32
    rank = draw.choose([2, 3, 4, 4, 5])
    shape = list(draw.shape(rank, 1, 4))
    axis = draw.integer(1 if rank == 4 else 0, rank - 1)
    shape[axis] = draw.integer(3, 9)
    attributes: dict[str, Any] = {"axis": axis - rank if draw.chance(0.3) else axis}
    if draw.chance(0.7):
        attributes["p"] = draw.integer(1, 2)
    if attributes["axis"] == -1 and draw.chance(0.5):
        attributes.pop("axis")
    nodes = [node("LpNormalization", ["x"], "y", **attributes)]
    return Pattern(nodes, {"x": tuple(shape)}, ["y"], {}, draw.opset(), special=False, overflow=False)


def generate_logs(draw: Draw) -> Pattern:
    rank = draw.choose([2, 3, 4, 4])
    shape = list(draw.shape(rank, 1, 4))
    opset = draw.opset()
    axis = draw.integer(1 if rank == 4 else 0, rank - 1)
    shape[axis] = draw.integer(1, 12)
    if opset < 13:
        axis = draw.choose([1, 1, rank - 1])
    attributes = {} if axis == (1 if opset < 13 else rank - 1) and draw.chance(0.5) else {"axis": axis}
    nodes = [node("LogSoftmax", ["x"], "y", **attributes)]
    applies = None if opset < 13 else True
    return Pattern(nodes, {"x": tuple(shape)}, ["y"], {}, opset, applies=applies, special=False, overflow=False)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    ("rewrite", "generate", "tolerance"),
    [(MEANS, generate_means, 2e-4), (NORMS, generate_norms, None), (LOGS, generate_logs, None)],
    ids=["means", "norms", "logs"],
)
def test_equal(rewrite: Rewrite, generate: Any, tolerance: float | None, seeds: Sequence[int]) -> None:
    check_rewrite(rewrite, generate, seeds, tolerance=tolerance)


def between(op_type: str, shape: tuple[int, ...] = (1, 8, 12, 12), opset: int = 17, **attributes: Any) -> Any:
    nodes = [node("Relu", ["x"], "a"), node(op_type, ["a"], "b", **attributes), node("Sigmoid", ["b"], "y")]
    return network(nodes, {"x": shape}, ["y"], opset=opset)


CASES = {
    "instance": between("MeanVarianceNormalization", axes=[2, 3]),
    "image": between("MeanVarianceNormalization", axes=[0, 1, 2, 3]),
    "the default": between("MeanVarianceNormalization"),
    "channels": between("MeanVarianceNormalization", axes=[1]),
    "unit vectors": between("LpNormalization", (1, 128, 1, 1), axis=1),
    "unit pixels": between("LpNormalization", axis=1),
    "unit rows": between("LpNormalization", axis=3),
    "shares": between("LpNormalization", axis=1, p=1),
    "classes": between("LogSoftmax", (1, 1000, 1, 1), axis=1),
    "classes of opset 11": between("LogSoftmax", (1, 1000, 1, 1), 11, axis=1),
    "pixels": between("LogSoftmax", axis=1),
}


@pytest.mark.parametrize("case", list(CASES))
def test_takes_it_to_the_dla(case: str) -> None:
    target, precision = as_target("orin-agx-64gb/jp6.2"), as_precision("fp16")
    model = load(CASES[case])
    assert not check_model(model, target, precision).all_dla
    result, log, _ = rewrite_for(model, target, precision, consent=BOTH)
    assert not log.rolled_back
    assert sum(log.counts().get(each.name, 0) for each in (MEANS, NORMS, LOGS)) == 1
    assert check_model(result, target, precision).all_dla


@pytest.mark.parametrize(("rewrite", "op_type"), [(MEANS, "MeanVarianceNormalization"), (NORMS, "LpNormalization")])
def test_nothing_is_nothing(rewrite: Rewrite, op_type: str) -> None:
    """A norm, or a deviation, of zero gives zeros; very small ones give results that are too small."""
    model, log = apply_to(between(op_type), rewrite)
    assert log.applied
    for size in (0.0, 1e-5):
        x = np.full((1, 8, 12, 12), size, np.float32)
        x[..., ::2] *= 2
        found = run_onnx(ir.to_proto(model.ir), {"x": x})[0]
        assert np.isfinite(found).all()
    assert (run_onnx(ir.to_proto(model.ir), {"x": np.zeros((1, 8, 12, 12), np.float32)})[0] == 0.5).all()


def test_sums_of_zero_give_zeros() -> None:
    model, _ = apply_to(between("LpNormalization", axis=1, p=1), NORMS)
    assert (run_onnx(ir.to_proto(model.ir), {"x": np.zeros((1, 8, 12, 12), np.float32)})[0] == 0.5).all()


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("count", [2, 128, 2048])
def test_norms_over_their_whole_range(count: int, power: int) -> None:
    """From root mean squares of 0.001 to 256, however many elements; in FP16, too, no sum of them overflows."""
    proto = network([node("LpNormalization", ["x"], "y", axis=1, p=power)], {"x": (1, count, 1, 1)}, ["y"])
    model, log = apply_to(proto, NORMS)
    assert log.applied
    shape = np.random.default_rng(count).standard_normal((1, count, 1, 1))
    shape /= np.sqrt(np.mean(shape**2))
    for size in np.geomspace(0.001, 256, 24):
        x = (shape * size).astype(np.float32)
        wanted, found = (run_onnx(each, {"x": x})[0] for each in (proto, ir.to_proto(model.ir)))
        assert np.abs(wanted - found).max() <= 4e-6 * np.abs(wanted).max()
    half = network([node("LpNormalization", ["x"], "y", axis=1, p=power)], {"x": ((1, count, 1, 1), np.float16)}, ["y"])
    _, log = apply_to(half, NORMS)  # proved with numbers around 16
    assert log.applied


@pytest.mark.parametrize("classes", [1, 2, 9, 10, 1000, 8192])
def test_logarithms_over_their_whole_range(classes: int) -> None:
    """From all classes alike to a single one, and with an offset."""
    proto = network([node("LogSoftmax", ["x"], "y", axis=1)], {"x": (1, classes, 1, 1)}, ["y"])
    model, log = apply_to(proto, LOGS)
    assert log.applied
    for size in (0.0, 0.1, 3.0, 40.0):
        x = (np.linspace(-1, 1, classes) * size + 5).astype(np.float32).reshape(1, -1, 1, 1)
        wanted, found = (run_onnx(each, {"x": x})[0] for each in (proto, ir.to_proto(model.ir)))
        assert np.abs(wanted - found).max() <= 1e-5 * max(1.0, np.abs(wanted).max())


def test_refused() -> None:
    old, new = as_target("orin-agx-64gb/jp6.0"), as_target("orin-agx-64gb/jp6.2")
    for rewrite, op_type in ((MEANS, "MeanVarianceNormalization"), (NORMS, "LpNormalization"), (LOGS, "LogSoftmax")):
        check_refused(between(op_type), rewrite, "lacks DIV before TensorRT 10.3", target=old)
    int8 = as_precision("int8")
    check_refused(between("LogSoftmax"), LOGS, "Softmax in FP16 only", target=new, precision=int8)
    check_refused(between("MeanVarianceNormalization", (2, 8, 4, 4)), MEANS, "over the batch")
    check_refused(between("MeanVarianceNormalization", (1, 8, 1, 1), axes=[2, 3]), MEANS, "single elements")
    check_refused(between("LpNormalization", (2, 8, 4, 4), axis=0), NORMS, "over the batch")
    check_refused(between("LpNormalization", (1, 1, 4, 4), axis=1), NORMS, "single element")
    check_refused(between("LogSoftmax", (2, 8, 4, 4), axis=0), LOGS, "over the batch")


def test_softmax_over_several_dimensions_stays_where_the_opset_cannot_be_raised() -> None:
    scales = {"s": np.asarray([1, 1, 2, 2], np.float32)}
    nodes = [node("Upsample", ["x", "s"], "a"), node("LogSoftmax", ["a"], "y", axis=2)]
    _, log = apply_to(network(nodes, {"x": (1, 8, 4, 4)}, ["y"], scales, opset=9), LOGS)
    assert not log.applied
    assert {each.rewrite: "below opset 13" in each.reason for each in log.refused} == {
        "raise-opset": False,
        LOGS.name: True,
    }
