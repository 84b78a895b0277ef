"""compare-to-clip, thresholded-relu-to-clip and softsign-to-div; logic behind comparisons."""

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
    compare_to_cast,
    compare_to_clip,
    logic_to_arithmetic,
    softsign_to_div,
    thresholded_relu_to_clip,
)
from orinport.rewrites.rewrite import Rewrite, Safety
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPARE = compare_to_clip.REWRITE
CASTS = compare_to_cast.REWRITE
LOGIC = logic_to_arithmetic.REWRITE
BOTH = [Safety.EXACT, Safety.TOLERANCE]
OPS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")


def generate_compare(draw: Draw) -> Pattern:
    shape = draw.shape(draw.choose([2, 3, 4]), 1, 5)
    opset = draw.opset(12 if draw.dtype == np.float32 else 13)
    inputs: dict[str, Any] = {"x": shape}
    constants: dict[str, np.ndarray] = {}
    nodes: list[Any] = [node("Round", ["x"], "r")]  # so that numbers are equal, and else well apart
    kind = draw.choose(["scalar", "channels", "tensor", "itself"])
    second = "r"
    if kind == "scalar":
        constants["t"] = np.asarray(draw.choose([0.0, 1.0, -0.5, 0.1]), draw.dtype)
        second = "t"
    elif kind == "channels":
        constants["t"] = np.round(draw.array(*shape[-2:], scale=1.0))
        second = "t"
    elif kind == "tensor":
        inputs["z"] = tuple(size if draw.chance(0.7) else 1 for size in shape)
        nodes.append(node("Round", ["z"], "s"))
        second = "s"
    pair = ["r", second] if draw.chance(0.7) else [second, "r"]
    nodes.append(node(draw.choose(OPS), pair, "a"))
    truth = "a"
    if draw.chance(0.5):
        nodes.append(node(draw.choose(OPS), pair, "b"))
        nodes.append(node(draw.choose(["And", "Or", "Xor"]), ["a", "b"], "c"))
        truth = "c"
    if draw.chance(0.3):
        nodes.append(node("Not", [truth], "n"))
        truth = "n"
    to = 10 if draw.dtype == np.float16 else draw.choose([1, 1, 10])
    nodes.append(node("Cast", [truth], "y", to=to))
    return Pattern(nodes, inputs, ["y"], constants, opset, special=False, overflow=False)


def generate_cast(draw: Draw) -> Pattern:
    shape = draw.shape(4, 1, 4)
    constants: dict[str, np.ndarray] = {}
    inputs: dict[str, Any] = {"x": shape}
    kind = draw.choose(["scalar", "channels", "tensor", "tensor", "itself"])
    second = "x"
    if kind == "scalar":
        constants["t"], second = np.asarray(draw.choose([0.0, 1.0, np.inf]), draw.dtype), "t"
    elif kind == "channels":
        constants["t"], second = draw.array(shape[1], 1, 1), "t"
    elif kind == "tensor":
        inputs["z"] = (shape[0], *(size if draw.chance(0.7) else 1 for size in shape[1:]))
        second = "z"
    pair = ["x", second] if draw.chance(0.7) else [second, "x"]
    nodes = [node(draw.choose(OPS), pair, "c")]
    outputs = []
    for index in range(draw.integer(1, 3)):
        to = draw.choose([1, 6, 10, 11])
        nodes.append(node("Cast", ["c"], f"m{index}", to=to))
        outputs.append(f"m{index}")
    if draw.chance(0.3):
        nodes += [node("Not", ["c"], "n"), node("Cast", ["n"], "o", to=1)]
        outputs.append("o")
    opset = draw.opset(12 if draw.dtype == np.float32 else 13)
    return Pattern(nodes, inputs, outputs, constants, opset, applies=None)


def generate_threshold(draw: Draw) -> Pattern:
    draw.dtype = np.float32
    shape = draw.shape(draw.choose([2, 3, 4]), 1, 5)
    attributes = {} if draw.chance(0.3) else {"alpha": draw.choose([0.0, 0.5, 2.0, -1.0])}
    nodes = [node("ThresholdedRelu", ["x"], "y", **attributes)]
    return Pattern(nodes, {"x": shape}, ["y"], {}, draw.opset(10), special=False, overflow=False)


def generate_softsign(draw: Draw) -> Pattern:
    draw.dtype = np.float32
    shape = draw.shape(draw.choose([2, 3, 4]), 1, 5)
    return Pattern([node("Softsign", ["x"], "y")], {"x": shape}, ["y"], {}, draw.opset())


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    ("rewrite", "generate"),
    [
        (COMPARE, generate_compare),
        (CASTS, generate_cast),
        (thresholded_relu_to_clip.REWRITE, generate_threshold),
        (softsign_to_div.REWRITE, generate_softsign),
    ],
    ids=["compare", "cast", "threshold", "softsign"],
)
def test_equal(rewrite: Rewrite, generate: Any, seeds: Sequence[int]) -> None:
    check_rewrite(rewrite, generate, seeds)


def gated(*nodes: Any, truth: str, opset: int = 17, dtype: Any = np.float32, **constants: Any) -> Any:
    """`x * Cast(truth)`, with a Relu in front."""
    to = 10 if dtype == np.float16 else 1
    whole = [node("Relu", ["x"], "a"), *nodes, node("Cast", [truth], "m", to=to), node("Mul", ["a", "m"], "y")]
    arrays = {name: np.asarray(value, dtype) for name, value in constants.items()}
    return network(whole, {"x": ((1, 8, 6, 6), dtype)}, ["y"], arrays, opset=opset)


TREE = [
    node("Greater", ["a", "t"], "p"),
    node("LessOrEqual", ["a", "s"], "q"),
    node("And", ["p", "q"], "r"),
    node("Not", ["r"], "n"),
]


@pytest.mark.parametrize("stack", ["jp5.1", "jp6.0", "jp6.2"])
@pytest.mark.parametrize("precision", ["fp16", "int8"])
@pytest.mark.parametrize(
    "proto",
    [
        *(gated(node(op, ["a", "t"], "c"), truth="c", t=0.5) for op in OPS),
        gated(*TREE, truth="n", t=0.25, s=0.75),
    ],
    ids=[*OPS, "tree"],
)
def test_takes_it_to_the_dla(stack: str, precision: str, proto: Any) -> None:
    target, chosen = as_target(f"orin-agx-64gb/{stack}"), as_precision(precision)
    model = load(proto)
    assert not check_model(model, target, chosen).all_dla
    result, log, _ = rewrite_for(model, target, chosen, consent=BOTH)
    assert not log.rolled_back
    assert log.counts()[COMPARE.name] == 1
    assert check_model(result, target, chosen).all_dla


def test_a_mask_fill_goes_to_the_dla() -> None:
    nodes = [node("Relu", ["x"], "a"), node("Greater", ["a", "t"], "c"), node("Where", ["c", "a", "t"], "y")]
    model = load(network(nodes, {"x": (1, 8, 6, 6)}, ["y"], {"t": np.asarray(0.5, np.float32)}))
    target, precision = as_target("orin-agx-64gb/jp6.0"), as_precision("fp16")
    result, log, _ = rewrite_for(model, target, precision, consent=BOTH)
    assert log.counts()[COMPARE.name] == 1
    assert check_model(result, target, precision).all_dla


@pytest.mark.parametrize("op", OPS)
def test_every_number_of_fp16_is_told_from_its_neighbours(op: str) -> None:
    """Against thresholds of every size, from the smallest number to the largest."""
    numbers = np.arange(0x7C00, dtype=np.uint16).view(np.float16)
    numbers = np.concatenate([-numbers[::-1], numbers])
    for threshold in (0.0, 6e-8, 6.1e-5, 0.1, -1.0, 2048.0, -65504.0):
        t = np.asarray(threshold, np.float16)
        proto = network(
            [node("Cast", ["x"], "a", to=10), node(op, ["a", "t"], "c"), node("Cast", ["c"], "y", to=10)],
            {"x": (1, 1, 1, numbers.size)},
            ["y"],
            {"t": t},
        )
        model, log = apply_to(proto, COMPARE)
        assert log.applied
        feeds = {"x": numbers.astype(np.float32).reshape(1, 1, 1, -1)}
        (found,) = run_onnx(ir.to_proto(model.ir), feeds)
        (wanted,) = run_onnx(proto, feeds)
        assert np.array_equal(found, wanted), threshold


def test_logic_is_taken_out_from_between_casts() -> None:
    """Logic on truth values that are inputs: no Cast to truth values is left."""
    nodes = [node("Or", ["p", "q"], "a"), node("Xor", ["a", "p"], "b"), node("Cast", ["b"], "y", to=1)]
    proto = network(nodes, dict.fromkeys("pq", ((1, 2, 3, 3), np.bool_)), ["y"])
    model, log = apply_to(proto, LOGIC)
    assert len(log.applied) == 1
    assert [each.op_type for each in model.ir.graph].count("Cast") == 2
    rng = np.random.default_rng(0)
    feeds = {name: rng.integers(0, 2, (1, 2, 3, 3)).astype(bool) for name in "pq"}
    assert np.array_equal(run_onnx(ir.to_proto(model.ir), feeds)[0], run_onnx(proto, feeds)[0])


THRESHOLDS = np.arange(8).reshape(1, 8, 1, 1)


@pytest.mark.parametrize("stack", ["jp6.2", "jp7.2"])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("second", ["tensor", "map", "thresholds"])
def test_a_comparison_gets_the_cast_that_int8_asks_for(stack: str, op: str, second: str) -> None:
    """In a network in FP16 all of it is on the DLA; in FP32 a Cast behind the mask is left."""
    target, precision = as_target(f"orin-agx-64gb/{stack}"), as_precision("int8")
    operand = {
        "tensor": [node("Sigmoid", ["a"], "b")],
        "map": [node("MaxPool", ["a"], "b", kernel_shape=[6, 6])],
        "thresholds": [],
    }[second]
    constants = {} if operand else {"b": THRESHOLDS}
    for dtype, left in ((np.float16, 0), (np.float32, 1)):
        nodes = [*operand, node(op, ["a", "b"], "c")]
        if dtype == np.float16:  # a second Cast, which the DLA does not take
            nodes += [node("Cast", ["c"], "k", to=10), node("Relu", ["k"], "unused")]
        model = load(gated(*nodes, truth="c", dtype=dtype, **constants))
        result, log, _ = rewrite_for(model, target, precision)
        assert log.counts().get(CASTS.name) == 1, (dtype, log.refused)
        report = check_model(result, target, precision)
        off = [row for row in report.layers if row.verdict.value != "dla" and not row.layer.folds]
        kinds = [row.layer.kind.value for row in off]
        if second == "thresholds" and dtype == np.float16:  # which constants it takes in FP16 is not documented
            assert {code for row in off for code in row.codes} <= {"DLA018", "DLA167", "DLA169"}
        else:
            assert kinds == ["CAST"] * left, [(row.layer.name, row.codes) for row in off]


def test_truth_values_that_are_returned_stay() -> None:
    nodes = [node("Greater", ["x", "t"], "c"), node("Cast", ["c"], "y", to=1)]
    proto = network(nodes, {"x": (1, 2, 3, 3)}, ["c", "y"], {"t": np.asarray(0.5, np.float32)})
    model, log = apply_to(proto, COMPARE)
    assert log.applied
    assert [each.op_type for each in model.ir.graph].count("Greater") == 1


@pytest.mark.parametrize("op", OPS)
def test_a_comparison_of_two_scalars_gets_its_cast(op: str) -> None:
    nodes = [node(op, ["x", "t"], "c"), node("Cast", ["c"], "y", to=1)]
    proto = network(nodes, {"x": ()}, ["y"], {"t": np.asarray(0.5, np.float32)})
    model, log = apply_to(proto, CASTS)
    assert len(log.applied) == 1, log.rolled_back
    for value in (0.25, 0.5, 0.75):
        feeds = {"x": np.asarray(value, np.float32)}
        assert np.array_equal(run_onnx(ir.to_proto(model.ir), feeds)[0], run_onnx(proto, feeds)[0])


def test_refused() -> None:
    integers = network(
        [node("Greater", ["x", "z"], "c"), node("Cast", ["c"], "y", to=1)],
        dict.fromkeys("xz", ((1, 2, 3, 3), np.int64)),
        ["y"],
    )
    check_refused(integers, COMPARE, "compares integers")
    chain = [node("Greater", ["a", "t"], "c0")]
    chain += [node("Not", [f"c{index}"], f"c{index + 1}") for index in range(64)]
    check_refused(gated(*chain, truth="c64", t=0.5), COMPARE, "more than 64")
    softsign = network([node("Softsign", ["x"], "y")], {"x": (1, 2, 3, 3)}, ["y"])
    old, new = as_target("orin-agx-64gb/jp6.0"), as_target("orin-agx-64gb/jp6.2")
    plain = gated(node("Greater", ["a", "t"], "c"), truth="c", t=0.5)
    joined = gated(node("GreaterOrEqual", ["a", "t"], "c"), truth="c", t=0.5)
    int8 = as_precision("int8")
    check_refused(plain, CASTS, "in INT8 only", target=new, precision=as_precision("fp16"))
    check_refused(plain, CASTS, "comparison GREATER in TensorRT 8.6.2", target=old, precision=int8)
    check_refused(joined, CASTS, "joined by OR", target=as_target("drive-orin/drive-6.0.9"), precision=int8)
    check_refused(integers, CASTS, "integers")
    check_refused(softsign, softsign_to_div.REWRITE, "lacks DIV before TensorRT 10.3", target=old)
    _, log = apply_to(gated(node("Greater", ["a", "t"], "c"), truth="c", t=0.5), COMPARE, consent=[Safety.EXACT])
    assert "nobody consented" in log.refused[0].reason


@pytest.mark.parametrize("op_type", ["Softsign", "ThresholdedRelu"])
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_activations_go_to_the_dla(op_type: str, precision: str) -> None:
    model = load(network([node(op_type, ["x"], "y")], {"x": (1, 8, 6, 6)}, ["y"]))
    target, chosen = as_target("orin-agx-64gb/jp6.2"), as_precision(precision)
    result, log, _ = rewrite_for(model, target, chosen, consent=BOTH)
    assert log.applied
    assert check_model(result, target, chosen).all_dla
