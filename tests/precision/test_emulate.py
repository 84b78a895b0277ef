"""The fast emulation against NVDLA v1's arithmetic in NumPy, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import given
from hypothesis import strategies as st

from builders import network, node, run_onnx
from orinport.model.load import load
from orinport.precision import nvdla_arithmetic as nvdla
from orinport.precision.emulate import Arithmetic, Emulated, emulate
from orinport.precision.nvdla_arithmetic import Multiplier
from orinport.precision.scales import Origin, Scale, Scales


def scales_of(**steps: float) -> Scales:
    return Scales({name: Scale(step, Origin.DATA) for name, step in steps.items()})


def all_int8(proto: onnx.ModelProto) -> dict[str, Arithmetic]:
    return {each.name: Arithmetic.INT8 for each in proto.graph.node}


def emulated(proto: onnx.ModelProto, scales: Scales, kinds: dict[str, Arithmetic] | None = None) -> Emulated:
    return emulate(load(proto), all_int8(proto) if kinds is None else kinds, scales)


def run(found: Emulated, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every tensor as the emulation holds it: integers where it is quantised."""
    proto = ir.to_proto(found.model)
    onnx.checker.check_model(proto)
    results = dict(zip([each.name for each in proto.graph.output], run_onnx(proto, feeds), strict=True))
    return {name: {**feeds, **results}[each.output] for name, each in found.tensors.items()}


def weight_steps(weights: np.ndarray) -> np.ndarray:
    """max |w| / 127 of each output channel, in binary32."""
    return (np.abs(weights.reshape(len(weights), -1)).max(axis=1) / np.float32(127)).astype(np.float32)


def reference_conv(
    x: np.ndarray, weights: np.ndarray, bias: np.ndarray, steps: dict[str, float], out: str, relu: bool, **how: Any
) -> np.ndarray:
    s = weight_steps(weights)
    integers = nvdla.quantize(weights / s.reshape(-1, 1, 1, 1), 1.0, (-127, 127))
    sx, sy = np.float64(np.float32(steps["x"])), np.float64(np.float32(steps[out]))
    sums = nvdla.convolve(nvdla.quantize(x, float(sx)), integers, **how)
    adds = np.array([nvdla.bias_of(float(b), float(sx * np.float64(each))) for b, each in zip(bias, s, strict=True)])
    factors = [Multiplier.of(float(sx * np.float64(each) / sy)) for each in s]
    return nvdla.post_process(sums, factors, adds, relu=relu)


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([(1, 4, 5), (2, 4, 6), (4, 4, 4), (1, 64, 3)]),
    st.sampled_from([(1, 1, 1), (3, 1, 1), (3, 2, 1), (3, 1, 2), (2, 1, 1)]),
    st.booleans(),
    st.floats(1e-4, 3.0),
    st.floats(1e-4, 3.0),
)
def test_convolution_is_nvdla_bit_for_bit(
    seed: int, form: tuple[int, int, int], kernel: tuple[int, int, int], relu: bool, sx: float, sy: float
) -> None:
    rng = np.random.default_rng(seed)
    groups, channels, half = form
    size, stride, dilation = kernel
    kernels = half // groups * groups
    weights = rng.normal(0, 1, (kernels, channels // groups, size, size)).astype(np.float32)
    bias = rng.normal(0, 5, kernels).astype(np.float32)
    x = rng.normal(0, 60 * sx, (2, channels, 7, 6)).astype(np.float32)
    nodes = [
        node(
            "Conv", ["x", "w", "b"], "c", pads=[1, 0, 1, 1], strides=[stride, stride],
            dilations=[dilation, dilation], group=groups,
        )
    ]  # fmt: skip
    nodes += [node("Relu", ["c"], "y")] if relu else []
    out = "y" if relu else "c"
    proto = network(nodes, {"x": x.shape}, [out], {"w": weights, "b": bias})
    steps = {"x": sx, "c": sy * 2, "y": sy}
    found = run(emulated(proto, scales_of(**steps)), {"x": x})
    wanted = reference_conv(
        x, weights, bias, steps, out, relu, padding=(1, 0, 1, 1), stride=(stride, stride),
        dilation=(dilation, dilation), groups=groups,
    )  # fmt: skip
    np.testing.assert_array_equal(found[out], wanted)
    assert ("c" in found) is not relu
