"""Blocks of real networks, with the whole catalogue as `prepare` uses it: every layer goes to the DLA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.checking import as_precision, as_target, check_model
from orinport.model.load import load
from orinport.pipeline import rewrite_for
from orinport.rewrites.proof import compare_models
from orinport.rewrites.rewrite import Safety

if TYPE_CHECKING:
    import onnx

RNG = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return RNG.normal(0, 0.2, shape).astype(np.float32)


def attention(tokens: int = 64, width: int = 64, heads: int = 4) -> onnx.ModelProto:
    """Multi-head attention as PyTorch exports it: MatMul, Add, Reshape, Transpose, Softmax."""
    each = width // heads
    constants: dict[str, Any] = {
        "heads": np.asarray([1, tokens, heads, each], np.int64),
        "joined": np.asarray([1, tokens, width], np.int64),
        "scale": np.float32(each**-0.5),
    }
    nodes = []
    for name in "qkv":
        constants |= {f"w{name}": weights(width, width), f"b{name}": weights(width)}
        nodes += [
            node("MatMul", ["x", f"w{name}"], f"{name}0"),
            node("Add", [f"b{name}", f"{name}0"], f"{name}1"),
            node("Reshape", [f"{name}1", "heads"], f"{name}2"),
            node("Transpose", [f"{name}2"], name, perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]),
        ]
    constants |= {"wo": weights(width, width), "bo": weights(width)}
    nodes += [
        node("MatMul", ["q", "k"], "s0"),
        node("Mul", ["s0", "scale"], "s1"),
        node("Softmax", ["s1"], "s2", axis=-1),
        node("MatMul", ["s2", "v"], "o0"),
        node("Transpose", ["o0"], "o1", perm=[0, 2, 1, 3]),
        node("Reshape", ["o1", "joined"], "o2"),
        node("MatMul", ["o2", "wo"], "o3"),
        node("Add", ["o3", "bo"], "y"),
    ]
    return network(nodes, {"x": (1, tokens, width)}, ["y"], constants)


def decoder() -> onnx.ModelProto:
    """A step of a U-Net: strided convolution, squeeze-and-excite, upsampling by deconvolution, concatenation."""
    constants = {
        "w1": weights(16, 8, 3, 3),
        "w2": weights(16, 16, 1, 1),
        "w3": weights(16, 8, 3, 3),
        "w4": weights(4, 16, 1, 1),
    }
    up = {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}
    nodes = [
        node("Conv", ["x", "w1"], "c1", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], "r1"),
        node("GlobalAveragePool", ["r1"], "g"),
        node("Conv", ["g", "w2"], "e"),
        node("Sigmoid", ["e"], "s"),
        node("Mul", ["r1", "s"], "m"),
        node("ConvTranspose", ["m", "w3"], "u", **up),
        node("Concat", ["x", "u"], "j", axis=1),
        node("Conv", ["j", "w4"], "y"),
    ]
    return network(nodes, {"x": (1, 8, 32, 32)}, ["y"], constants)


def pyramid() -> onnx.ModelProto:
    """Spatial pyramid pooling of YOLO."""
    nodes = [node("MaxPool", ["x"], f"p{size}", kernel_shape=[size] * 2, pads=[size // 2] * 4) for size in (5, 9, 13)]
    nodes += [node("Concat", ["x", "p5", "p9", "p13"], "j", axis=1), node("Conv", ["j", "w"], "y")]
    return network(nodes, {"x": (1, 16, 20, 20)}, ["y"], {"w": weights(16, 64, 1, 1)})


def sequence() -> onnx.ModelProto:
    """Dilated one-dimensional convolutions over a signal, and a classifier."""
    constants = {"w1": weights(16, 8, 5), "w2": weights(16, 1, 3), "w3": weights(16, 10), "b3": weights(10)}
    nodes = [
        node("Conv", ["x", "w1"], "c1", pads=[2, 2]),
        node("Relu", ["c1"], "r1"),
        node("MaxPool", ["r1"], "p1", kernel_shape=[2], strides=[2]),
        node("Conv", ["p1", "w2"], "c2", pads=[2, 2], dilations=[2], group=16),
        node("ReduceMean", ["c2"], "m", axes=[2], keepdims=0),
        node("Gemm", ["m", "w3", "b3"], "y"),
    ]
    return network(nodes, {"x": (1, 8, 128)}, ["y"], constants)


def patches() -> onnx.ModelProto:
    """The patch embedding of a vision transformer."""
    nodes = [
        node("Conv", ["x", "w"], "c", strides=[16, 16]),
        node("Reshape", ["c", "tokens"], "t"),
        node("Transpose", ["t"], "u", perm=[0, 2, 1]),
        node("MatMul", ["u", "v"], "y"),
    ]
    constants: dict[str, Any] = {"w": weights(32, 3, 16, 16), "v": weights(32, 32)}
    constants["tokens"] = np.asarray([1, 32, 16], np.int64)
    return network(nodes, {"x": (1, 3, 64, 64)}, ["y"], constants)


def c2f() -> onnx.ModelProto:
    """A block of YOLOv8: SiLU, a split of the channels, a bottleneck with a residual addition, concatenation."""

    def silu(source: str, result: str) -> list[onnx.NodeProto]:
        return [node("Sigmoid", [source], f"{result}s"), node("Mul", [source, f"{result}s"], result)]

    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", ["x", "w1"], "c1"),
        *silu("c1", "a"),
        node("Split", ["a", "halves"], ["l", "r"], axis=1),
        node("Conv", ["r", "w2"], "c2", **pads),
        *silu("c2", "b"),
        node("Add", ["r", "b"], "d"),
        node("Concat", ["l", "r", "d"], "j", axis=1),
        node("Conv", ["j", "w3"], "c3"),
        *silu("c3", "y"),
    ]
    constants: dict[str, Any] = {"w1": weights(32, 16, 1, 1), "w2": weights(16, 16, 3, 3), "w3": weights(32, 48, 1, 1)}
    constants["halves"] = np.asarray([16, 16], np.int64)
    return network(nodes, {"x": (1, 16, 20, 20)}, ["y"], constants)


@pytest.mark.parametrize(
    ("proto", "precision", "consent"),
    [
        (attention(), "fp16", [Safety.EXACT]),
        (decoder(), "fp16", [Safety.EXACT]),
        (decoder(), "int8", [Safety.EXACT]),
        (pyramid(), "fp16", [Safety.EXACT]),
        (pyramid(), "int8", [Safety.EXACT]),
        (sequence(), "fp16", [Safety.EXACT]),
        (sequence(), "int8", [Safety.EXACT]),
        (patches(), "fp16", [Safety.EXACT]),
        (c2f(), "fp16", [Safety.EXACT]),
        (c2f(), "int8", [Safety.EXACT]),
    ],
    ids=[
        "attention",
        "decoder",
        "decoder-int8",
        "pyramid",
        "pyramid-int8",
        "sequence",
        "sequence-int8",
        "patches",
        "c2f",
        "c2f-int8",
    ],
)
def test_every_layer_is_taken(proto: onnx.ModelProto, precision: str, consent: list[Safety]) -> None:
    target = as_target("orin-agx-64gb/jp6.0")
    model = load(proto)
    rewritten, log, edges = rewrite_for(model, target, as_precision(precision), consent=consent)
    assert not log.rolled_back
    report = check_model(rewritten, target, as_precision(precision))
    assert {row.layer.name: row.codes for row in report.layers if row.verdict.value != "dla"} == {}
    assert compare_models(model, rewritten, edges).equal
