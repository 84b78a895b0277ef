"""Our lowering beside NVIDIA's own parser (tensorrt-rtx, TensorRT 11 in kind): the same layers in the same order."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from builders import LIGHT, light_path, network, node
from orinport.cli.tensorrt import compare_with_parser, differences
from orinport.device.tensorrt_rtx import REFERENCE_VERSION, ParsedNetwork, Session
from orinport.errors import OrinportError
from orinport.model import load
from orinport.model.layer import Layer, LayerKind
from orinport.model.lower import lower
from orinport.model.model import Model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.tensorrt, pytest.mark.filterwarnings("ignore")]

DIFFERENCES: dict[str, str] = {
    "test_affine_grid_2d": "the parser sees through shapes that ONNX's inference does not find",
    "test_center_crop_pad": "the parser sees through shapes that ONNX's inference does not find",
    "test_averagepool_2d_ceil_last_window_starts_on_pad": "ONNX leaves out a window that starts in the padding,"
    " TensorRT counts it: the kinds agree, the shape that follows does not",
    "test_maxpool_2d_ceil_output_size_reduce_by_one": "as with the average pool: a window that starts in the padding",
    "test_gru_batchwise": "the parser does not look at layout = 1 and takes the batch for the sequence",
    "test_lstm_batchwise": "the parser does not look at layout = 1 and takes the batch for the sequence",
    "test_simple_rnn_batchwise": "the parser does not look at layout = 1 and takes the batch for the sequence",
    "test_nonzero_example": "tensorrt-rtx sends NonZero to a plugin that it does not bring; TensorRT has a layer",
    "test_range_bfloat16_type_positive_delta_expanded": "the parser gives no reason why it refuses this loop",
    "test_spacetodepth_crd": "the parser does not look at the mode CRD and would build another function: we refuse it",
    "test_scan_sum": "ONNX takes the batch off the state of a Scan of opset 8, the parser leaves it",
}
"""Operator models where we and the parser differ, by the beginning of their names, and why."""


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(timeout=60) as made:
        yield made


def raw(proto: onnx.ModelProto) -> Model:
    """The model as it is in the file: nothing folded, as the parser sees it."""
    with contextlib.suppress(Exception):
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    return Model(ir.from_proto(proto), "x")


def kinds(layers: tuple[Layer, ...]) -> list[str]:
    return [layer.kind.value for layer in layers]


def parsed_kinds(parsed: ParsedNetwork) -> list[str]:
    return ["PLUGIN" if kind.startswith("PLUGIN") else kind for kind in parsed.kinds]


def refused(layers: tuple[Layer, ...]) -> bool:
    return any(layer.kind in {LayerKind.UNSUPPORTED, LayerKind.PLUGIN} for layer in layers)


def disagreement(session: Session, proto: onnx.ModelProto) -> str | None:
    """How our lowering and the parser differ about `proto`; None if they agree."""
    parsed = session.parse(proto)
    layers = lower(raw(proto), tensorrt=REFERENCE_VERSION)
    if not parsed.parsed:
        said = parsed.errors[0].message if parsed.errors else "no reason given"
        return None if refused(layers) else f"only the parser refuses it: {said}"
    reasons = [layer["reason"] for layer in layers if layer.kind is LayerKind.UNSUPPORTED]
    if reasons:
        return f"only we refuse it: {reasons[0]}"
    ours, theirs = kinds(layers), parsed_kinds(parsed)
    if ours != theirs:
        return f"we make {ours}, the parser {theirs}"
    found = differences(layers, parsed)
    return found[0] if found else None


def operator_cases() -> list[tuple[str, onnx.ModelProto]]:
    """The onnx package's operator models, each also with all inputs but the first as constants."""
    from onnx.backend.test.case.node import collect_testcases

    cases = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    for case in found:
        if case.model is None or not case.data_sets:
            continue
        arrays = case.data_sets[0][0]
        if any(not isinstance(a, np.ndarray) or a.dtype.kind in "OUSc" for a in arrays):
            continue
        cases.append((case.name, case.model))
        names = [info.name for info in case.model.graph.input]
        if len(arrays) < 2 or len(names) != len(arrays):
            continue
        proto = onnx.ModelProto()
        proto.CopyFrom(case.model)
        proto.graph.initializer.extend(
            numpy_helper.from_array(a, n) for n, a in list(zip(names, arrays, strict=True))[1:]
        )
        del proto.graph.input[1:]
        cases.append((f"{case.name}+const", proto))
    return cases


def check_cases(session: Session, cases: list[tuple[str, onnx.ModelProto]]) -> tuple[list[str], set[str]]:
    """The disagreements that `DIFFERENCES` does not name, and the entries of it that were met."""
    found = []
    met = set()
    for name, proto in cases:
        if (text := disagreement(session, proto)) is None:
            continue
        entry = next((start for start in DIFFERENCES if name.startswith(start)), None)
        if entry is None:
            found.append(f"{name}: {text}")
        else:
            met.add(entry)
    return found, met


@pytest.mark.parametrize("name", LIGHT)
def test_light_networks_as_in_the_file(session: Session, name: str) -> None:
    assert disagreement(session, onnx.load_model_from_string(light_path(name).read_bytes())) is None


@pytest.mark.parametrize("name", LIGHT)
def test_light_networks_as_loaded(session: Session, name: str) -> None:
    """Large weights stay nodes in a loaded file and are constants to us: only what runs is compared."""
    model = load(light_path(name))
    parsed = session.parse(model)
    layers = lower(model, tensorrt=REFERENCE_VERSION)
    assert parsed.parsed
    assert len(layers) > 10
    assert differences(layers, parsed) == []


def test_a_sample_of_the_operator_models(session: Session) -> None:
    cases = operator_cases()[::9]
    assert len(cases) >= 250
    found, _ = check_cases(session, cases)
    assert found == []


@pytest.mark.slow
def test_all_operator_models(session: Session) -> None:
    found, met = check_cases(session, operator_cases())
    assert found == []
    assert met == set(DIFFERENCES)


# --- generated networks --------------------------------------------------------------------------------------


class Generator:
    """Random networks of what image networks are made of; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.count = 0
        self.opset = int(self.random.choice([11, 13, 17, 18, 19]))

    def name(self, prefix: str = "t") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def constant(self, array: np.ndarray) -> str:
        name = self.name("c")
        self.constants[name] = array
        return name

    def weights(self, *shape: int) -> str:
        return self.constant(self.random.normal(0, 0.3, shape).astype(np.float32))

    def add(self, op_type: str, inputs: list[str], **attributes: object) -> str:
        out = self.name()
        self.nodes.append(node(op_type, inputs, out, **attributes))
        return out

    def pick(self, *choices: int) -> int:
        return int(self.random.choice(choices))

    def step(self, x: str, c: int) -> tuple[str, int]:
        """One more operator, or a few, on a 4-D tensor with `c` channels; gives the new tensor and channels."""
        kind = self.pick(*range(14))
        if kind <= 2:
            k, groups = self.pick(1, 3, 5), self.pick(1, 1, c)
            out = c * self.pick(1, 2) if groups == 1 else c
            inputs = [x, self.weights(out, c // groups, k, k)] + [self.weights(out)] * self.pick(0, 1)
            attributes: dict[str, object] = {"kernel_shape": [k, k], "group": groups}
            if self.pick(0, 1):
                attributes["auto_pad"] = str(self.random.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))
            else:
                attributes |= {"pads": [k // 2] * 4, "strides": [self.pick(1, 2)] * 2}
            return self.add("Conv", inputs, **attributes), out
        if kind == 3:
            return self.add("ConvTranspose", [x, self.weights(c, c, 2, 2)], strides=[2, 2]), c
        if kind == 4:
            parts = [self.weights(c) for _ in range(3)] + [self.constant(np.ones(c, np.float32))]
            return self.add("BatchNormalization", [x, *parts]), c
        if kind == 5:
            op = str(self.random.choice(["Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "Softplus", "HardSigmoid"]))
            return self.add(op, [x]), c
        if kind == 6:
            low, high = self.constant(np.float32(0)), self.constant(np.float32(6))
            return self.add("Clip", [x, low, high]), c
        if kind == 7:
            op = str(self.random.choice(["MaxPool", "AveragePool"]))
            attributes = {"kernel_shape": [3, 3], "strides": [self.pick(1, 2)] * 2, "pads": [1, 1, 1, 1]}
            return self.add(op, [x], ceil_mode=self.pick(0, 1), **attributes), c
        if kind == 8:
            op = str(self.random.choice(["Add", "Mul", "Sub", "Div", "Max", "Min"]))
            shape = [(c, 1, 1), (1,), (), (1, c, 1, 1)][self.pick(0, 1, 2, 3)]
            return self.add(op, [x, self.constant(np.full(shape, 1.5, np.float32))]), c
        if kind == 9:
            return self.add("Concat", [x, self.add("Relu", [x])], axis=self.pick(1, -3)), 2 * c
        if kind == 10:
            scales = self.constant(np.asarray([1, 1, 2, 2], np.float32))
            mode = str(self.random.choice(["nearest", "linear"]))
            transformation = str(self.random.choice(["half_pixel", "asymmetric"]))
            return self.add("Resize", [x, "", scales], mode=mode, coordinate_transformation_mode=transformation), c
        if kind == 11:
            pads = self.constant(np.asarray([0, 0, 1, 1, 0, 0, 1, 1]))
            return self.add("Pad", [x, pads], mode=str(self.random.choice(["constant", "reflect", "edge"]))), c
        if kind == 12:
            return self.add("Mul", [x, self.add("Sigmoid", [self.add("GlobalAveragePool", [x])])]), c
        ends = self.constant(np.asarray([max(c // 2, 1)]))
        return self.add("Slice", [x, self.constant(np.asarray([0])), ends, self.constant(np.asarray([1]))]), max(
            c // 2, 1
        )

    def model(self) -> onnx.ModelProto:
        x, c = "x", 4
        for _ in range(self.pick(4, 8, 12)):
            x, c = self.step(x, c)
        end = self.pick(0, 1, 2)
        if end == 0:
            flat = self.add("Flatten", [self.add("GlobalAveragePool", [x])])
            x = self.add("Softmax", [self.add("Gemm", [flat, self.weights(10, c), self.weights(10)], transB=1)])
        elif end == 1:
            x = self.add("Transpose", [x], perm=[0, 2, 3, 1])
        else:
            x = self.add("Reshape", [x, self.constant(np.asarray([0, -1]))])
        proto = network(self.nodes, {"x": (self.pick(1, 2), 4, 16, 16)}, [x], self.constants, opset=self.opset)
        return onnx.shape_inference.infer_shapes(proto)


def _generated(session: Session, seeds: range) -> list[str]:
    found = []
    for seed in seeds:
        proto = Generator(seed).model()
        if (text := disagreement(session, proto)) is not None:
            found.append(f"seed {seed}: {text}")
    return found


def test_generated_networks(session: Session) -> None:
    assert _generated(session, range(60)) == []


@pytest.mark.slow
def test_many_generated_networks(session: Session) -> None:
    assert _generated(session, range(60, 1000)) == []


# --- loaded networks: constants folded, shapes made known ----------------------------------------------------


def loaded_disagreement(session: Session, proto: onnx.ModelProto) -> str | None:
    """How the layers that run differ between our lowering of the loaded model and the parser's."""
    try:
        model = load(proto)
    except OrinportError:
        return None
    layers = lower(model, tensorrt=REFERENCE_VERSION)
    parsed = session.parse(model)
    if not parsed.parsed:
        return None if refused(layers) else f"only the parser refuses it: {parsed.errors[0].message}"
    reasons = [layer["reason"] for layer in layers if layer.kind is LayerKind.UNSUPPORTED]
    if reasons:
        return f"only we refuse it: {reasons[0]}"
    found = differences(layers, parsed)
    return found[0] if found else None


def test_generated_networks_as_loaded(session: Session) -> None:
    found = {seed: loaded_disagreement(session, Generator(seed).model()) for seed in range(40)}
    assert {seed: text for seed, text in found.items() if text} == {}


@pytest.mark.slow
def test_operator_models_as_loaded(session: Session) -> None:
    found = []
    for name, proto in operator_cases()[::2]:
        text = loaded_disagreement(session, proto)
        if text and not any(name.startswith(start) for start in DIFFERENCES):
            found.append(f"{name}: {text}")
    assert found == []


# --- the command line ----------------------------------------------------------------------------------------


def test_the_comparison_says_that_both_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(network([node("Relu", ["x"], "y")], {"x": (1, 3, 8, 8)}, {"y": (1, 3, 8, 8)}), path)
    assert compare_with_parser(path, "orin-agx-64gb", ())
    out = capsys.readouterr().err
    assert "makes the same 1 layers" in out
    assert "TensorRT 10.3" in out


def test_the_comparison_takes_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(network([node("Relu", ["x"], "y")], {"x": ("n", 3, 8, 8)}, {"y": ("n", 3, 8, 8)}), path)
    assert compare_with_parser(path, "orin-agx-64gb", ("x:2x3x8x8",))
    capsys.readouterr()


def test_the_comparison_shows_what_differs(session: Session) -> None:
    shape = (1, 3, 8, 8)
    ours = lower(raw(network([node("Relu", ["x"], "y")], {"x": shape}, {"y": shape})), tensorrt=REFERENCE_VERSION)
    other = session.parse(network([node("Sigmoid", ["x"], "y")], {"x": shape}, {"y": shape}))
    assert differences(ours, other) == ["ACTIVATION Relu_y: type is RELU, the parser has SIGMOID"]
    longer = network([node("Relu", ["x"], "r"), node("Abs", ["r"], "y")], {"x": shape}, {"y": shape})
    assert differences(ours, session.parse(longer)) == ["orinport makes nothing; the parser makes UNARY Abs_y"]


def test_a_model_that_both_refuse_is_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    custom = node("Foo", ["x"], "y", domain="custom")
    onnx.save(network([custom], {"x": (1, 3)}, {"y": (1, 3)}, domains={"custom": 1}), path)
    assert compare_with_parser(path, "orin-agx-64gb", ())
    capsys.readouterr()
