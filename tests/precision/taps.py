"""The operator of tap.c on memory, and networks that try it."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import numpy as np
import onnx
from hypothesis import strategies as st

from builders import network, node
from orinport.compiled import Compilation
from orinport.precision import tap
from orinport.precision.histogram import Histogram
from orinport.precision.tap import Tapping, Taps, tapping

FLOATS = st.one_of(
    st.floats(-100, 100, width=32),
    st.sampled_from([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-45, -1e-42, 3e38, -(2.0**-110)]),
)


@lru_cache(maxsize=1)
def portable() -> Tapping:
    """The operator compiled for any processor of this kind, without what only some of them have."""
    plain = Compilation("tap-plain", "calibration", tap._TAP.sources, tap._TAP.flag_sets[-1:], Tapping)
    return Tapping(plain.library())


def same(left: Histogram, right: Histogram) -> bool:
    return (
        (left.exponent, left.low, left.high, left.seen, left.nonfinite)
        == (right.exponent, right.low, right.high, right.seen, right.nonfinite)
    ) and bool((left.counts == right.counts).all())


def run_tap(
    x: np.ndarray,
    *,
    channels: int = 0,
    block: int = 0,
    scale: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    other: np.ndarray | None = None,
    activation: int = 0,
    limits: tuple[float, float] = (0.0, 0.0),
    every: int = 1,
    sample: int = 0,
    split: tuple[float, float] | None = None,
    everything: bool = False,
    functions: Tapping | None = None,
) -> tuple[np.ndarray, list[tuple[Histogram, Histogram]]]:
    """What the operator makes of memory, and what it has counted of x, scaled, summed and clipped."""
    functions = functions or tapping()
    assert functions is not None
    out = np.full_like(x, 77)
    slots = [0, -1 if scale is None else 1, -1 if other is None else 2, 3 if activation == 2 else -1]
    numbers = np.array([*slots, activation, channels, block, every], np.int64)
    at = [None if array is None else array.ctypes.data for array in (x, scale, bias, other, out)]
    spatial = int(np.prod(x.shape[2:])) if block == 0 else int(np.prod(x.shape[2:-1]))
    with Taps(functions, 4) as taps:
        for slot in range(4) if split else ():
            taps.split(slot, *split)
        taps.begin(sample, everything=everything)
        functions.run(numbers.ctypes.data, ctypes.c_float(limits[0]), ctypes.c_float(limits[1]), *at, x.size, spatial)
        return out, [taps.drain(slot) for slot in range(4)]


def counted(values: np.ndarray) -> tuple[Histogram, Histogram]:
    magnitudes, rectified = Histogram(), Histogram()
    magnitudes.add(values)
    rectified.add(np.maximum(values, np.float32(0)))
    return magnitudes, rectified


def whole(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Small whole numbers: sums of their products are exact in whatever order."""
    return rng.integers(-3, 4, shape).astype(np.float32)


def residual(channels: int, rng: np.random.Generator, *, exact: bool = False, opset: int = 17) -> onnx.ModelProto:
    """Convolutions with everything that may follow one: normalisation, sums both ways, ReLU, Clip, pools, products."""

    def weights(*shape: int) -> np.ndarray:
        return whole(rng, *shape) if exact else rng.standard_normal(shape).astype(np.float32) / 8

    c = channels
    nodes, constants = [], {"low": np.array(0, np.float32), "high": np.array(6, np.float32)}

    def normalised(x: str, y: str) -> None:
        nodes.append(node("BatchNormalization", [x, *(f"{y}_{part}" for part in ("g", "b", "m", "v"))], y, epsilon=0.0))
        constants[f"{y}_g"] = np.full(c, 2, np.float32) if exact else rng.uniform(0.5, 2, c).astype(np.float32)
        constants[f"{y}_b"], constants[f"{y}_m"] = weights(c), weights(c)
        constants[f"{y}_v"] = np.full(c, 4, np.float32) if exact else rng.uniform(0.5, 2, c).astype(np.float32)

    def convolved(x: str, y: str, depth: int, size: int, bias: bool = False) -> None:
        inputs = [x, f"{y}_w", *([f"{y}_c"] if bias else [])]
        nodes.append(node("Conv", inputs, y, kernel_shape=[size, size], pads=[size // 2] * 4))
        constants[f"{y}_w"] = weights(c, depth, size, size)
        if bias:
            constants[f"{y}_c"] = weights(c)

    convolved("x", "c1", 3, 3)
    normalised("c1", "b1")
    nodes.append(node("Relu", ["b1"], "r1"))
    nodes.append(node("MaxPool", ["r1"], "p1", kernel_shape=[2, 2], strides=[2, 2]))
    convolved("p1", "c2", c, 1)
    normalised("c2", "b2")
    nodes.append(node("Add", ["b2", "p1"], "a2"))
    nodes.append(node("Relu", ["a2"], "r2"))
    convolved("r2", "c3", c, 3, bias=True)
    nodes.append(node("Clip", ["c3", "low", "high"], "k3"))
    convolved("r2", "c4", c, 1, bias=True)
    normalised("c4", "b4")
    nodes.append(node("Add", ["k3", "b4"], "a4"))
    nodes.append(node("Sigmoid", ["b4"], "s4") if not exact else node("Relu", ["b4"], "s4"))
    nodes.append(node("Mul", ["a4", "s4"], "m4"))
    nodes.append(node("Reshape", ["m4", "flat"], "y"))
    constants["flat"] = np.array([1, -1], np.int64)
    return network(nodes, {"x": (1, 3, 16, 16)}, ["y"], constants, opset=opset)
