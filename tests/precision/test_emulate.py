"""The fast emulation against NVDLA v1's arithmetic in NumPy, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import network, node, random_feeds, run_onnx
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.precision import nvdla_arithmetic as nvdla
from orinport.precision.emulate import Arithmetic, Emulated, Shown, emulate
from orinport.precision.emulate_measure import Runner
from orinport.precision.nvdla_arithmetic import Multiplier
from orinport.precision.scales import Origin, Scale, Scales
from orinport.targets.version import Version


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
    if Arithmetic.INT8 in found.arithmetic.values():
        for name, array in Runner(found.model, threads=1).run(feeds).items():
            np.testing.assert_array_equal(array, results[name], "ONNX Runtime's optimisations change the emulation")
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


def feed(*shape: int, seed: int = 0, spread: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, spread, shape).astype(np.float32)


SEEDS = st.integers(0, 2**32 - 1)
STEPS = st.floats(1e-3, 2.0)


@given(SEEDS, STEPS, STEPS, st.sampled_from(["Add", "Sum", "Sub"]), st.booleans())
def test_sums_of_equal_ranges_are_nvdla_bit_for_bit(seed: int, sx: float, sy: float, op: str, relu: bool) -> None:
    a, b = feed(1, 3, 5, 5, seed=seed, spread=60 * sx), feed(1, 3, 5, 5, seed=seed + 1, spread=60 * sx)
    nodes = [node(op, ["a", "b"], "c"), *([node("Relu", ["c"], "y")] if relu else [])]
    out = "y" if relu else "c"
    proto = network(nodes, {"a": a.shape, "b": b.shape}, [out])
    found = run(emulated(proto, scales_of(a=sx, b=sx, c=sy, y=sy)), {"a": a, "b": b})
    sx, sy = (float(np.float32(each)) for each in (sx, sy))
    left, right = nvdla.quantize(a, sx), nvdla.quantize(b, sx)
    wanted = nvdla.add(left, -right if op == "Sub" else right, Multiplier.of(sx / sy), relu=relu)
    np.testing.assert_array_equal(found[out], wanted)


@given(SEEDS, STEPS, STEPS, STEPS)
def test_products_are_nvdla_bit_for_bit(seed: int, sa: float, sb: float, sy: float) -> None:
    a, b = feed(1, 3, 5, 5, seed=seed, spread=60 * sa), feed(1, 3, 1, 1, seed=seed + 1, spread=60 * sb)
    proto = network([node("Mul", ["a", "b"], "y")], {"a": a.shape, "b": b.shape}, ["y"])
    found = run(emulated(proto, scales_of(a=sa, b=sb, y=sy)), {"a": a, "b": b})
    sa, sb, sy = (float(np.float32(each)) for each in (sa, sb, sy))
    wanted = nvdla.multiply(nvdla.quantize(a, sa), nvdla.quantize(b, sb), Multiplier.of(sa * sb / sy))
    np.testing.assert_array_equal(found["y"], wanted)


@given(
    SEEDS, STEPS, st.sampled_from([(1, 1), (2, 2), (3, 3), (5, 2), (6, 6), (7, 7)]), st.integers(1, 2), st.booleans()
)
def test_pools_are_nvdla_bit_for_bit(seed: int, s: float, window: tuple[int, int], stride: int, pad: bool) -> None:
    x = feed(2, 3, 9, 8, seed=seed, spread=50 * s)
    padding = (window[0] // 2, window[1] // 2, 0, 0) if pad else (0, 0, 0, 0)
    how = {"kernel_shape": list(window), "strides": [stride, stride], "pads": list(padding)}
    nodes = [node("MaxPool", ["x"], "m", **how), node("AveragePool", ["x"], "a", count_include_pad=1, **how)]
    proto = network(nodes, {"x": x.shape}, ["m", "a"])
    found = run(emulated(proto, scales_of(x=s, m=s, a=s)), {"x": x})
    integers = nvdla.quantize(x, float(np.float32(s)))
    np.testing.assert_array_equal(found["m"], nvdla.max_pool(integers, window, (stride, stride), padding))
    np.testing.assert_array_equal(found["a"], nvdla.average_pool(integers, window, (stride, stride), padding))


def test_a_global_average_is_one_pool() -> None:
    x = feed(1, 4, 7, 7, spread=3)
    proto = network([node("GlobalAveragePool", ["x"], "y")], {"x": x.shape}, ["y"])
    found = run(emulated(proto, scales_of(x=0.1, y=0.1)), {"x": x})
    integers = nvdla.quantize(x, float(np.float32(0.1)))
    np.testing.assert_array_equal(found["y"], nvdla.average_pool(integers, (7, 7), (1, 1)))


@given(SEEDS, STEPS, STEPS, st.booleans())
def test_fully_connected_layers_are_nvdla_bit_for_bit(seed: int, sx: float, sy: float, gemm: bool) -> None:
    x, w = feed(3, 20, seed=seed, spread=50 * sx), feed(20, 6, seed=seed + 1)
    b = feed(6, seed=seed + 2, spread=20 * sx)
    if gemm:
        nodes = [node("Gemm", ["x", "w", "b"], "y", transB=1)]
    else:
        nodes = [node("MatMul", ["x", "w"], "y")]
        b = np.zeros_like(b)
    constants = {"w": np.ascontiguousarray(w.T), "b": b} if gemm else {"w": w}
    proto = network(nodes, {"x": x.shape}, ["y"], constants)
    found = run(emulated(proto, scales_of(x=sx, y=sy)), {"x": x})
    sx, sy = (float(np.float32(each)) for each in (sx, sy))
    steps = weight_steps(w.T)
    sums = nvdla.matmul(nvdla.quantize(x, sx), nvdla.quantize(w / steps, 1.0, (-127, 127)))
    adds = np.array([nvdla.bias_of(float(each), sx * float(step)) for each, step in zip(b, steps, strict=True)])
    wanted = nvdla.post_process(sums, [Multiplier.of(sx * float(step) / sy) for step in steps], adds)
    np.testing.assert_array_equal(found["y"], wanted)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_deconvolution_is_the_convolution_of_a_spread_input(groups: int) -> None:
    x, w = feed(1, 4, 4, 5), feed(4, 3, 2, 2, seed=1)
    nodes = [node("ConvTranspose", ["x", "w"], "y", strides=[2, 2], group=groups)]
    proto = network(nodes, {"x": x.shape}, ["y"], {"w": w})
    found = run(emulated(proto, scales_of(x=0.02, y=0.04)), {"x": x})
    spread = np.zeros((1, 4, 7, 9), np.float32)
    spread[:, :, ::2, ::2] = x
    flipped = (
        w[:, :, ::-1, ::-1]
        .reshape(groups, 4 // groups, 3, 2, 2)
        .transpose(0, 2, 1, 3, 4)
        .reshape(-1, 4 // groups, 2, 2)
    )
    wanted = reference_conv(
        spread, flipped, np.zeros(3 * groups), {"x": 0.02, "y": 0.04}, "y", False, padding=(1, 1, 1, 1), groups=groups
    )
    np.testing.assert_array_equal(found["y"], wanted)


def test_sums_beyond_24_bits_stay_exact() -> None:
    x, w = np.full((1, 2000, 1, 1), 127, np.float32), np.ones((2, 2000, 1, 1), np.float32)
    w[1, :3] = -1 / 127
    b = np.array([0.0, 77.0], np.float32)
    proto = network([node("Conv", ["x", "w", "b"], "y")], {"x": x.shape}, ["y"], {"w": w, "b": b})
    steps = {"x": 1.0, "y": 2000.0}
    result = emulated(proto, scales_of(**steps))
    assert sum(each.op_type == "Conv" for each in result.model.graph) == 2
    wanted = reference_conv(x, w, b, steps, "y", False)
    assert abs(int(nvdla.convolve(nvdla.quantize(x, 1.0), np.full((1, 2000, 1, 1), 127)).item())) > 1 << 24
    np.testing.assert_array_equal(run(result, {"x": x})["y"], wanted)


def test_a_known_sign_of_the_input_saves_the_cut() -> None:
    x = np.abs(feed(1, 1200, 2, 2))
    w = feed(1, 1200, 1, 1, seed=3) * 0 + np.where(np.arange(1200) % 2, 1, -1).reshape(1, -1, 1, 1).astype(np.float32)
    nodes = [node("Relu", ["x"], "r"), node("Conv", ["r", "w"], "y")]
    proto = network(nodes, {"x": x.shape}, ["y"], {"w": w})
    result = emulated(proto, scales_of(x=0.1, r=0.1, y=0.5))
    assert sum(each.op_type == "Conv" for each in result.model.graph) == 1


def test_concatenation_takes_over_integers_or_rescales_them() -> None:
    a, b = feed(1, 2, 3, 3), feed(1, 1, 3, 3, seed=1)
    proto = network([node("Concat", ["a", "b"], "y", axis=1)], {"a": a.shape, "b": b.shape}, ["y"])
    found = run(emulated(proto, scales_of(a=0.05, b=0.02, y=0.05)), {"a": a, "b": b})
    first, second = (float(np.float32(each)) for each in (0.05, 0.02))
    narrow = nvdla.convert(nvdla.quantize(b, second), Multiplier.of(second / first))
    np.testing.assert_array_equal(found["y"], np.concatenate([nvdla.quantize(a, first), narrow], axis=1))


def test_a_residual_block_of_all_of_it() -> None:
    """Depthwise and plain convolution, sum, pool, concatenation, fully connected: one chain in integers."""
    rng = np.random.default_rng(5)
    wd, wp = rng.normal(0, 0.4, (4, 1, 3, 3)).astype(np.float32), rng.normal(0, 0.4, (4, 4, 1, 1)).astype(np.float32)
    nodes = [
        node("Conv", ["x", "wd"], "d", pads=[1, 1, 1, 1], group=4),
        node("Relu", ["d"], "r"),
        node("Conv", ["r", "wp"], "p"),
        node("Add", ["p", "x"], "s"),
        node("Relu", ["s"], "t"),
        node("MaxPool", ["t"], "m", kernel_shape=[2, 2], strides=[2, 2]),
        node("Concat", ["m", "m"], "y", axis=1),
    ]
    x = feed(1, 4, 6, 6)
    proto = network(nodes, {"x": x.shape}, ["y"], {"wd": wd, "wp": wp})
    steps = {"x": 0.03, "d": 0.02, "r": 0.02, "p": 0.03, "s": 0.05, "t": 0.04, "m": 0.04, "y": 0.04}
    found = run(emulated(proto, scales_of(**steps)), {"x": x})
    zeros = np.zeros(4)
    r = reference_conv(x, wd, zeros, steps, "r", True, padding=(1, 1, 1, 1), groups=4)
    real = (r * np.float32(0.02)).astype(np.float32)
    p = reference_conv(real, wp, zeros, {"x": 0.02, "p": 0.03}, "p", False)
    sx, st_ = float(np.float32(0.03)), float(np.float32(0.04))
    t = nvdla.add(p, nvdla.quantize(x, sx), Multiplier.of(sx / st_), relu=True)
    m = nvdla.max_pool(t, (2, 2), (2, 2))
    np.testing.assert_array_equal(found["r"], r)
    np.testing.assert_array_equal(found["p"], p)
    np.testing.assert_array_equal(found["y"], np.concatenate([m, m], axis=1))
    assert set(found) == {"x", "r", "p", "t", "m", "y"}


def test_a_clip_is_fused_with_its_bounds() -> None:
    x = feed(1, 3, 4, 4, spread=4)
    w = np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1)
    nodes = [node("Conv", ["x", "w"], "c"), node("Clip", ["c", "low", "high"], "y")]
    constants = {"w": w, "low": np.float32(-1), "high": np.float32(6)}
    proto = network(nodes, {"x": x.shape}, ["y"], constants)
    found = run(emulated(proto, scales_of(x=0.1, c=0.1, y=0.1)), {"x": x})
    np.testing.assert_array_equal(found["y"], np.clip(nvdla.quantize(x, float(np.float32(0.1))), -10, 60))


def test_a_relu_that_others_can_see_past_is_not_fused() -> None:
    x = feed(1, 3, 4, 4)
    w = np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1)
    nodes = [node("Conv", ["x", "w"], "c"), node("Relu", ["c"], "r"), node("Add", ["c", "r"], "y")]
    proto = network(nodes, {"x": x.shape}, ["y"], {"w": w})
    assert "c" in emulated(proto, scales_of(x=0.1, c=0.1, r=0.1, y=0.1)).tensors


def test_fp16_rounds_every_result_and_the_weights() -> None:
    x, w = feed(1, 3, 4, 4), feed(2, 3, 1, 1, seed=1)
    proto = network([node("Conv", ["x", "w"], "y"), node("Relu", ["y"], "z")], {"x": x.shape}, ["z"], {"w": w})
    kinds = dict.fromkeys(all_int8(proto), Arithmetic.FP16)
    found = run(emulated(proto, Scales({}), kinds), {"x": x})
    halves = [each.astype(np.float16).astype(np.float32) for each in (x, w)]
    wanted = np.einsum("nchw,kc->nkhw", halves[0], halves[1][:, :, 0, 0]).astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(found["y"], wanted, rtol=2**-10)
    assert (found["y"].astype(np.float16).astype(np.float32) == found["y"]).all()


def test_fp16_overflows_to_infinity() -> None:
    x = np.array([[60000.0, 1.0]], np.float32)
    proto = network([node("Add", ["x", "x"], "y")], {"x": x.shape}, ["y"])
    found = run(emulated(proto, Scales({}), {"Add_y": Arithmetic.FP16}), {"x": x})
    assert found["y"].tolist() == [[np.inf, 2.0]]


def test_figures_of_values_that_the_emulation_breaks_say_so() -> None:
    from orinport.precision import emulate_measure as room
    from orinport.report.emulate import _figures

    found = Emulated(ir.Model(ir.Graph([], [], nodes=[], name="empty"), ir_version=8), {"y": Shown("y", None)}, {})
    wanted = np.array([1e5, 2.0, -3.0], np.float32)
    whole, part = room._Sums(), room._Sums()
    whole.add(wanted, np.array([np.inf, np.nan, -np.inf], np.float32), np.inf)
    part.add(wanted, np.array([np.inf, 2.0, -3.5], np.float32), np.inf)
    told = [_figures(room._row("y", None, found, sums)) for sums in (whole, part)]
    assert told[0] == "SNR -inf dB, 3 values finite in fp32 alone"
    assert "largest difference 0.5 of the others, 1 value finite in fp32 alone" in told[1]


def test_a_layer_without_a_scale_is_computed_in_fp16_and_one_off_the_dla_in_fp32() -> None:
    from orinport.model.lower import lower
    from orinport.precision.emulate import arithmetic_of

    nodes = [node("Relu", ["x"], "a"), node("Sigmoid", ["a"], "b"), node("Relu", ["b"], "c"), node("Relu", ["c"], "y")]
    layers = lower(load(network(nodes, {"x": (1, 2, 3, 4)}, ["y"])), tensorrt=Version.parse("10.3.0"))
    found = arithmetic_of(layers, {0, 1, 2}, scales_of(x=1, a=1, b=1))
    assert [each.value for each in found.values()] == ["int8", "fp16", "fp16", "fp32"]
    assert set(arithmetic_of(layers, {0, 1, 2, 3}, None).values()) == {Arithmetic.FP16}


def test_a_tensor_that_int8_reads_is_stored_in_int8() -> None:
    x = feed(1, 2, 3, 3)
    nodes = [node("Sigmoid", ["x"], "s"), node("Relu", ["s"], "r"), node("Tanh", ["s"], "y")]
    proto = network(nodes, {"x": x.shape}, ["r", "y"])
    kinds = {"Sigmoid_s": Arithmetic.FP16, "Relu_r": Arithmetic.INT8, "Tanh_y": Arithmetic.FP16}
    found = emulated(proto, scales_of(x=0.1, s=1 / 127, r=1 / 127), kinds)
    assert found.tensors["s"].scale == pytest.approx(1 / 127)
    assert found.tensors["x"].scale is None
    values = run(found, {"x": x})
    stored = values["s"] * np.float32(found.tensors["s"].scale)
    np.testing.assert_allclose(values["y"], np.tanh(stored), atol=2e-3)


def test_a_convolution_that_is_fused_with_its_sum_is_not_rounded_between() -> None:
    x, z = feed(1, 3, 4, 4), feed(1, 3, 4, 4, seed=2)
    w = feed(3, 3, 1, 1, seed=1)
    nodes = [node("Conv", ["x", "w"], "c"), node("Add", ["c", "z"], "y")]
    proto = network(nodes, {"x": x.shape, "z": z.shape}, ["y"], {"w": w})
    given_scales = scales_of(x=0.03, z=0.03, y=0.05).merged({"c": Scale(1.0, Origin.FUSED)})
    found = run(emulated(proto, given_scales), {"x": x, "z": z})
    s = weight_steps(w)
    sx = float(np.float32(0.03))
    sums = nvdla.convolve(nvdla.quantize(x, sx), nvdla.quantize(w / s.reshape(-1, 1, 1, 1), 1.0, (-127, 127)))
    real = sums * sx * s.astype(np.float64).reshape(-1, 1, 1) + nvdla.quantize(z, sx) * sx
    np.testing.assert_array_equal(found["y"], nvdla.quantize(real.astype(np.float32), float(np.float32(0.05))))


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0, 1e30, np.inf, -np.inf])
def test_constant_inputs_saturate_and_nothing_else(value: float) -> None:
    x = np.full((1, 2, 3, 3), value, np.float32)
    proto = network([node("Relu", ["x"], "y")], {"x": x.shape}, ["y"])
    found = run(emulated(proto, scales_of(x=0.5, y=0.5)), {"x": x})
    assert set(found["y"].reshape(-1)) == {min(max(round(min(value, 1e9) * 2) if value > -1e9 else 0, 0), 127)}


def test_weights_that_are_all_zero_leave_the_bias() -> None:
    x = feed(1, 2, 3, 3)
    constants = {"w": np.zeros((2, 2, 1, 1), np.float32), "b": np.array([1.5, 0.0], np.float32)}
    proto = network([node("Conv", ["x", "w", "b"], "y")], {"x": x.shape}, ["y"], constants)
    found = run(emulated(proto, scales_of(x=0.5, y=0.1)), {"x": x})
    assert set(found["y"][:, 0].reshape(-1)) == {15}
    assert set(found["y"][:, 1].reshape(-1)) == {0}


def test_old_opsets_subgraphs_and_halves_are_refused() -> None:
    old = network([node("Relu", ["x"], "y")], {"x": (1, 2)}, ["y"], opset=9)
    with pytest.raises(OrinportError, match="opset 11"):
        emulated(old, Scales({}))
    half = network([node("Relu", ["x"], "y")], {"x": ((1, 2), np.float16)}, ["y"])
    with pytest.raises(OrinportError, match="FP32"):
        emulated(half, Scales({}))


@given(SEEDS)
def test_what_is_not_on_the_dla_is_the_network_itself(seed: int) -> None:
    from builders import small_cnn

    proto = small_cnn(seed=seed % 100)
    found = run(emulated(proto, Scales({}), {}), random_feeds(proto, seed))
    np.testing.assert_allclose(found["y"], run_onnx(proto, random_feeds(proto, seed))[0], rtol=1e-5, atol=1e-5)
