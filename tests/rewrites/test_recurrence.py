"""RNN, GRU and LSTM against ONNX Runtime, in every form that exporters write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import orinport
from builders import network, node, run_onnx
from orinport.checking import as_precision, as_target, check_model
from orinport.model.layer import LayerKind
from orinport.model.load import load
from orinport.pipeline import rewrite_for
from orinport.precision.half import to_half
from orinport.predict.macs import layer_macs
from orinport.rewrites.catalogue.gru_to_conv import REWRITE as GRU
from orinport.rewrites.catalogue.lstm_to_conv import REWRITE as LSTM
from orinport.rewrites.catalogue.rnn_to_conv import REWRITE as RNN
from orinport.rewrites.context import CostLimit
from orinport.rules.finding import Verdict
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


KINDS = {"RNN": (RNN, 1), "GRU": (GRU, 3), "LSTM": (LSTM, 4)}
LETTERS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}


def weights(kind: str, directions: int, inputs: int, hidden: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """W, R and B of a magnitude that leaves the gates half open and lets rounding die away."""
    gates = KINDS[kind][1]
    shapes = {
        "W": (directions, gates * hidden, inputs),
        "R": (directions, gates * hidden, hidden),
        "B": (directions, 2 * gates * hidden),
    }
    scales = {"W": 0.4, "R": 0.8 / hidden**0.5, "B": 0.4}
    return {name: (rng.standard_normal(shape) * scales[name]).astype(np.float32) for name, shape in shapes.items()}


def generate(kind: str, draw: Draw) -> Pattern:
    """One layer with anything that may be left out left out at random."""
    draw.dtype = np.float32  # ONNX Runtime has no other of these on the CPU
    steps, batch, inputs, hidden = draw.integer(1, 5), draw.integer(1, 3), draw.integer(1, 5), draw.integer(1, 5)
    direction = draw.choose(["forward", "reverse", "bidirectional"])
    directions = 2 if direction == "bidirectional" else 1
    constants = weights(kind, directions, inputs, hidden, draw.rng)
    fed: dict[str, Any] = {"x": (steps, batch, inputs)}
    names = ["x", "W", "R", "B", "", *(["h0", "c0"] if kind == "LSTM" else ["h0"])]
    if draw.chance(0.25):
        names[3] = ""
        del constants["B"]
    if draw.chance(0.2):
        names[4] = "lengths"
        constants["lengths"] = np.full(batch, steps, np.int32)
    for state in names[5:]:
        how = draw.choose(["absent", "zero", "constant", "fed", "fed"])
        shape = (directions, batch, hidden)
        if how == "absent":
            names[names.index(state)] = ""
        elif how == "fed":
            fed[state] = shape
        else:
            constants[state] = draw.array(*shape) * np.float32(how == "constant")
    attributes: dict[str, Any] = {"hidden_size": hidden}
    if direction != "forward" or draw.chance(0.5):
        attributes["direction"] = direction
    if kind == "GRU":
        attributes["linear_before_reset"] = draw.integer(0, 1)
    if draw.chance(0.3):
        chosen = [draw.choose(["Sigmoid", "Tanh", "Relu"]) for _ in LETTERS[kind]]
        if kind != "RNN":
            chosen[0] = draw.choose(["Sigmoid", "Tanh"])
        attributes["activations"] = chosen * directions
    outputs = ["y", "y_h", "y_c"][: 3 if kind == "LSTM" else 2]
    kept = [draw.chance(0.6) for _ in outputs]
    kept[draw.integer(0, len(kept) - 1)] = True
    outputs = [name if keep else "" for name, keep in zip(outputs, kept, strict=True)]
    while not outputs[-1]:
        outputs.pop()
    while not names[-1]:
        names.pop()
    return Pattern(
        [node(kind, names, outputs, name="recurrence", **attributes)],
        fed,
        [name for name in outputs if name],
        constants,
        opset=draw.opset(),
        special=False,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", SEEDS)
def test_recurrence(kind: str, seeds: Sequence[int]) -> None:
    check_rewrite(KINDS[kind][0], lambda draw: generate(kind, draw), seeds)


# ---------------------------------------------------------------------------------------------- infinities and NaN

FUNCTIONS = {"Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Tanh": np.tanh, "Relu": lambda x: np.maximum(x, 0)}


def defined(kind: str, call: onnx.NodeProto, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Y, Y_h and Y_c as the operator is defined: ONNX Runtime clips, and onnx.reference knows one direction."""
    attributes = {each.name: helper.get_attribute_value(each) for each in call.attribute}
    x, w, r = (arrays[name].astype(np.float64) for name in ("x", "W", "R"))
    directions, hidden = r.shape[0], r.shape[2]
    bias = arrays.get("B", np.zeros((directions, 2 * w.shape[1]))).astype(np.float64)
    names = [name.decode() for name in attributes.get("activations", [])] or list(LETTERS[kind]) * directions
    zeros = np.zeros((directions, x.shape[1], hidden))
    given = {name: arrays[name].astype(np.float64) if name in call.input else zeros for name in ("h0", "c0")}
    every = np.zeros((x.shape[0], *zeros.shape))
    last = [np.zeros_like(zeros), np.zeros_like(zeros)]
    for d in range(directions):
        f, *rest = (FUNCTIONS[name] for name in names[d * len(LETTERS[kind]) : (d + 1) * len(LETTERS[kind])])
        back = attributes.get("direction", b"forward") == b"reverse" or d == 1
        wb, rb = np.split(bias[d], 2)
        h, c = given["h0"][d], given["c0"][d]
        for t in reversed(range(x.shape[0])) if back else range(x.shape[0]):
            a, b = x[t] @ w[d].T + wb, h @ r[d].T + rb
            if kind == "RNN":
                h = f(a + b)
            elif kind == "GRU":
                az, ar, ah = np.split(a, 3, axis=1)
                bz, br, bh = np.split(b, 3, axis=1)
                z, reset = f(az + bz), f(ar + br)
                inner = reset * bh
                if not attributes.get("linear_before_reset", 0):
                    inner = (reset * h) @ r[d, 2 * hidden :].T + rb[2 * hidden :]
                h = (1 - z) * rest[0](ah + inner) + z * h
            else:
                i, o, forget = (f(part) for part in np.split((a + b)[:, : 3 * hidden], 3, axis=1))
                c = forget * c + i * rest[0]((a + b)[:, 3 * hidden :])
                h = o * rest[1](c)
            every[t, d] = h
        last[0][d], last[1][d] = h, c
    return [every, last[0], last[1]][: 3 if kind == "LSTM" else 2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(24))
def test_infinities_and_nan_stay_where_the_definition_has_them(kind: str, seed: int) -> None:
    draw = Draw(seed)
    pattern = generate(kind, draw)
    call = pattern.nodes[0]
    wanted = ["y", "y_h", "y_c"][: 3 if kind == "LSTM" else 2]
    del call.output[:]
    call.output.extend(wanted)
    proto = network([call], pattern.inputs, wanted, pattern.constants, opset=pattern.opset)
    result, log = apply_to(proto, KINDS[kind][0])
    assert log.applied
    evaluator = ReferenceEvaluator(ir.to_proto(result.ir))
    for number in (0.5, np.inf, -np.inf, np.nan):
        feeds = {name: draw.array(*shape) for name, shape in pattern.inputs.items()}
        spoiled = feeds[draw.choose(sorted(feeds))]
        spoiled.reshape(-1)[draw.integer(0, spoiled.size - 1)] = number
        with np.errstate(all="ignore"):
            expected = defined(kind, call, {**pattern.constants, **feeds})
            found = evaluator.run(None, feeds)
        for want, have in zip(expected, found, strict=True):
            assert np.array_equal(np.isnan(want), np.isnan(have))
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------------------------------- where it goes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_all_products_go_to_the_dla(kind: str, steps: int, images: int, direction: str) -> None:
    """Sequence and state both leave the network; a joint that the DLA may not take keeps no product off it."""
    hidden, inputs, sides = 16, 8, 1 + (direction == "bidirectional")
    rng = np.random.default_rng(0)
    rows = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind] * hidden
    constants = {
        "W": rng.standard_normal((sides, rows, inputs)).astype(np.float32),
        "R": rng.standard_normal((sides, rows, hidden)).astype(np.float32),
    }
    options = {"linear_before_reset": 1} if kind == "GRU" else {}
    call = node(kind, ["x", *constants], ["y", "y_h"], hidden_size=hidden, direction=direction, **options)
    model = load(network([call], {"x": (steps, images, inputs)}, ["y", "y_h"], constants))
    target, precision = as_target("orin-agx-64gb/jp6.2"), as_precision("fp16")
    result, log, _ = rewrite_for(model, target, precision)
    assert log.counts()[KINDS[kind][0].name] == 1, log.refused
    report = check_model(result, target, precision)
    left = [row.layer for row in report.layers if row.verdict is not Verdict.DLA]
    assert not [layer for layer in left if layer_macs(layer)]
    assert {layer.kind for layer in left} <= {LayerKind.CONCATENATION, LayerKind.SHUFFLE}


# ---------------------------------------------------------------------------------------------- what recipes get wrong


def layer(
    kind: str = "GRU", *, steps: int = 3, batch: int = 1, inputs: int = 4, hidden: int = 5, **options: Any
) -> Any:
    """A layer as PyTorch writes it.

    `names` replaces inputs by position, `more` adds constants, `fed` inputs; what is left are attributes.
    """
    names: dict[int, str] = options.pop("names", {})
    more: dict[str, np.ndarray] = options.pop("more", {})
    fed: dict[str, Any] = options.pop("fed", {})
    outputs: list[str] = options.pop("outputs", ["y", "y_h"])
    directions = 2 if options.get("direction") == "bidirectional" else 1
    constants = {**weights(kind, directions, inputs, hidden, np.random.default_rng(0)), **more}
    given = [names.get(index, name) for index, name in enumerate(("x", "W", "R", "B"))]
    given += [names.get(index, "") for index in range(4, max(names, default=3) + 1)]
    if kind == "GRU":
        options.setdefault("linear_before_reset", 1)
    call = node(kind, given, outputs, hidden_size=hidden, **options)
    used = {name: array for name, array in constants.items() if name in given}
    return network([call], {"x": (steps, batch, inputs), **fed}, [name for name in outputs if name], used)


def rewritten(proto: onnx.ModelProto, kind: str) -> onnx.ModelProto:
    result, log = apply_to(proto, KINDS[kind][0])
    assert log.applied, log.refused
    assert not [each for each in result.ir.graph if each.op_type == kind]
    return ir.to_proto(result.ir)


def assert_same(proto: onnx.ModelProto, kind: str, feeds: dict[str, np.ndarray]) -> None:
    for want, have in zip(run_onnx(proto, feeds), run_onnx(rewritten(proto, kind), feeds), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


def normal(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_layout_of_pytorch_and_the_whole_sequence() -> None:
    assert_same(layer(direction="bidirectional", outputs=["y", ""]), "GRU", {"x": normal(3, 1, 4)})


def test_initial_state_without_bias() -> None:
    proto = layer(names={3: "", 5: "h0"}, fed={"h0": (1, 1, 5)})
    assert_same(proto, "GRU", {"x": normal(3, 1, 4), "h0": normal(1, 1, 5)})


def test_other_readers_of_sequence_and_state_see_what_they_saw() -> None:
    proto = layer(names={5: "h0"}, fed={"h0": (1, 1, 5)})
    proto.graph.node.extend([node("Neg", ["x"], "also_x"), node("Neg", ["h0"], "also_h")])
    proto.graph.output.extend(
        [
            helper.make_tensor_value_info(name, 1, shape)
            for name, shape in (("also_x", (3, 1, 4)), ("also_h", (1, 1, 5)))
        ]
    )
    assert_same(proto, "GRU", {"x": normal(3, 1, 4), "h0": normal(1, 1, 5)})


def test_layers_that_share_their_weights() -> None:
    proto = layer()
    second = onnx.NodeProto.FromString(proto.graph.node[0].SerializeToString())
    second.name = "second"
    second.output[:] = ["y2", "y2_h"]
    second.input[0] = "x2"
    proto.graph.node.extend([node("Neg", ["x"], "x2"), second])
    proto.graph.output.append(helper.make_tensor_value_info("y2", 1, (3, 1, 1, 5)))
    assert_same(proto, "GRU", {"x": normal(3, 1, 4)})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_layout_one(kind: str, direction: str, batch: int) -> None:
    """Batch first, as `batch_first` of the operator; onnx.reference alone runs it."""
    rng = np.random.default_rng(2)
    constants = weights(kind, 2 if direction == "bidirectional" else 1, 4, 5, rng)
    call = node(kind, ["x", "W", "R", "B"], ["y", "y_h"], hidden_size=5, direction=direction, layout=1)
    proto = network([call], {"x": (batch, 3, 4)}, ["y", "y_h"], constants)
    x = normal(batch, 3, 4)
    swapped = onnx.NodeProto.FromString(call.SerializeToString())
    expected = defined(kind, swapped, {**constants, "x": x.transpose(1, 0, 2)})
    result, log = apply_to(proto, KINDS[kind][0])
    assert log.applied, log.refused
    found = run_onnx(ir.to_proto(result.ir), {"x": x})
    np.testing.assert_allclose(found[0], expected[0].transpose(2, 0, 1, 3), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], expected[1].transpose(1, 0, 2), rtol=1e-4, atol=1e-5)


def test_images_of_the_batch_stay_images() -> None:
    """A batch of feature maps stays the batch of the loadable; sequences of another kind lie side by side."""
    constants = weights("GRU", 1, 6, 5, np.random.default_rng(0))
    calls = [
        node("Squeeze", ["x", "axes"], "rows"),
        node("Transpose", ["rows"], "sequence", perm=[2, 0, 1]),
        node("GRU", ["sequence", "W", "R", "B"], ["y"], hidden_size=5, linear_before_reset=1),
    ]
    proto = network(calls, {"x": (2, 6, 1, 4)}, ["y"], {**constants, "axes": np.asarray([2], np.int64)})
    convs = [each for each in rewritten_graph(proto) if each.op_type == "Conv"]
    assert {each.outputs[0].shape[0] for each in convs} == {2}
    convs = [each for each in rewritten_graph(layer(steps=3, batch=2)) if each.op_type == "Conv"]
    assert {each.outputs[0].shape[0] for each in convs} == {1}
    assert_same(proto, "GRU", {"x": normal(2, 6, 1, 4)})


def rewritten_graph(proto: onnx.ModelProto) -> Any:
    return apply_to(proto, GRU)[0].ir.graph


def test_more_states_than_channels() -> None:
    """150 steps of 2 directions and 32 states are 9600 channels; the DLA has 8192."""
    proto = layer("RNN", steps=150, hidden=32, direction="bidirectional")
    graph = apply_to(proto, RNN)[0].ir.graph
    assert max(int(each.outputs[0].shape[1]) for each in graph if each.op_type == "Concat") <= 8192
    assert_same(proto, "RNN", {"x": normal(150, 1, 4)})


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_does_not_grow_over_the_steps(kind: str) -> None:
    """FP16 from end to end, as the DLA computes: 48 steps are not worse than a few roundings of a state near 1."""
    proto = layer(kind, steps=48, inputs=8, hidden=16, direction="bidirectional")
    x = normal(48, 1, 8)
    small = onnx.ModelProto.FromString(rewritten(proto, kind).SerializeToString())
    half, _ = to_half(load(small))
    want = run_onnx(proto, {"x": x})[0]
    have = run_onnx(ir.to_proto(half.ir), {"x": x.astype(np.float16)})[0].astype(np.float32)
    error = np.abs(want - have).max(axis=(1, 2, 3))
    assert error.max() < 16 * 2.0**-11
    assert error[32:].max() < 4 * max(error[:16].max(), 2.0**-11)


@pytest.mark.parametrize("kind", KINDS)
def test_networks_in_fp16(kind: str) -> None:
    """Their recurrent layers are proved in FP16 too."""
    proto = layer(kind, direction="bidirectional")
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    x = normal(3, 1, 4)
    found = run_onnx(rewritten(proto, kind), {"x": x.astype(np.float16)})[0]
    assert found.dtype == np.float16
    want = run_onnx(layer(kind, direction="bidirectional"), {"x": x})[0]
    assert np.abs(found.astype(np.float32) - want).max() < 2.0**-8


# ---------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("LSTM", {"names": {7: "P"}, "more": {"P": np.ones((1, 15), np.float32)}}, "peepholes"),
        ("LSTM", {"input_forget": 1}, "coupled"),
        ("GRU", {"clip": 1.0}, "clips"),
        ("GRU", {"names": {4: "lengths"}, "more": {"lengths": np.asarray([2], np.int32)}}, "sequence_lens"),
        ("GRU", {"names": {4: "lengths"}, "fed": {"lengths": ((1,), np.int32)}}, "sequence_lens"),
        ("GRU", {"activations": ["HardSigmoid", "Tanh"]}, "HardSigmoid"),
        ("RNN", {"activations": ["Softsign"]}, "Softsign"),
        ("LSTM", {"activations": ["Relu", "Tanh", "Tanh"]}, "no upper bound"),
        ("GRU", {"names": {1: "Wx"}, "fed": {"Wx": (1, 15, 4)}}, "run time only"),
        ("LSTM", {"names": {3: "Bx"}, "fed": {"Bx": (1, 40)}}, "run time only"),
        ("GRU", {"steps": 200}, "2600 nodes"),
        ("RNN", {"inputs": 8200}, "8192"),
        ("RNN", {"batch": 8200, "steps": 1}, "8192"),
    ],
)
def test_refusals(kind: str, options: dict[str, Any], words: str) -> None:
    check_refused(layer(kind, **options), KINDS[kind][0], words)


def test_peepholes_of_zeros_are_none() -> None:
    proto = layer("LSTM", names={7: "P"}, more={"P": np.zeros((1, 15), np.float32)})
    assert_same(proto, "LSTM", {"x": normal(3, 1, 4)})


def test_the_limit_of_nodes_is_the_users() -> None:
    proto = layer(steps=6)
    check_refused(proto, GRU, "78 nodes", cost=CostLimit(nodes=70))
    assert apply_to(proto, GRU, cost=CostLimit(nodes=100))[1].applied


# ---------------------------------------------------------------------------------------------- the DLA


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", ["orin-agx-64gb/jp6.0", "orin-agx-64gb/jp6.2", "orin-agx-64gb/jp7.2"])
def test_every_layer_is_on_the_dla(kind: str, target: str, tmp_path: Any) -> None:
    proto = layer(kind, steps=4, inputs=16, hidden=16, direction="bidirectional")
    report = orinport.prepare(proto, target=target, output=tmp_path / "b")
    assert report.after.all_dla, report.after.reasons
    assert report.after.placement.loadables == 1
    assert report.proof is not None
    assert report.proof.equal
