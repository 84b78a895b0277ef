"""`lower`: what each version of the parser makes of each family of operators, without the parser."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from builders import LIGHT, light_path, network, node, single, small_cnn, thin_network
from orinport.model import load
from orinport.model.layer import ATTRIBUTES, DType, Layer, LayerKind
from orinport.model.lower import lower
from orinport.model.lower.table import TABLE
from orinport.model.lower.version import parser_of
from orinport.model.model import Model
from orinport.targets.version import Version

if TYPE_CHECKING:
    from collections.abc import Sequence

OLD = ("8.5.2", "8.6.2")
NEW = ("10.3.0", "10.16.0", "11.1.0")
ALL = (*OLD, *NEW)
X = {"x": (1, 8, 16, 16)}


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def ints(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


def lowered(proto: onnx.ModelProto, version: str = "10.3.0") -> tuple[Layer, ...]:
    return lower(load(proto), tensorrt=Version.parse(version))


def kinds(proto: onnx.ModelProto, version: str = "10.3.0") -> str:
    """The kinds of the layers, in order, on one line."""
    return " ".join(layer.kind.value for layer in lowered(proto, version))


def only(proto: onnx.ModelProto, kind: LayerKind, version: str = "10.3.0") -> Layer:
    """The one layer of the kind."""
    (found,) = [layer for layer in lowered(proto, version) if layer.kind is kind]
    return found


def refusal(proto: onnx.ModelProto, version: str = "10.3.0") -> str:
    """Why the one layer is UNSUPPORTED."""
    layer = only(proto, LayerKind.UNSUPPORTED, version)
    assert set(layer.attributes) == set(ATTRIBUTES[LayerKind.UNSUPPORTED])
    return str(layer["reason"])


# --- one row a family: the kinds from that version on --------------------------------------------------------

W8 = {name: ones(8) for name in "abcd"}
FAMILIES: dict[str, tuple[onnx.ModelProto, dict[str, str]]] = {
    "Conv": (single("Conv", X, {"w": ones(4, 8, 3, 3), "b": ones(4)}), {"8.5": "CONVOLUTION"}),
    "Conv of 1-D": (
        single("Conv", {"x": (1, 8, 16)}, {"w": ones(4, 8, 3)}),
        {"8.5": "SHUFFLE CONVOLUTION SHUFFLE", "10.16": "CONSTANT UNSQUEEZE CONVOLUTION CONSTANT SQUEEZE"},
    ),
    "ConvTranspose": (single("ConvTranspose", X, {"w": ones(8, 4, 2, 2)}, strides=[2, 2]), {"8.5": "DECONVOLUTION"}),
    "Gemm": (
        single("Gemm", {"x": (2, 8)}, {"w": ones(4, 8), "b": ones(4)}, transB=1),
        {"8.5": "CONSTANT MATRIX_MULTIPLY CONSTANT SHUFFLE ELEMENTWISE"},
    ),
    "Gemm without C": (single("Gemm", {"x": (2, 8)}, {"w": ones(8, 4)}), {"8.5": "CONSTANT MATRIX_MULTIPLY"}),
    "Gemm with alpha and beta": (
        single("Gemm", {"x": (2, 8)}, {"w": ones(8, 4), "b": ones(1, 4)}, alpha=0.5, beta=2.0),
        {
            "8.5": "CONSTANT MATRIX_MULTIPLY CONSTANT SHUFFLE ELEMENTWISE CONSTANT CONSTANT SHUFFLE ELEMENTWISE"
            " ELEMENTWISE",
            "11.1": "CONSTANT MATRIX_MULTIPLY CONSTANT ELEMENTWISE CONSTANT CONSTANT ELEMENTWISE ELEMENTWISE",
        },
    ),
    "MatMul": (single("MatMul", {"x": (2, 4, 8)}, {"w": ones(8, 4)}), {"8.5": "CONSTANT SHUFFLE MATRIX_MULTIPLY"}),
    "BatchNormalization": (single("BatchNormalization", X, W8), {"8.5": "SCALE"}),
    "BatchNormalization of 3-D": (
        single("BatchNormalization", {"x": (1, 8, 16)}, W8),
        {"8.5": "SHUFFLE SCALE SHUFFLE", "10.16": "CONSTANT UNSQUEEZE SCALE SHUFFLE"},
    ),
    "Squeeze": (
        single("Squeeze", {"x": (1, 8, 1)}, {"a": ints(0)}),
        {"8.5": "SHUFFLE", "10.16": "CONSTANT SQUEEZE"},
    ),
    "Unsqueeze": (
        single("Unsqueeze", {"x": (8,)}, {"a": ints(0)}),
        {"8.5": "SHUFFLE", "10.16": "CONSTANT UNSQUEEZE"},
    ),
    "Reshape": (single("Reshape", X, {"s": ints(0, -1)}), {"8.5": "SHUFFLE"}),
    "Flatten": (single("Flatten", X), {"8.5": "SHUFFLE"}),
    "Flatten of a matrix": (single("Flatten", {"x": (2, 8)}), {"8.5": "IDENTITY"}),
    "Transpose": (single("Transpose", X, perm=[0, 2, 3, 1]), {"8.5": "SHUFFLE"}),
    "Expand": (single("Expand", {"x": (1, 8, 1, 1)}, {"s": ints(1, 8, 4, 4)}), {"8.5": "SLICE"}),
    "Tile": (single("Tile", X, {"r": ints(1, 1, 2, 2)}), {"8.5": "SLICE"}),
    "Split": (
        network([node("Split", ["x", "s"], ["a", "b"], axis=1)], X, ["a", "b"], {"s": ints(4, 4)}),
        {"8.5": "SLICE SLICE"},
    ),
    "Pad": (
        single("Pad", X, {"p": ints(0, 0, 1, 1, 0, 0, 1, 1)}),
        {"8.5": "CONSTANT CONSTANT CONSTANT ELEMENTWISE SLICE", "10.16": "SLICE"},
    ),
    "DepthToSpace": (single("DepthToSpace", X, blocksize=2), {"8.5": "SHUFFLE SHUFFLE"}),
    "SpaceToDepth": (single("SpaceToDepth", X, blocksize=2), {"8.5": "SHUFFLE SHUFFLE"}),
    "Clip": (single("Clip", X, {"l": np.float32(0), "h": np.float32(6)}), {"8.5": "ACTIVATION"}),
    "HardSwish": (single("HardSwish", X), {"8.5": "ACTIVATION ELEMENTWISE"}),
    "Gelu": (single("Gelu", X, opset=20), {"8.5": "UNSUPPORTED", "10.3": "ACTIVATION"}),
    "Mish": (single("Mish", X, opset=18), {"8.5": "UNSUPPORTED", "10.3": "ACTIVATION ACTIVATION ELEMENTWISE"}),
    "PRelu": (single("PRelu", X, {"s": ones(8, 1, 1)}), {"8.5": "CONSTANT SHUFFLE PARAMETRIC_RELU"}),
    "MaxPool": (single("MaxPool", X, kernel_shape=[2, 2]), {"8.5": "POOLING"}),
    "AveragePool of 1-D": (
        single("AveragePool", {"x": (1, 8, 16)}, kernel_shape=[2]),
        {"8.5": "SHUFFLE POOLING SHUFFLE", "10.16": "CONSTANT UNSQUEEZE POOLING CONSTANT SQUEEZE"},
    ),
    "GlobalAveragePool": (single("GlobalAveragePool", X), {"8.5": "REDUCE"}),
    "LRN": (single("LRN", X, size=3), {"8.5": "LRN"}),
    "Softmax before opset 13": (single("Softmax", X, opset=11), {"8.5": "SHUFFLE SOFTMAX SHUFFLE"}),
    "Softmax": (single("Softmax", X, opset=13, axis=1), {"8.5": "SOFTMAX SHUFFLE"}),
    "LogSoftmax": (single("LogSoftmax", {"x": (2, 8)}), {"8.5": "SOFTMAX UNARY SHUFFLE"}),
    "Hardmax": (
        single("Hardmax", {"x": (2, 8)}),
        {
            "8.5": "UNSUPPORTED",
            "10.3": "TOPK SHUFFLE CONSTANT SHAPE CAST SLICE SHUFFLE ONE_HOT CAST",
            "10.16": "TOPK CONSTANT SQUEEZE CONSTANT SHAPE CAST SLICE SHUFFLE ONE_HOT CAST",
        },
    ),
    "InstanceNormalization": (
        single("InstanceNormalization", X, {"s": ones(8), "b": ones(8)}),
        {
            "8.5": "PLUGIN",
            "10.3": "CONSTANT CONSTANT SHUFFLE SHUFFLE NORMALIZATION",
            "10.16": "CONSTANT CONSTANT CONSTANT UNSQUEEZE CONSTANT UNSQUEEZE NORMALIZATION",
        },
    ),
    "LayerNormalization": (
        single("LayerNormalization", X, {"s": ones(16), "b": ones(16)}),
        {
            "8.5": "UNSUPPORTED",
            "8.6": "CONSTANT CONSTANT SHUFFLE SHUFFLE NORMALIZATION",
            "10.3": "CONSTANT CONSTANT CONSTANT CONSTANT SHUFFLE SHUFFLE NORMALIZATION",
        },
    ),
    "GroupNormalization": (
        single("GroupNormalization", X, {"s": ones(2), "b": ones(2)}, num_groups=2, opset=18),
        {
            "8.5": "UNSUPPORTED",
            "8.6": "CONSTANT CONSTANT SHUFFLE SHUFFLE NORMALIZATION",
            "10.16": "CONSTANT CONSTANT CONSTANT UNSQUEEZE CONSTANT UNSQUEEZE NORMALIZATION",
        },
    ),
    "Add with broadcast": (single("Add", X, {"c": ones(8, 1, 1)}), {"8.5": "CONSTANT SHUFFLE ELEMENTWISE"}),
    "Sum of three": (
        network([node("Sum", ["x", "z", "u"], "y")], {"x": (2, 8), "z": (2, 8), "u": (2, 8)}, ["y"]),
        {"8.5": "ELEMENTWISE ELEMENTWISE"},
    ),
    "Mean": (
        network([node("Mean", ["x", "z"], "y")], {"x": (2, 8), "z": (2, 8)}, ["y"]),
        {"8.5": "ELEMENTWISE CONSTANT ELEMENTWISE"},
    ),
    "Pow with an integer": (
        single("Pow", X, {"c": np.asarray(2)}),
        {"8.5": "UNSUPPORTED", "10.16": "CAST CONSTANT CAST SHUFFLE ELEMENTWISE"},
    ),
    "GreaterOrEqual": (
        network([node("GreaterOrEqual", ["x", "z"], "y")], {"x": (2, 8), "z": (2, 8)}, ["y"]),
        {"8.5": "ELEMENTWISE ELEMENTWISE ELEMENTWISE"},
    ),
    "IsNaN": (single("IsNaN", X), {"8.5": "ELEMENTWISE UNARY", "10.3": "UNARY"}),
    "IsInf": (single("IsInf", X), {"8.5": "UNSUPPORTED", "8.6": "UNARY"}),
    "Cast": (single("Cast", X, to=10), {"8.5": "IDENTITY", "8.6": "CAST"}),
    "ReduceL2": (single("ReduceL2", X, opset=13, axes=[1]), {"8.5": "ELEMENTWISE REDUCE UNARY"}),
    "Gather": (
        single("Gather", X, {"i": ints(0, 1)}, axis=1),
        {"8.5": "CONSTANT GATHER", "10.3": "CONSTANT CAST GATHER"},
    ),
    "ScatterElements": (
        single("ScatterElements", {"x": (4, 4)}, {"i": np.zeros((1, 4), np.int64), "u": ones(1, 4)}),
        {
            "8.5": "CONSTANT CONSTANT SCATTER",
            "10.3": "CONSTANT CONSTANT CAST SCATTER",
            "11.1": "CONSTANT CONSTANT SCATTER",
        },
    ),
    "TopK": (
        single("TopK", {"x": (2, 8)}, {"k": ints(3)}, outputs=2),
        {
            "8.5": "TOPK",
            "8.6": "TOPK CONSTANT SHUFFLE",
            "10.3": "TOPK CONSTANT SHUFFLE CAST",
            "10.16": "TOPK CONSTANT SHUFFLE",
        },
    ),
    "ArgMax": (
        single("ArgMax", {"x": (2, 8)}, axis=1, keepdims=0),
        {"8.5": "TOPK SHUFFLE", "10.3": "TOPK CAST SHUFFLE CAST", "10.16": "TOPK CAST CONSTANT SQUEEZE CAST"},
    ),
    "Resize": (single("Resize", X, {"r": ones(0), "s": np.asarray([1, 1, 2, 2], np.float32)}), {"8.5": "RESIZE"}),
    "GridSample": (
        network([node("GridSample", ["x", "g"], "y")], {**X, "g": (1, 4, 4, 2)}, ["y"]),
        {"8.5": "GRID_SAMPLE"},
    ),
    "NonMaxSuppression": (
        network(
            [node("NonMaxSuppression", ["b", "s", "m", "i"], "y")],
            {"b": (1, 6, 4), "s": (1, 2, 6)},
            ["y"],
            {"m": ints(3), "i": np.asarray([0.5], np.float32)},
        ),
        {
            "8.5": "CONSTANT CONSTANT SHUFFLE NMS",
            "10.3": "CONSTANT CONSTANT ELEMENTWISE CAST CONSTANT SHUFFLE NMS CAST",
            "10.16": "CONSTANT CONSTANT ELEMENTWISE CAST CONSTANT SHUFFLE NMS",
        },
    ),
    "QuantizeLinear and DequantizeLinear": (
        network(
            [node("QuantizeLinear", ["x", "s", "z"], "q"), node("DequantizeLinear", ["q", "s", "z"], "y")],
            X,
            ["y"],
            {"s": np.float32(0.1), "z": np.int8(0)},
        ),
        {"8.5": "CONSTANT CONSTANT QUANTIZE DEQUANTIZE", "10.3": "CONSTANT CONSTANT QUANTIZE CONSTANT DEQUANTIZE"},
    ),
    "Einsum": (
        network([node("Einsum", ["x", "z"], "y", equation="ij,jk->ik")], {"x": (2, 3), "z": (3, 4)}, ["y"]),
        {"8.5": "EINSUM"},
    ),
    "Dropout": (single("Dropout", X), {"8.5": "IDENTITY"}),
    "Identity": (single("Identity", X), {"8.5": "IDENTITY"}),
    "RandomNormal": (network([node("RandomNormal", [], "y", shape=[2, 3])], {}, ["y"]), {"8.5": "FILL"}),
    "OneHot": (
        single("OneHot", {"x": ((2,), np.int64)}, {"d": ints(3), "v": np.asarray([0, 1], np.float32)}),
        {"8.5": "CONSTANT CONSTANT SHUFFLE ONE_HOT", "10.3": "CONSTANT CAST CONSTANT CAST SHUFFLE ONE_HOT"},
    ),
    "CumSum in a layer": (
        single("CumSum", {"x": (2, 8)}, {"a": np.asarray(1)}),
        {"10.16": "CONSTANT CUMULATIVE"},
    ),
    "Swish": (
        single("Swish", X, opset=24),
        {"8.5": "UNSUPPORTED", "11.1": "CONSTANT CAST SHUFFLE ELEMENTWISE ACTIVATION ELEMENTWISE"},
    ),
}


@pytest.mark.parametrize(("name", "version"), [(name, version) for name in FAMILIES for version in ALL])
def test_what_the_parser_makes_of_it(name: str, version: str) -> None:
    proto, rows = FAMILIES[name]
    wanted = None
    for since, text in rows.items():
        if Version.parse(version) >= Version.parse(since):
            wanted = text
    if wanted is None:
        pytest.skip("the family is about later versions")
    assert kinds(proto, version) == wanted


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_layer_has_the_attributes_that_rules_read(name: str, version: str) -> None:
    for layer in lowered(FAMILIES[name][0], version):
        wanted = set(ATTRIBUTES.get(layer.kind, ()))
        if layer.kind is LayerKind.IDENTITY:
            wanted = set()
        assert wanted <= set(layer.attributes), layer


# --- attributes ----------------------------------------------------------------------------------------------


def test_a_convolution_in_full() -> None:
    weights = {"w": ones(4, 4, 3, 5), "b": ones(4)}
    proto = single("Conv", X, weights, strides=[2, 1], dilations=[1, 2], pads=[1, 2, 0, 3], group=2)
    layer = only(proto, LayerKind.CONVOLUTION)
    assert layer["kernel"] == (3, 5)
    assert layer["stride"] == (2, 1)
    assert layer["dilation"] == (1, 2)
    assert layer["pre_padding"] == (1, 2)
    assert layer["post_padding"] == (0, 3)
    assert layer["groups"] == 2
    assert layer["output_maps"] == 4
    assert layer["has_bias"]
    assert layer["constant_kernel"]
    assert layer["weight_values"] == 4 * 4 * 3 * 5
    assert layer.outputs[0].shape == (1, 4, 8, 13)
    assert [tensor.name for tensor in layer.inputs] == ["x"]


@pytest.mark.parametrize(("mode", "before", "after"), [("SAME_UPPER", (0, 0), (1, 1)), ("SAME_LOWER", (1, 1), (0, 0))])
def test_automatic_padding_is_worked_out(mode: str, before: tuple[int, int], after: tuple[int, int]) -> None:
    layer = only(single("Conv", X, {"w": ones(4, 8, 3, 3)}, strides=[2, 2], auto_pad=mode), LayerKind.CONVOLUTION)
    assert layer["padding_mode"] == mode
    assert (layer["pre_padding"], layer["post_padding"]) == (before, after)
    assert layer.outputs[0].shape == (1, 4, 8, 8)


def test_a_kernel_that_is_computed_is_an_input() -> None:
    proto = network([node("Conv", ["x", "w"], "y")], {**X, "w": (4, 8, 3, 3)}, ["y"])
    layer = only(proto, LayerKind.CONVOLUTION)
    assert not layer["constant_kernel"]
    assert layer["weight_values"] == 0
    assert [tensor.name for tensor in layer.inputs] == ["x", "w"]


def test_a_deconvolution_in_full() -> None:
    proto = single("ConvTranspose", X, {"w": ones(8, 2, 4, 4)}, strides=[2, 2], pads=[1, 1, 1, 1], group=2)
    layer = only(proto, LayerKind.DECONVOLUTION)
    assert layer["kernel"] == (4, 4)
    assert layer["groups"] == 2
    assert layer["output_maps"] == 4
    assert layer.outputs[0].shape == (1, 4, 32, 32)


@pytest.mark.parametrize("ceil", [0, 1])
def test_a_pool_in_full(ceil: int) -> None:
    attributes: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 0, 0], "ceil_mode": ceil}
    layer = only(single("AveragePool", X, count_include_pad=1, **attributes), LayerKind.POOLING)
    assert layer["type"] == "AVERAGE"
    assert layer["window"] == (3, 3)
    assert layer["stride"] == (2, 2)
    assert not layer["exclusive"]
    assert layer["round_up"] == bool(ceil)
    assert layer.outputs[0].shape == ((1, 8, 8, 8) if ceil else (1, 8, 7, 7))


@pytest.mark.parametrize(
    ("op_type", "attributes", "wanted"),
    [
        ("Relu", {}, ("RELU", 0.0, 0.0)),
        ("LeakyRelu", {"alpha": 0.2}, ("LEAKY_RELU", 0.2, 0.0)),
        ("LeakyRelu", {}, ("LEAKY_RELU", 0.01, 0.0)),
        ("Elu", {"alpha": 2.0}, ("ELU", 2.0, 0.0)),
        ("HardSigmoid", {}, ("HARD_SIGMOID", 0.2, 0.5)),
        ("ThresholdedRelu", {"alpha": 3.0}, ("THRESHOLDED_RELU", 3.0, 0.0)),
        ("Sigmoid", {}, ("SIGMOID", 0.0, 0.0)),
        ("Tanh", {}, ("TANH", 0.0, 0.0)),
        ("Softsign", {}, ("SOFTSIGN", 0.0, 0.0)),
    ],
)
def test_activations(op_type: str, attributes: dict[str, float], wanted: tuple[str, float, float]) -> None:
    layer = only(single(op_type, X, **attributes), LayerKind.ACTIVATION)
    assert layer["type"] == wanted[0]
    assert (layer["alpha"], layer["beta"]) == pytest.approx(wanted[1:], rel=1e-6)


@pytest.mark.parametrize("version", ALL)
def test_relu6_is_a_clip(version: str) -> None:
    proto = single("Clip", X, {"l": np.float32(0), "h": np.float32(6)})
    layer = only(proto, LayerKind.ACTIVATION, version)
    assert (layer["type"], layer["alpha"], layer["beta"]) == ("CLIP", 0.0, 6.0)


def test_a_clip_with_computed_bounds_is_elementwise() -> None:
    proto = network([node("Clip", ["x", "l"], "y")], {**X, "l": ()}, ["y"])
    assert kinds(proto) == "CONSTANT SHUFFLE SHUFFLE ELEMENTWISE ELEMENTWISE"


def test_softmax_axis() -> None:
    assert only(single("Softmax", X, opset=13, axis=-3), LayerKind.SOFTMAX)["axis"] == 1
    old = only(single("Softmax", X, opset=11, axis=1), LayerKind.SOFTMAX)
    assert old["axis"] == 1
    assert old.inputs[0].shape == (1, 8 * 16 * 16)


def test_reduce_axes() -> None:
    layer = only(single("ReduceMean", X, opset=13, axes=[-1, -2], keepdims=0), LayerKind.REDUCE)
    assert (layer["op"], layer["axes"], layer["keep_dims"]) == ("AVG", (2, 3), False)
    assert layer.outputs[0].shape == (1, 8)


def test_a_transpose_of_ones_is_a_reshape_before_tensorrt_9() -> None:
    proto = single("Transpose", {"x": (1, 8, 1, 1)}, perm=[0, 2, 3, 1])
    old, new = only(proto, LayerKind.SHUFFLE, "8.6.2"), only(proto, LayerKind.SHUFFLE, "10.3.0")
    assert old["first_transpose"] is None
    assert old["reshape"] == (1, 1, 1, 8)
    assert new["first_transpose"] == (0, 2, 3, 1)
    assert new["reshape"] is None


def test_a_slice_in_numbers() -> None:
    proto = single("Slice", X, {"s": ints(-4), "e": ints(2**62), "a": ints(1), "t": ints(2)})
    old = only(proto, LayerKind.SLICE, "8.6.2")
    assert (old["start"], old["size"], old["stride"]) == ((0, 4, 0, 0), (1, 2, 16, 16), (1, 2, 1, 1))
    new = next(layer for layer in lowered(proto) if layer.kind is LayerKind.SLICE)
    assert (new["start"], new["size"], new["stride"], new["axes"]) == ((4,), (2,), (2,), (1,))
    assert new.outputs[0].shape == (1, 2, 16, 16)


def test_what_a_slice_computes_at_build_time_runs_nowhere() -> None:
    layers = lowered(single("Slice", X, {"s": ints(0), "e": ints(4), "a": ints(1)}))
    assert [layer.kind.value for layer in layers if not layer.is_constant] == ["SLICE"]


def test_pads() -> None:
    proto = single("Pad", X, {"p": ints(0, 0, 1, 2, 0, 0, 3, 4), "v": np.float32(1.5)})
    layer = only(proto, LayerKind.SLICE, "8.6.2")
    assert (layer["mode"], layer["fill_value"]) == ("FILL", 1.5)
    assert layer["start"] == (0, 0, -1, -2)
    assert layer["size"] == (1, 8, 20, 22)
    edge = only(single("Pad", X, {"p": ints(0, 0, 1, 1, 0, 0, 1, 1)}, mode="edge"), LayerKind.SLICE)
    assert edge["mode"] == "CLAMP"


def test_resize_settings() -> None:
    scales = np.asarray([1, 1, 2, 2], np.float32)
    layer = only(single("Resize", X, {"r": ones(0), "s": scales}, mode="linear"), LayerKind.RESIZE)
    assert layer["mode"] == "LINEAR"
    assert layer["coordinate_transformation"] == "HALF_PIXEL"
    assert layer["scales"] == (1.0, 1.0, 2.0, 2.0)
    assert not layer["by_sizes"]
    nearest = single("Resize", X, {"s": scales}, opset=10, mode="nearest")
    assert only(nearest, LayerKind.RESIZE)["coordinate_transformation"] == "ASYMMETRIC"
    assert only(nearest, LayerKind.RESIZE)["rounding"] == "FLOOR"


def test_quantization_gives_int8() -> None:
    proto = FAMILIES["QuantizeLinear and DequantizeLinear"][0]
    layer = only(proto, LayerKind.QUANTIZE)
    assert layer.outputs[0].dtype is DType.INT8
    assert not layer["zero_point"]
    assert layer["axis"] == 1
    assert only(proto, LayerKind.DEQUANTIZE).outputs[0].dtype is DType.FP32


def test_asymmetric_quantization_is_refused() -> None:
    quantize = node("QuantizeLinear", ["x", "s", "z"], "y")
    proto = network([quantize], X, ["y"], {"s": np.float32(0.1), "z": np.int8(3)})
    assert "symmetric" in refusal(proto)


def test_quantized_weights_keep_their_channels() -> None:
    nodes = [node("DequantizeLinear", ["w", "s", "z"], "d", axis=0), node("Conv", ["x", "d"], "y")]
    constants = {"w": np.ones((4, 8, 1, 1), np.int8), "s": np.full(4, 0.1, np.float32), "z": np.zeros(4, np.int8)}
    proto = network(nodes, X, ["y"], constants)
    for version in ALL:
        layers = lowered(proto, version)
        assert layers[-1].kind is LayerKind.CONVOLUTION
        assert not any(layer.kind is LayerKind.UNSUPPORTED for layer in layers)


# --- types ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "dtype"), [("8.6.2", DType.INT32), ("10.3.0", DType.INT64)])
def test_int64_is_int32_before_tensorrt_9(version: str, dtype: DType) -> None:
    layer = only(single("Identity", {"x": ((2, 3), np.int64)}), LayerKind.IDENTITY, version)
    assert layer.inputs[0].dtype is dtype


def test_an_input_of_a_type_that_tensorrt_lacks() -> None:
    assert "no element type" in lowered(single("Identity", {"x": ((2, 3), np.uint32)}))[0]["reason"]


def test_uint8_is_for_the_edges_of_a_network() -> None:
    assert "UINT8" in refusal(single("Add", {"x": ((2, 3), np.uint8), "z": ((2, 3), np.uint8)}))
    assert kinds(single("Cast", {"x": ((2, 3), np.uint8)}, to=1)) == "CAST"


# --- plugins and refusals ------------------------------------------------------------------------------------


def test_a_custom_operator_is_a_plugin() -> None:
    layer = only(single("DCNv4_Plugin", X, domain="trt"), LayerKind.PLUGIN)
    assert (layer["op_type"], layer["domain"]) == ("DCNv4_Plugin", "trt")
    assert layer.nodes == ("DCNv4_Plugin_y",)


def test_a_plugin_of_nvidias_library_needs_no_domain() -> None:
    nms = helper.make_node("EfficientNMS_TRT", ["x"], ["y"], name="nms")
    proto = network([nms], {"x": (1, 8, 4)}, {"y": (1, 8)})
    assert kinds(proto) == "PLUGIN"


def test_the_parser_goes_by_name_not_by_domain() -> None:
    assert kinds(single("Relu", X, domain="somewhere")) == "ACTIVATION"


@pytest.mark.parametrize("version", ALL)
def test_an_unknown_operator_is_refused_with_reason(version: str) -> None:
    proto = single("Det", {"x": (2, 2)})
    assert "no importer and no plugin" in refusal(proto, version)
    layer = only(proto, LayerKind.UNSUPPORTED, version)
    assert (layer["op_type"], layer["domain"], layer["certain"]) == ("Det", "", True)


def test_a_refused_node_leaves_no_layers_behind() -> None:
    proto = network([node("MaxPool", ["x"], "y", kernel_shape=[2], dilations=[2])], {"x": (1, 8, 16)}, ["y"])
    assert kinds(proto) == "UNSUPPORTED"


def test_what_onnx_deprecates_is_taken_all_the_same() -> None:
    proto = FAMILIES["GroupNormalization"][0]
    model = load(proto)
    assert any("deprecated" in (model.defect(item) or "") for item in model.graph)
    assert kinds(proto).endswith("NORMALIZATION")


def test_reverse_sequence_is_slices_before_8_6() -> None:
    sizes = {"x": (4, 2, 3), "n": ((2,), np.int64)}
    proto = network([node("ReverseSequence", ["x", "n"], "y")], sizes, ["y"])
    layers = lowered(proto, "8.5.2")
    runs = [layer.kind.value for layer in layers if not layer.is_constant]
    assert runs.count("SLICE") == 2 * 4
    assert runs.count("CONCATENATION") > 2
    assert layers[-1].outputs[0].shape == (4, 2, 3)
    assert kinds(proto, "8.6.2") == "REVERSE_SEQUENCE"


def test_a_range_of_vectors_is_taken() -> None:
    values = {"a": ints(0), "b": ints(5), "c": ints(1)}
    proto = network(
        [node("Range", ["a", "b", "c"], "r"), node("Add", ["r", "x"], "y")], {"x": ((5,), np.int64)}, ["y"], values
    )
    for version in ALL:
        assert "UNSUPPORTED" not in kinds(proto, version)


# --- names ---------------------------------------------------------------------------------------------------


def test_layers_are_named_after_their_nodes() -> None:
    layers = lowered(small_cnn())
    assert layers[0].name == "Conv_c1"
    assert layers[0].nodes == ("Conv_c1",)


def test_an_unnamed_node_shows_its_operator_and_output() -> None:
    proto = network([helper.make_node("Relu", ["x"], ["y"])], X, ["y"])
    (layer,) = lowered(proto)
    assert layer.nodes == ("Relu:y",)
    assert layer.name == "node_of_y"


def test_indices_and_tensors_are_consistent() -> None:
    for name in LIGHT:
        layers = lower(load(light_path(name)), tensorrt=Version.parse("10.3.0"))
        assert [layer.index for layer in layers] == list(range(len(layers)))
        outputs = [tensor.name for layer in layers for tensor in layer.outputs]
        assert len(set(outputs)) == len(outputs)
        assert all(layer.nodes for layer in layers if layer.kind is not LayerKind.CONSTANT)


def test_an_output_that_is_a_constant_is_a_layer() -> None:
    proto = network([node("Relu", ["x"], "y")], X, ["y", "c"], {"c": ones(2)})
    raw = Model(ir.from_proto(onnx.shape_inference.infer_shapes(proto)), "x")
    layers = lower(raw, tensorrt=Version.parse("10.3.0"))
    assert [layer.kind.value for layer in layers] == ["ACTIVATION", "CONSTANT"]


# --- subgraphs -----------------------------------------------------------------------------------------------


def branch(name: str, nodes: Sequence[onnx.NodeProto], output: str) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, [], [helper.make_tensor_value_info(output, 1, (2, 3))])


def test_an_if_brings_what_its_branches_take_from_outside() -> None:
    yes = branch("yes", [node("Relu", ["x"], "a")], "a")
    no = branch("no", [node("Abs", ["x"], "b")], "b")
    choice = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=yes, else_branch=no)
    proto = network([choice], {"c": ((), np.bool_), "x": (2, 3)}, {"y": (2, 3)})
    layers = lowered(proto)
    assert [layer.kind.value for layer in layers] == [
        "CONDITION",
        "ACTIVATION",
        "UNARY",
        "CONDITIONAL_INPUT",
        "CONDITIONAL_OUTPUT",
    ]
    inside = layers[3].outputs[0].name
    assert layers[1].inputs[0].name == inside
    assert layers[2].inputs[0].name == inside
    assert layers[4].outputs[0].name == "y"


def test_a_loop() -> None:
    body = helper.make_graph(
        [node("Identity", ["go"], "go_on"), node("Add", ["s", "s"], "t")],
        "body",
        [
            helper.make_tensor_value_info("i", 7, ()),
            helper.make_tensor_value_info("go", 9, ()),
            helper.make_tensor_value_info("s", 1, (2, 3)),
        ],
        [helper.make_tensor_value_info("go_on", 9, ()), helper.make_tensor_value_info("t", 1, (2, 3))],
    )
    turn = helper.make_node("Loop", ["m", "", "x"], ["y"], name="turn", body=body)
    proto = network([turn], {"m": ((), np.int64), "x": (2, 3)}, {"y": (2, 3)})
    text = kinds(proto)
    assert text.startswith("CAST TRIP_LIMIT CONSTANT CONSTANT RECURRENCE ELEMENTWISE SHUFFLE RECURRENCE")
    assert text.endswith("ELEMENTWISE LOOP_OUTPUT")
    assert kinds(proto, "8.6.2").startswith("TRIP_LIMIT CONSTANT CONSTANT RECURRENCE ELEMENTWISE RECURRENCE")


@pytest.mark.parametrize(("version", "outputs"), [("8.6.2", 3), ("10.3.0", 3), ("10.16.0", 1)])
def test_an_lstm_gives_all_its_outputs_before_10_6(version: str, outputs: int) -> None:
    proto = single("LSTM", {"x": (5, 1, 3)}, {"w": ones(1, 8, 3), "r": ones(1, 8, 2)}, hidden_size=2)
    layers = lowered(proto, version)
    assert sum(layer.kind is LayerKind.LOOP_OUTPUT for layer in layers) == outputs
    assert sum(layer.kind is LayerKind.RECURRENCE for layer in layers) == 2


@pytest.mark.parametrize("op_type", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_cells_in_every_direction(op_type: str, direction: str) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op_type]
    count = 2 if direction == "bidirectional" else 1
    weights = {"w": ones(count, gates * 2, 3), "r": ones(count, gates * 2, 2), "b": ones(count, gates * 4)}
    proto = single(op_type, {"x": (5, 1, 3)}, weights, hidden_size=2, direction=direction)
    for version in ALL:
        layers = lowered(proto, version)
        assert not any(layer.kind is LayerKind.UNSUPPORTED for layer in layers)
        (result,) = [tensor for layer in layers for tensor in layer.outputs if tensor.name == "y"]
        assert result.shape == (5, count, 1, 2)


# --- the table -----------------------------------------------------------------------------------------------


def test_every_operator_that_a_parser_takes_is_lowered() -> None:
    """Constant never reaches the table."""
    for version in ALL:
        assert parser_of(Version.parse(version)).operators - set(TABLE) == {"Constant"}, version


def test_parsers_only_learn() -> None:
    parsers = [parser_of(Version.parse(version)) for version in ALL]
    for old, new in pairwise(parsers):
        assert old.operators <= new.operators
        assert old.changes <= new.changes


def test_an_unknown_change_is_a_defect() -> None:
    with pytest.raises(KeyError):
        parser_of(Version.parse("10.3.0")).has("no such change")


def test_every_entry_of_the_data_names_its_source() -> None:
    from importlib.resources import files

    from orinport.toml import read_toml

    data = read_toml(files("orinport.targets") / "data" / "parser.toml")
    for entry in [*data["operators"], *data["changes"].values()]:
        assert entry["source"] in data["sources"]
        Version.parse(entry["since"])
    assert all(entry["says"] for entry in data["changes"].values())
    assert all(entry["source"] and entry["names"] for entry in data["plugins"])


# --- speed and imports ---------------------------------------------------------------------------------------


def _seconds(count: int) -> float:
    model = load(thin_network(count))
    best = 9.0
    for _ in range(3):
        begin = process_time()
        layers = lower(model, tensorrt=Version.parse("10.3.0"))
        best = min(best, process_time() - begin)
    assert len(layers) >= count
    return best


@pytest.mark.slow
def test_twenty_thousand_nodes_are_quick() -> None:
    assert _seconds(20_000) < 0.7  # 0.35 s on an idle machine


def test_time_grows_with_the_network_and_no_faster() -> None:
    assert _seconds(6000) < 12 * _seconds(1000) + 0.05


def test_no_heavy_library_is_loaded() -> None:
    code = (
        "import sys, orinport.model.lower.lower\n"
        "bad = {'torch', 'onnxruntime', 'onnxscript', 'tensorrt_rtx'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- anything goes -------------------------------------------------------------------------------------------


@given(
    op_type=st.sampled_from(sorted(TABLE)),
    shapes=st.lists(st.lists(st.integers(0, 4), max_size=5).map(tuple), min_size=1, max_size=4),
    version=st.sampled_from(ALL),
    opset=st.sampled_from([7, 9, 10, 11, 13, 17, 18, 20, 21]),
    outputs=st.integers(1, 3),
)
def test_no_node_makes_it_fail(
    op_type: str, shapes: list[tuple[int, ...]], version: str, opset: int, outputs: int
) -> None:
    """Whatever a node is given, the answer is layers: in the worst case one that says why not."""
    names = [f"x{i}" for i in range(len(shapes))]
    call = node(op_type, names, [f"y{i}" for i in range(outputs)], name="it")
    proto = network([call], dict(zip(names, shapes, strict=True)), [], opset=opset)
    layers = lower(Model(ir.from_proto(proto), "x"), tensorrt=Version.parse(version))
    assert all(isinstance(layer, Layer) for layer in layers)


_ANY_ATTRIBUTE: dict[str, list[Any]] = {
    "axis": [-1, 0, 1, 5, -7],
    "axes": [[0], [1, -1], [9]],
    "auto_pad": ["SAME_UPPER", "X"],
    "blocksize": [2, 0],
    "ceil_mode": [1],
    "dilations": [[2, 2]],
    "direction": ["reverse", "bidirectional", "up"],
    "dtype": [1, 7, 99],
    "ends": [[1]],
    "equation": ["ij,jk->ik", "...", "i->i"],
    "exclusive": [1],
    "group": [1, 2, 0],
    "hidden_size": [2, 0],
    "kernel_shape": [[2], [3, 3], [2, 2, 2]],
    "keepdims": [0],
    "largest": [0],
    "mode": ["linear", "constant", "nearest", "x"],
    "num_groups": [2, 0],
    "num_scan_inputs": [1],
    "output_padding": [[1, 1]],
    "output_shape": [[4, 4]],
    "pads": [[1, 1, 1, 1], [0, 0], [1]],
    "perm": [[1, 0], [0, 1, 2], [5]],
    "reverse": [1],
    "scales": [[1.0, 2.0]],
    "select_last_index": [1],
    "shape": [[2, 2]],
    "size": [3],
    "split": [[1, 1]],
    "starts": [[0]],
    "strides": [[1, 1], [2], [0]],
    "to": [1, 7, 99, 10],
}
_ANY_TYPE = (np.float32, np.float32, np.int64, np.int32, np.bool_, np.float16, np.int8, np.uint8)


def any_node(seed: int) -> onnx.ModelProto:
    """A model of one operator with inputs, constants and attributes that may fit or not."""
    random = np.random.default_rng(seed)

    def pick(choices: Sequence[Any]) -> Any:
        return choices[int(random.integers(len(choices)))]

    inputs: dict[str, Any] = {}
    constants: dict[str, np.ndarray] = {}
    names = []
    for index in range(int(random.integers(6))):
        name = "" if random.random() < 0.1 else f"x{index}"
        names.append(name)
        shape = tuple(int(size) for size in random.integers(0, 5, int(random.integers(6))))
        dtype = pick(_ANY_TYPE)
        if name and random.random() < 0.4:
            constants[name] = random.integers(-2, 5, shape).astype(dtype)
        elif name:
            inputs[name] = None if random.random() < 0.1 else (shape, dtype)
    attributes = {name: pick(values) for name, values in _ANY_ATTRIBUTE.items() if random.random() < 0.12}
    outputs = [f"y{index}" for index in range(1 + int(random.integers(3)))]
    call = helper.make_node(pick(sorted(TABLE)), names, outputs, name="it", **attributes)
    return network([call], inputs, [], constants, opset=pick([7, 8, 9, 10, 11, 13, 17, 18, 20, 21, 23]))


def _survives(seeds: range) -> int:
    count = 0
    for seed in seeds:
        model = Model(ir.from_proto(any_node(seed)), f"seed {seed}")
        for version in ALL:
            layers = list(lower(model, tensorrt=Version.parse(version)))
            assert all(isinstance(layer, Layer) for layer in layers)
            count += len(layers)
    return count


def test_any_node_at_all() -> None:
    assert _survives(range(1500)) >= 1500


@pytest.mark.slow
def test_many_nodes_of_any_kind() -> None:
    assert _survives(range(1500, 30_000)) >= 28_500
