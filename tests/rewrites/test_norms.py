"""layer-norm-to-pow, layer-norm-to-div and layer-norm-to-sqrt: normalisations as layers of the DLA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest

from builders import network, node, run_onnx
from orinport.checking import as_precision, as_target, check_model, dla_judge
from orinport.model.load import load
from orinport.rewrites.catalogue import layer_norm_to_div, layer_norm_to_pow, layer_norm_to_sqrt
from orinport.rewrites.driver import rewrite_model
from orinport.rewrites.rewrite import Safety
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


MODULES = [layer_norm_to_pow, layer_norm_to_div, layer_norm_to_sqrt]


def written_out(draw: Draw, constants: dict[str, np.ndarray], opset: int) -> list[Any]:
    constants["eps"] = np.asarray(draw.choose([1e-5, 1e-6]), np.float32)
    axes: dict[str, Any] = {"axes": [-1]} if opset < 18 else {}
    more = []
    if opset >= 18:
        constants["axes"] = np.asarray([-1])
        more = ["axes"]
    square = node("Mul", ["d", "d"], "q")
    if draw.chance(0.5):
        constants["two"] = np.asarray(2, np.float32)
        square = node("Pow", ["d", "two"], "q")
    return [
        node("ReduceMean", ["x", *more], "m", **axes),
        node("Sub", ["x", "m"], "d"),
        square,
        node("ReduceMean", ["q", *more], "v", **axes),
        node("Add", ["v", "eps"] if draw.chance(0.5) else ["eps", "v"], "e"),
        node("Sqrt", ["e"], "s"),
        node("Div", ["d", "s"], "y"),
    ]


def generate(draw: Draw) -> Pattern:
    draw.dtype = np.float32
    kind = draw.choose(["LayerNormalization", "RMSNormalization", "InstanceNormalization", "written out"])
    epsilon = float(draw.choose([1e-5, 1e-6, 1e-3]))
    constants: dict[str, np.ndarray] = {}
    if kind == "written out":
        opset = draw.opset(11)
        shape = draw.shape(draw.choose([2, 3, 4]), 2, 6)
        nodes = written_out(draw, constants, opset)
        return Pattern(nodes, {"x": shape}, ["y"], constants, opset, special=False)
    if kind in ("LayerNormalization", "RMSNormalization"):
        shape = draw.shape(draw.choose([2, 3, 4, 5]), 2, 5)
        axis = draw.integer(1, len(shape) - 1)
        constants["s"] = np.asarray(draw.array(*shape[axis:]) + 1, np.float32)
        names = ["x", "s"]
        if kind == "LayerNormalization" and draw.chance(0.7):
            constants["b"] = draw.array(*shape[axis:])
            names.append("b")
        given = axis - len(shape) if draw.chance(0.5) else axis
        nodes = [node(kind, names, "y", axis=given, epsilon=epsilon)]
        opset = draw.opset(17) if kind == "LayerNormalization" else draw.choose([23, 24])
        return Pattern(nodes, {"x": shape}, ["y"], constants, opset, special=False)
    shape = (draw.integer(1, 2), draw.integer(1, 6), *draw.shape(draw.choose([1, 2, 2]), 2, 6))
    constants |= {"s": np.asarray(draw.array(shape[1]) + 1, np.float32), "b": draw.array(shape[1])}
    nodes = [node(kind, ["x", "s", "b"], "y", epsilon=epsilon)]
    return Pattern(nodes, {"x": shape}, ["y"], constants, draw.opset(), special=False)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("module", MODULES, ids=["pow", "div", "sqrt"])
def test_equal(module: Any, seeds: Sequence[int]) -> None:
    check_rewrite(module.REWRITE, generate, seeds, tolerance=2e-3)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("module", MODULES, ids=["pow", "div", "sqrt"])
def test_group_norm(module: Any, seeds: Sequence[int]) -> None:
    """Outside the harness: ONNX infers no shape for GroupNormalization."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        groups, members, batch, height, width = (int(each) for each in rng.integers(1, 5, 5))
        channels = groups * members
        opset = int(rng.choice([18, 21]))
        count = groups if opset == 18 else channels
        constants = {name: (rng.standard_normal(count) + 1).astype(np.float32) for name in "sb"}
        shape = (batch, channels, height + 1, width + 1)
        call = node("GroupNormalization", ["x", "s", "b"], "y", num_groups=groups)
        proto = network([call], {"x": shape}, {"y": shape}, constants, opset=opset)
        model, log = apply_to(proto, module.REWRITE)
        assert log.applied, (seed, log.refused, log.rolled_back)
        feeds = {"x": rng.standard_normal(shape).astype(np.float32)}
        want, have = run_onnx(proto, feeds)[0], run_onnx(ir.to_proto(model.ir), feeds)[0]
        assert np.abs(want - have).max() < 1e-3 * max(1.0, np.abs(want).max()), seed


def layer_norm(shape: Sequence[int] = (1, 20, 32), epsilon: float = 1e-5) -> Any:
    rng = np.random.default_rng(0)
    constants = {name: (rng.standard_normal(shape[-1]) / 4 + 1).astype(np.float32) for name in "sb"}
    nodes = [node("Relu", ["x"], "a"), node("LayerNormalization", ["a", "s", "b"], "y", epsilon=epsilon)]
    return network(nodes, {"x": tuple(shape)}, ["y"], constants)


@pytest.mark.parametrize(("precision", "name"), [("int8", "layer-norm-to-pow"), ("fp16", "layer-norm-to-div")])
def test_no_norm_is_left(precision: str, name: str) -> None:
    target, numbers = as_target("orin-agx-64gb/jp6.2"), as_precision(precision)
    judge = dla_judge(target, numbers, standalone=False)
    consent = [Safety.EXACT, Safety.TOLERANCE] if name.endswith("div") else [Safety.EXACT]
    result, log = rewrite_model(load(layer_norm()), target=target, precision=numbers, judge=judge, consent=consent)
    assert not log.rolled_back
    assert log.counts()[name] == 1
    report = check_model(result, target, numbers)
    left = {row.layer.kind.value for row in report.layers if row.verdict.value != "dla"}
    assert left <= {"SHUFFLE"}


@pytest.mark.parametrize("smallest", [1e-7, 1e-6, 1e-5, 1e-3])
def test_root(smallest: float) -> None:
    """Heron's method from the least tangent, as `root_by_division` builds it, against the square root."""
    from orinport.rewrites.catalogue._norms import _LARGEST, _ROUNDS, _TANGENTS

    v = np.geomspace(smallest, _LARGEST, 100_001)
    low, high = np.log(smallest) / 2, np.log(_LARGEST) / 2
    points = np.exp(low + (high - low) * (2 * np.arange(_TANGENTS) + 1) / (2 * _TANGENTS))
    s = np.min([v * 0.5 / point + 0.5 * point for point in points], axis=0)
    for _ in range(_ROUNDS):
        s = (s + v / s) / 2
    assert np.abs(s / np.sqrt(v) - 1).max() < (4e-6 if smallest < 1e-6 else 4e-7)


def test_refused() -> None:
    old = as_target("orin-agx-64gb/jp6.0")
    check_refused(layer_norm(), layer_norm_to_pow.REWRITE, "lacks POW", target=old)
    check_refused(layer_norm(), layer_norm_to_div.REWRITE, "lacks DIV", target=old)
    new = as_target("orin-agx-64gb/jp6.2")
    check_refused(layer_norm(), layer_norm_to_pow.REWRITE, "POW in FP16", target=new)
    check_refused(layer_norm(epsilon=1e-12), layer_norm_to_div.REWRITE, "too small")
    check_refused(layer_norm((1, 2, 9000)), layer_norm_to_div.REWRITE, "9000 elements")
    runtime = network([node("LayerNormalization", ["x", "s"], "y")], {"x": (1, 4, 8), "s": (8,)}, ["y"])
    check_refused(runtime, layer_norm_to_div.REWRITE, "known at run time only")
    batch = network(
        [node("LayerNormalization", ["x", "s"], "y", axis=0)], {"x": (2, 3)}, ["y"], {"s": np.ones((2, 3), np.float32)}
    )
    check_refused(batch, layer_norm_to_div.REWRITE, "over the batch")
