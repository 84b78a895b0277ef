"""Counting inside ONNX Runtime: the same numbers as from the tensors themselves, in whatever layout they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import network, node
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.model.model import shape_of
from orinport.precision import calibrate as room
from orinport.precision.calibrate import CalibrationOptions, calibrate, collect, watched
from orinport.precision.calibrators import METHODS, find_range
from orinport.precision.histogram import Histogram
from orinport.precision.tap import tapping
from orinport.precision.tapped import block_of, tapped
from precision.taps import FLOATS, counted, residual, run_tap, same, whole

pytestmark = pytest.mark.skipif(tapping() is None, reason="there is no C compiler")

SAMPLES = 5
AS_WRITTEN = CalibrationOptions(optimised=False, elements=0)


# ---------------------------------------------------------------------------------------------- the operator


@settings(max_examples=60, deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=40), st.integers(1, 200))
def test_what_is_counted_is_what_a_histogram_counts(values: list[float], times: int) -> None:
    x = np.resize(np.array(values, np.float32), len(values) * times)
    out, found = run_tap(x)
    assert out.tobytes() == x.tobytes()
    for ours, theirs in zip(found[0], counted(x), strict=True):
        assert same(ours, theirs)


@pytest.mark.parametrize("block", [0, 8, 16])
@pytest.mark.parametrize("channels", [1, 7, 8, 16, 19, 40])
@pytest.mark.parametrize("activation", [0, 1, 2])
def test_chains_in_any_layout_count_no_padding(block: int, channels: int, activation: int) -> None:
    rng = np.random.default_rng(channels)
    shape = (2, channels, 13, 17)
    x, other = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    scale, bias = (rng.standard_normal(channels).astype(np.float32) for _ in range(2))
    x[0, -1, 3, 3:7] = np.nan, np.inf, -np.inf, 50
    scaled = x * scale[:, None, None] + bias[:, None, None]
    summed = scaled + other
    clipped = np.clip(summed, -0.5, 1.0)
    last = (summed, np.where(summed <= 0, np.float32(0), summed), clipped)[activation]

    def laid(array: np.ndarray) -> np.ndarray:
        """In blocks of channels, the padding full of what must not be counted."""
        if not block:
            return array
        padded = np.full((2, -(-channels // block) * block, 13, 17), np.float32(1e9))
        padded[:, :channels] = array
        return np.ascontiguousarray(padded.reshape(2, -1, block, 13, 17).transpose(0, 1, 3, 4, 2))

    def longer(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array, np.zeros(-channels % (block or 1), np.float32)])

    out, found = run_tap(
        laid(x),
        channels=channels,
        block=block,
        scale=longer(scale),
        bias=longer(bias),
        other=laid(other),
        activation=activation,
        limits=(-0.5, 1.0),
    )
    expected = laid(last)
    real = laid(np.ones(shape, np.float32)) == 1
    np.testing.assert_array_equal(out[real], expected[real])
    tensors = [x, scaled, summed, *([clipped] if activation == 2 else [])]
    for (ours, rectified), tensor in zip(found, tensors, strict=False):
        magnitudes, theirs = counted(tensor)
        assert same(ours, magnitudes)
        assert same(rectified, theirs)
        assert ours.seen == tensor.size


@pytest.mark.parametrize("blocked", [False, True])
def test_of_large_tensors_evenly_spread_blocks_are_counted_and_extremes_are_those_of_all(blocked: bool) -> None:
    """Over as many samples as one block is counted in, each block is counted once."""
    rng = np.random.default_rng(0)
    shape = (1, 2, 40, 40, 16) if blocked else (1, 2, 160, 160)
    x = rng.standard_normal(shape).astype(np.float32)
    x.reshape(-1)[[5000, 40000]] = 9, -8
    scale, bias = rng.standard_normal(32 if blocked else 2).astype(np.float32), np.zeros(32, np.float32)
    every = 3
    layout = {"channels": 32, "block": 16} if blocked else {"channels": 2}
    _, whole = run_tap(x, scale=scale, bias=bias, **layout)
    merged = [Histogram(), Histogram()]
    for sample in range(every):
        _, found = run_tap(
            x, scale=scale, bias=bias, every=every, sample=sample, split=(float("inf"), float("inf")), **layout
        )
        for into, (ours, _), (all_of_them, _) in zip(merged, found, whole, strict=False):
            assert (ours.low, ours.high, ours.seen) == (all_of_them.low, all_of_them.high, x.size)
            assert ours.counts.sum() == pytest.approx(x.size / every, rel=0.1)
            into.merge(ours)
    for into, (all_of_them, _) in zip(merged, whole, strict=False):
        np.testing.assert_array_equal(into.counts, all_of_them.counts)


# ---------------------------------------------------------------------------------------------- networks


def test_steps_between_tensors_that_nothing_else_reads_are_computed_by_the_taps(tmp_path: Path) -> None:
    # ONNX Runtime 1.23 keeps newer batch normalisations out of the blocked layout.
    model = load(residual(16, np.random.default_rng(0), opset=13))
    names = [name for name in watched(model) if name not in ("r1", "r2", "y")]
    room._write(room._with_outputs(model, names), tmp_path / "m.onnx")
    values = [*model.graph.inputs, *(value for each in model.graph for value in each.outputs)]
    shapes = {value.name: shape_of(value) or () for value in values}
    written = tapped(str(tmp_path / "m.onnx"), {name: shapes[name] for name in names}, 1, tmp_path)
    nodes = onnx.load_from_string(written.path.read_bytes()).graph.node
    left = {each.op_type for each in nodes}
    assert not left & {"BatchNormalization", "Relu", "Clip"}
    assert sum(each.op_type == "Conv" for each in nodes) == 4
    steps = [{a.name: onnx.helper.get_attribute_value(a) for a in each.attribute} for each in nodes if each.domain]
    taken = [[step[key] >= 0 for key in ("scaled", "summed", "clipped")] for step in steps if "scaled" in step]
    assert taken.count([True, False, False]) == 2
    assert taken.count([True, True, False]) == 1
    assert taken.count([False, False, True]) == 1
    counters = [step[key] for step in steps if "scaled" in step for key in ("first", "scaled", "summed", "clipped")]
    assert sorted(each for each in counters if each >= 0) == list(range(len(names)))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    np.save(tmp_path / "d.npy", rng.standard_normal((SAMPLES, 3, 16, 16)).astype(np.float32))
    np.save(tmp_path / "whole.npy", whole(rng, SAMPLES, 3, 16, 16))
    return tmp_path / "d.npy"


@pytest.fixture
def optimised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """First samples of the shards that were counted inside ONNX Runtime."""
    runs: list[int] = []
    original = room._in_threads

    def in_threads(shards: Any, *more: Any) -> Any:
        runs.extend(shard.start for shard in shards if shard.shapes)
        return original(shards, *more)

    monkeypatch.setattr(room, "_in_threads", in_threads)
    return runs


@pytest.mark.parametrize("channels", [5, 8, 13, 16, 24, 33, 96])
def test_scales_are_those_of_the_network_as_written_within_a_bin(
    channels: int, data: Path, optimised: list[int]
) -> None:
    model = load(residual(channels, np.random.default_rng(channels)))
    fast = collect(model, data, options=CalibrationOptions(counted=0))
    assert optimised
    plain = collect(model, data, options=AS_WRITTEN)
    assert set(fast.histograms) == set(plain.histograms) == set(watched(model))
    for name, histogram in fast.histograms.items():
        other = plain.histograms[name]
        assert (histogram.seen, histogram.counts.sum()) == (other.seen, other.counts.sum()), name
        assert histogram.largest == pytest.approx(other.largest, rel=1e-5, abs=1e-6), name
        assert find_range(histogram, "percentile") == pytest.approx(
            find_range(other, "percentile"), abs=other.width * 1.01
        ), name
        for method in METHODS:
            assert find_range(histogram, method) > 0, (name, method)


@pytest.mark.parametrize("channels", [5, 16, 24, 64])
def test_histograms_of_exact_sums_are_identical(channels: int, data: Path, optimised: list[int]) -> None:
    model = load(residual(channels, np.random.default_rng(channels), exact=True))
    fast = collect(model, data.with_name("whole.npy"))
    assert optimised
    plain = collect(model, data.with_name("whole.npy"), options=AS_WRITTEN)
    for name, histogram in fast.histograms.items():
        assert same(histogram, plain.histograms[name]), name


@pytest.mark.parametrize(
    "options",
    [
        CalibrationOptions(shard=1),
        CalibrationOptions(shard=3, megabytes=1),
        pytest.param(CalibrationOptions(jobs=2, shard=2), id="two processes"),
    ],
)
def test_division_does_not_change_the_histograms(data: Path, options: CalibrationOptions) -> None:
    model = load(residual(13, np.random.default_rng(1)))
    once, divided = collect(model, data), collect(model, data, options=options)
    assert all(same(histogram, divided.histograms[name]) for name, histogram in once.histograms.items())


class StopError(Exception):
    """Ends a calibration in the middle."""


def test_an_interrupted_calibration_goes_on_to_the_same_histograms(
    data: Path, tmp_path: Path, optimised: list[int]
) -> None:
    model = load(residual(13, np.random.default_rng(1)))
    options = CalibrationOptions(shard=2, state=tmp_path / "state")
    whole = collect(model, data)

    def interrupt(_: str) -> None:
        raise StopError

    with pytest.raises(StopError):
        collect(model, data, options=options, progress=interrupt)
    with pytest.raises(OrinportError, match="other data or options"):
        collect(model, data, options=CalibrationOptions(shard=2, state=tmp_path / "state", optimised=False))
    del optimised[:]
    again = collect(model, data, options=options)
    assert set(optimised) == {2, 4}
    assert all(same(histogram, again.histograms[name]) for name, histogram in whole.histograms.items())


def test_min_max_runs_the_network_as_it_is_written(data: Path, optimised: list[int]) -> None:
    calibrate(load(residual(8, np.random.default_rng(1))), data, options=CalibrationOptions(method="min-max"))
    assert not optimised


def test_values_that_are_not_finite_are_counted_apart(data: Path, optimised: list[int]) -> None:
    """0 / 0 and 1 / 0 on their way through a convolution's neighbours."""
    proto = network(
        [
            node("Relu", ["x"], "r"),
            node("Div", ["one", "r"], "d"),
            node("Relu", ["d"], "e"),
            node("Mul", ["r", "d"], "y"),
        ],
        {"x": (1, 3, 16, 16)},
        ["y"],
        {"one": np.array(1, np.float32)},
    )
    fast = collect(load(proto), data)
    assert optimised
    plain = collect(load(proto), data, options=AS_WRITTEN)
    assert fast.histograms["d"].nonfinite > 0
    assert all(same(histogram, plain.histograms[name]) for name, histogram in fast.histograms.items())


@pytest.mark.parametrize("opset", [9, 17])
def test_clips_keep_their_limits_wherever_they_are_computed(opset: int, data: Path, optimised: list[int]) -> None:
    """One in the tap of a convolution, one behind a tensor that others read too, one of the input."""

    def clip(x: str, y: str) -> onnx.NodeProto:
        if opset < 11:
            return node("Clip", [x], y, min=-1.0, max=2.5)
        return node("Clip", [x, "low", "high"], y)

    limits = {"low": np.array(-1, np.float32), "high": np.array(2.5, np.float32)}
    proto = network(
        [
            clip("x", "k0"),
            node("Conv", ["k0", "w1"], "c1", kernel_shape=[1, 1]),
            clip("c1", "k1"),
            node("Conv", ["k1", "w2"], "c2", kernel_shape=[1, 1]),
            clip("c2", "k2"),
            node("Mul", ["c2", "k2"], "y"),
        ],
        {"x": (1, 3, 16, 16)},
        ["y"],
        {"w1": np.full((16, 3, 1, 1), 2, np.float32), "w2": np.ones((16, 16, 1, 1), np.float32)}
        | (limits if opset >= 11 else {}),
        opset=opset,
    )
    fast = collect(load(proto), data.with_name("whole.npy"))
    assert optimised
    plain = collect(load(proto), data.with_name("whole.npy"), options=AS_WRITTEN)
    assert fast.histograms["k1"].low == -1
    assert all(same(histogram, plain.histograms[name]) for name, histogram in fast.histograms.items())


@pytest.mark.parametrize("source", ["x", "c"])
def test_a_clip_is_not_taken_for_a_relu_of_the_same_tensor(source: str, data: Path, optimised: list[int]) -> None:
    proto = network(
        [
            node("Conv", ["x", "w"], "c", kernel_shape=[1, 1]),
            node("Relu", [source], "r"),
            node("Clip", [source, "low", "high"], "k"),
            node("Mul", ["r", "k"], "m"),
            node("MaxPool", ["r"], "p", kernel_shape=[2, 2]),
            node("MaxPool", ["m"], "y", kernel_shape=[2, 2]),
        ],
        {"x": (1, 3, 16, 16)},
        ["y", "p"],
        {
            "w": np.full((16, 3, 1, 1), 2, np.float32),
            "low": np.array(0, np.float32),
            "high": np.array(1, np.float32),
        },
    )
    fast = collect(load(proto), data.with_name("whole.npy"))
    assert optimised
    plain = collect(load(proto), data.with_name("whole.npy"), options=AS_WRITTEN)
    assert all(same(histogram, plain.histograms[name]) for name, histogram in fast.histograms.items())


def test_networks_that_cannot_be_counted_inside_run_as_written(data: Path, optimised: list[int]) -> None:
    proto = network(
        [node("Cast", ["x"], "h", to=10), node("Mul", ["h", "two"], "y")],
        {"x": (1, 3, 16, 16)},
        ["y"],
        {"two": np.array(2, np.float16)},
    )
    assert set(calibrate(load(proto), data).tensors) == {"x", "h", "y"}
    assert not optimised


def test_a_machine_of_a_fleet_without_compiler_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(residual(8, np.random.default_rng(1)))
    shards: list[room._Shard] = []
    monkeypatch.setattr(room, "_results", lambda left, *_: shards.extend(left) or iter(()))
    collect(model, data, options=CalibrationOptions(scheduler="tcp://elsewhere:1"))
    monkeypatch.setattr(room, "tapping", lambda: None)
    with pytest.raises(OrinportError, match="cannot be counted inside ONNX Runtime") as error:
        room._network(shards[0])
    assert "ORINPORT_COMPILE=0" in error.value.hint


def test_blocks_are_those_of_the_processor() -> None:
    assert block_of() in (0, 8, 16)
