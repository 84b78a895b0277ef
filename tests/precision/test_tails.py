"""Tails that are counted everywhere beside blocks that are a sample: percentiles as if all elements were counted."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import network, node
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.precision import calibrate as room
from orinport.precision.calibrate import CalibrationOptions, Collected, collect, scales_of
from orinport.precision.calibrators import find_range, is_exact
from orinport.precision.histogram import BINS, Histogram
from orinport.precision.state import read_state
from orinport.precision.tails import FEWEST, pilots, share_of, thresholds_of
from orinport.precision.tap import Taps, tapping
from precision.taps import FLOATS, counted, portable, residual, run_tap, same

BLOCK = 2048

needs_compiler = pytest.mark.skipif(tapping() is None, reason="there is no C compiler")


# ---------------------------------------------------------------------------------------------- the operator


def reference(x: np.ndarray, every: int, sample: int, split: tuple[float, float]) -> tuple[Histogram, Histogram]:
    """What is counted of flat memory and of its ReLU, in the words of NumPy."""
    above, below = split
    finite = np.isfinite(x)
    numbers = np.arange(x.size) // BLOCK
    chosen = (numbers - sample * 7919) % every == 0
    negative = np.signbit(x)
    tail = np.where(negative, -x >= below, x >= above) & ~chosen & finite
    magnitudes, rectified = counted(x)
    magnitudes.exact_from, rectified.exact_from = max(above, below), above
    hidden = np.isneginf(x)

    def bins(histogram: Histogram, values: np.ndarray) -> np.ndarray:
        if not histogram.width:
            return np.bincount(np.zeros(values.size, np.intp), minlength=BINS)
        return np.bincount((values.astype(np.float64) / histogram.width).astype(np.intp), minlength=BINS)

    magnitudes.counts, magnitudes.tail = (bins(magnitudes, np.abs(x[part & finite])) for part in (chosen, tail))
    rectified.counts, rectified.tail = (
        bins(rectified, np.maximum(x[part], np.float32(0)))
        for part in (chosen & (finite | hidden), tail | ~chosen & hidden)
    )
    return magnitudes, rectified


def identical(left: Histogram, right: Histogram) -> bool:
    assert left.tail is not None
    assert right.tail is not None
    return same(left, right) and left.exact_from == right.exact_from and bool((left.tail == right.tail).all())


THRESHOLDS = st.sampled_from([0.0, 1e-42, 0.25, 1.0, 50.0, 3e38])


@needs_compiler
@pytest.mark.parametrize("functions", ["native", "portable"])
@settings(max_examples=60, deadline=None)
@given(
    st.lists(FLOATS, min_size=1, max_size=40),
    st.integers(1, 200),
    st.integers(1, 4),
    st.integers(0, 9),
    THRESHOLDS,
    THRESHOLDS,
)
def test_blocks_and_tails_are_those_of_a_reference(
    functions: str, values: list[float], times: int, every: int, sample: int, above: float, below: float
) -> None:
    x = np.resize(np.array(values, np.float32), len(values) * times)
    compiled = portable() if functions == "portable" else None
    out, found = run_tap(x, every=every, sample=sample, split=(above, below), functions=compiled)
    assert out.tobytes() == x.tobytes()
    if above or below:
        for ours, theirs in zip(found[0], reference(x, every, sample, (above, below)), strict=True):
            assert identical(ours, theirs)
    for ours, whole in zip(found[0], counted(x), strict=True):
        weighted = ours.weighted()
        edge = weighted.estimated
        assert weighted.counts.sum() == whole.counts.sum()
        assert (weighted.counts[edge:] == whole.counts[edge:]).all()
        assert same(weighted, whole) or (above or below)


SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1e-42, 3e38, -(2.0**-110), 1.0, -1.25], np.float32)


@needs_compiler
@pytest.mark.parametrize("which", ["native", "portable"])
@pytest.mark.parametrize("specials", [0.0, 0.001, 0.3])
@pytest.mark.parametrize("size", [1, 9, 15, 16, 17, 2047, 2048, 2049, 7 * BLOCK, 9 * BLOCK + 1234])
def test_random_data_in_any_number_of_blocks(size: int, specials: float, which: str) -> None:
    rng = np.random.default_rng(size)
    for every, split in itertools.product(
        (1, 2, 3), ((0.0, 0.0), (0.0, 1.25), (1.0, 0.0), (1.0, 1.25), (2.5, 2.75), (9.0, 9.0))
    ):
        x = rng.standard_normal(size).astype(np.float32)
        chosen = rng.random(size) < specials
        x[chosen] = rng.choice(SPECIAL, chosen.sum())
        sample = int(rng.integers(9))
        compiled = portable() if which == "portable" else None
        _, found = run_tap(x, every=every, sample=sample, split=split, functions=compiled)
        for ours, theirs, whole in zip(found[0], reference(x, every, sample, split), counted(x), strict=True):
            assert any(split) or same(ours, whole)
            assert not any(split) or identical(ours, theirs), (every, split, sample)


@needs_compiler
@pytest.mark.parametrize("which", ["native", "portable"])
@pytest.mark.parametrize("kind", ["normal", "heavy", "negative", "zeros", "rectified", "tiny", "growing", "denormal"])
def test_tails_of_all_kinds_of_data(kind: str, which: str) -> None:
    """Several samples into the same counters, so that bins grow under what is counted already."""
    rng = np.random.default_rng(4)
    functions = portable() if which == "portable" else tapping()
    assert functions is not None
    made = []
    for number in range(6):
        x = rng.standard_normal(10 * BLOCK + 77).astype(np.float32)
        made.append(
            {
                "normal": x,
                "heavy": rng.standard_t(1.2, x.size).astype(np.float32),
                "negative": -np.abs(x),
                "zeros": np.where(x > 0, np.float32(0), np.float32(-0.0)),
                "rectified": np.maximum(x, 0),
                "tiny": x * np.float32(2.0**-110),
                "growing": x * np.float32(40.0**number),
                "denormal": (x * np.float32(2.0**-126)) * np.float32(2.0**-10),
            }[kind]
        )
    pairs = [counted(x) for x in made]
    split = thresholds_of(pairs[:4], 0.002)
    if kind != "zeros":
        assert any(split) or kind == "denormal"
    whole = [Histogram(), Histogram()]
    numbers = np.array([0, -1, -1, -1, 0, 0, 0, 3], np.int64)
    with Taps(functions, 1) as taps:
        taps.split(0, *split)
        for number, x in enumerate(made):
            out = np.empty_like(x)
            taps.begin(number)
            functions.run(numbers.ctypes.data, 0, 0, x.ctypes.data, None, None, None, out.ctypes.data, x.size, 1)
            for into, each in zip(whole, pairs[number], strict=True):
                into.merge(each)
        found = taps.drain(0)
    for ours, theirs in zip(found, whole, strict=True):
        weighted = ours.weighted()
        edge = weighted.estimated
        assert weighted.counts.sum() == theirs.counts.sum() == sum(x.size for x in made)
        assert (weighted.low, weighted.high, weighted.exponent) == (theirs.low, theirs.high, theirs.exponent)
        assert (weighted.counts[edge:] == theirs.counts[edge:]).all()
        if kind in ("normal", "rectified", "negative", "tiny"):
            assert theirs.counts[edge:].sum() < 0.02 * theirs.counts.sum() or edge == 0
            assert find_range(weighted) == find_range(theirs)


@needs_compiler
@pytest.mark.parametrize("block", [0, 8, 16])
@pytest.mark.parametrize("channels", [7, 16, 19, 40])
def test_tails_of_chains_in_any_layout_hold_no_padding(block: int, channels: int) -> None:
    rng = np.random.default_rng(channels)
    shape = (1, channels, 47, 53)
    x, other = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    scale, bias = (rng.standard_normal(channels).astype(np.float32) for _ in range(2))
    x[0, -1, 3, 3:7] = np.nan, np.inf, -np.inf, 50
    scaled = x * scale[:, None, None] + bias[:, None, None]
    summed = scaled + other
    clipped = np.clip(summed, -0.5, 1.0)

    def laid(array: np.ndarray) -> np.ndarray:
        if not block:
            return array
        padded = np.full((1, -(-channels // block) * block, 47, 53), np.float32(1e9))
        padded[:, :channels] = array
        return np.ascontiguousarray(padded.reshape(1, -1, block, 47, 53).transpose(0, 1, 3, 4, 2))

    def longer(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array, np.zeros(-channels % (block or 1), np.float32)])

    _, found = run_tap(
        laid(x),
        channels=channels,
        block=block,
        scale=longer(scale),
        bias=longer(bias),
        other=laid(other),
        activation=2,
        limits=(-0.5, 1.0),
        every=3,
        split=(1.0, 1.25),
    )
    for pair, tensor in zip(found, (x, scaled, summed, clipped), strict=True):
        for ours, theirs, edge in zip(pair, counted(tensor), (1.25, 1.0), strict=True):
            weighted = ours.weighted()
            assert (weighted.low, weighted.high, weighted.seen) == (theirs.low, theirs.high, tensor.size)
            assert weighted.counts.sum() == theirs.counts.sum()
            beyond = int(np.ceil(edge / theirs.width))
            assert weighted.estimated == beyond
            assert (weighted.counts[beyond:] == theirs.counts[beyond:]).all()
            assert ours.counts.sum() < 0.6 * theirs.counts.sum()


@needs_compiler
def test_everything_is_counted_where_that_is_asked_for() -> None:
    x = np.random.default_rng(0).standard_normal(9 * BLOCK).astype(np.float32)
    _, found = run_tap(x, every=3, everything=True)
    _, other = run_tap(x, every=3, split=(0.0, 0.0))
    for ours, zeros, theirs in zip(found[0], other[0], counted(x), strict=True):
        assert same(ours, theirs)
        assert same(zeros, theirs)
        assert ours.tail is None
        assert zeros.tail is None


# ---------------------------------------------------------------------------------------------- thresholds


def test_thresholds_leave_the_wanted_share_beyond_them() -> None:
    rng = np.random.default_rng(0)
    made = [rng.standard_normal(100_000).astype(np.float32) + np.float32(0.5) for _ in range(4)]
    above, below = thresholds_of([counted(x) for x in made], 0.01)
    every = np.concatenate(made)
    assert 0.01 <= (every >= above).mean() < 0.013
    assert 0.01 <= (every <= -below).mean() < 0.013
    assert all((each * 2**4).is_integer() for each in (above, below)), "six binary digits"


def test_one_sample_unlike_the_others_changes_no_threshold() -> None:
    rng = np.random.default_rng(0)
    pairs = [counted(rng.standard_normal(50_000).astype(np.float32)) for _ in range(4)]
    usual = thresholds_of(pairs, 0.002)
    for factor in (0.0, 1e-6, 1e6):
        odd = counted(rng.standard_normal(50_000).astype(np.float32) * np.float32(factor))
        assert thresholds_of([*pairs[:3], odd], 0.002) == pytest.approx(usual, rel=0.1)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.zeros(100), (0, 0)),
        (np.r_[np.zeros(999), 1], (0, 0)),
        (np.r_[np.zeros(90), np.full(10, 6.0)], (6, 0)),
        (np.r_[np.zeros(90), np.full(10, -6.0)], (0, 6)),
        (np.r_[np.full(90, -6.0), np.full(10, 3.0)], (3, 6)),
        (np.full(100, np.nan), (0, 0)),
        (np.r_[np.full(90, -np.inf), np.full(10, 3.0)], (3, 0)),
        (np.full(100, 1e-40), (0, 0)),
    ],
)
def test_thresholds_of_one_sign_few_values_and_none(values: np.ndarray, expected: tuple[float, float]) -> None:
    assert thresholds_of([counted(values.astype(np.float32))] * 4, 0.002) == expected


def test_shares_follow_percentiles_and_pilots_are_spread() -> None:
    assert share_of(99.9) == pytest.approx(0.02)
    assert share_of(99.99) == pytest.approx(0.002)
    assert share_of(100) == 0.002
    assert pilots(64) == [8, 24, 40, 56]
    assert pilots(500) == [62, 187, 312, 437]


# ---------------------------------------------------------------------------------------------- networks

LIMIT = 4096
SIDE = 16


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    scale = rng.uniform(0.5, 2, (FEWEST, 1, 1, 1))
    np.save(tmp_path / "d.npy", (rng.standard_normal((FEWEST, 3, SIDE, SIDE)) * scale).astype(np.float32))
    return tmp_path / "d.npy"


def bytes_of(collected: Collected) -> dict[str, tuple[Any, ...]]:
    return {
        name: (h.exponent, h.low, h.high, h.seen, h.nonfinite, h.exact_from, h.counts.tobytes())
        for name, h in collected.histograms.items()
    }


@needs_compiler
@pytest.mark.parametrize("percentile", [99.9, 99.97, 99.99, 99.999, 100.0])
def test_percentiles_are_those_of_all_elements(percentile: float, data: Path) -> None:
    model = load(residual(96, np.random.default_rng(1)))
    part = collect(model, data, options=CalibrationOptions(percentile=percentile, counted=LIMIT))
    whole = collect(model, data, options=CalibrationOptions(percentile=percentile, counted=0))
    estimated = [name for name, histogram in part.histograms.items() if histogram.estimated]
    assert len(estimated) > 8
    for name, ours in part.histograms.items():
        theirs, edge = whole.histograms[name], ours.estimated
        assert theirs.estimated == 0
        assert ours.counts.sum() == theirs.counts.sum() == ours.seen - ours.nonfinite, name
        assert (ours.low, ours.high, ours.seen) == (theirs.low, theirs.high, theirs.seen)
        assert (ours.counts[edge:] == theirs.counts[edge:]).all(), name
        assert is_exact(ours, percentile=percentile), name
        assert find_range(ours, percentile=percentile) == find_range(theirs, percentile=percentile), name
        for rough in (50.0, 90.0):
            assert find_range(ours, percentile=rough) == pytest.approx(
                find_range(theirs, percentile=rough), rel=0.1, abs=theirs.width
            ), name
    assert any(
        part.histograms[name].counts[:9].tolist() != whole.histograms[name].counts[:9].tolist() for name in estimated
    )


@needs_compiler
@pytest.mark.parametrize(
    "options",
    [
        CalibrationOptions(counted=LIMIT, shard=1),
        CalibrationOptions(counted=LIMIT, shard=7, megabytes=1),
        pytest.param(CalibrationOptions(counted=LIMIT, jobs=2, shard=10), id="two processes"),
    ],
)
def test_division_changes_no_byte(data: Path, options: CalibrationOptions) -> None:
    model = load(residual(96, np.random.default_rng(1)))
    once = collect(model, data, options=CalibrationOptions(counted=LIMIT))
    assert any(histogram.estimated for histogram in once.histograms.values())
    assert bytes_of(once) == bytes_of(collect(model, data, options=options))


class StopError(Exception):
    """Ends a calibration in the middle."""


@needs_compiler
def test_an_interrupted_calibration_goes_on_with_its_thresholds(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(residual(96, np.random.default_rng(1)))
    options = CalibrationOptions(counted=LIMIT, shard=8, state=tmp_path / "state")
    whole = collect(model, data, options=CalibrationOptions(counted=LIMIT))
    seen = 0

    def interrupt(_: str) -> None:
        nonlocal seen
        seen += 1
        if seen == 3:
            raise StopError

    with pytest.raises(StopError):
        collect(model, data, options=options, progress=interrupt)
    for other in (
        CalibrationOptions(counted=2 * LIMIT),
        CalibrationOptions(counted=0),
        CalibrationOptions(method="mse"),
    ):
        with pytest.raises(OrinportError, match="other data or options"):
            collect(model, data, options=room.replace(other, shard=8, state=tmp_path / "state"))
    monkeypatch.setattr(room, "_thresholds", lambda *_: pytest.fail("they are in the state"))
    assert bytes_of(collect(model, data, options=options)) == bytes_of(whole)
    assert not (tmp_path / "state").exists()


@needs_compiler
@pytest.mark.parametrize(
    "options",
    [
        CalibrationOptions(counted=LIMIT, samples=FEWEST - 1),
        CalibrationOptions(counted=LIMIT, method="entropy"),
        CalibrationOptions(counted=LIMIT, method="mse"),
        CalibrationOptions(counted=LIMIT, percentile=99.89),
        CalibrationOptions(counted=0),
        CalibrationOptions(counted=1 << 20),
    ],
)
def test_all_elements_are_counted_where_tails_are_not_enough(
    options: CalibrationOptions, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "thresholds_of", lambda *_: pytest.fail("all elements are counted"))
    model = load(residual(32, np.random.default_rng(1)))
    collected = collect(model, data, options=options)
    assert not any(histogram.estimated for histogram in collected.histograms.values())
    assert all(h.counts.sum() == h.seen - h.nonfinite for h in collected.histograms.values())


@needs_compiler
def test_other_methods_refuse_what_was_collected_for_percentiles(data: Path) -> None:
    collected = collect(load(residual(96, np.random.default_rng(1))), data, options=CalibrationOptions(counted=LIMIT))
    assert scales_of(collected).tensors
    for method, percentile in (("entropy", 99.99), ("mse", 99.99), ("percentile", 90.0)):
        with pytest.raises(OrinportError, match="only the largest magnitudes") as error:
            scales_of(collected, method=method, percentile=percentile)
        assert "options" in error.value.hint


# ---------------------------------------------------------------------------------------------- samples unlike the rest


@pytest.fixture
def misleading(tmp_path: Path) -> Path:
    """The samples that are looked at beforehand are a hundred times as large as all others."""
    rng = np.random.default_rng(3)
    samples = rng.standard_normal((4 * FEWEST, 3, 48, 48)).astype(np.float32)
    samples[pilots(4 * FEWEST)] *= 100
    np.save(tmp_path / "m.npy", samples)
    return tmp_path / "m.npy"


def small() -> Any:
    filters = np.random.default_rng(1).standard_normal((8, 3, 1, 1)).astype(np.float32)
    nodes = [node("Conv", ["x", "w"], "c", kernel_shape=[1, 1]), node("Relu", ["c"], "y")]
    return load(network(nodes, {"x": (1, 3, 48, 48)}, ["y"], {"w": filters}))


@needs_compiler
def test_what_a_few_samples_did_not_foretell_is_counted_again(misleading: Path) -> None:
    told: list[str] = []
    part = collect(small(), misleading, options=CalibrationOptions(counted=LIMIT), progress=told.append)
    whole = collect(small(), misleading, options=CalibrationOptions(counted=0))
    assert [
        each for each in told if "calibrating again, all elements counted: 4 samples misled" in each and "'x'" in each
    ]
    assert max(map(len, told)) <= 100, "what a line on a terminal shows"
    assert bytes_of(part) == bytes_of(whole)
    assert {name: find_range(each) for name, each in part.histograms.items()} == {
        name: find_range(each) for name, each in whole.histograms.items()
    }


@needs_compiler
def test_an_estimate_would_have_been_wrong(misleading: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without counting again the percentile is another one: the data of these tests does what it is made for."""
    monkeypatch.setattr(room, "_vague", lambda *_: [])
    part = collect(small(), misleading, options=CalibrationOptions(counted=LIMIT))
    whole = collect(small(), misleading, options=CalibrationOptions(counted=0))
    assert not is_exact(part.histograms["c"])
    assert find_range(part.histograms["c"]) != find_range(whole.histograms["c"])
    with pytest.raises(OrinportError, match="only the largest magnitudes"):
        scales_of(part)


@needs_compiler
def test_counting_again_goes_on_after_an_interruption(
    misleading: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = CalibrationOptions(counted=LIMIT, state=tmp_path / "state", shard=64)
    whole = collect(small(), misleading, options=CalibrationOptions(counted=0))
    again = 0

    def interrupt(message: str) -> None:
        nonlocal again
        again += bool(again) or "again" in message
        if again == 3:
            raise StopError

    with pytest.raises(StopError):
        collect(small(), misleading, options=options, progress=interrupt)
    signature = np.load(tmp_path / "state")["head"][1]
    state = read_state(tmp_path / "state", str(signature))
    assert state is not None
    assert (state.thresholds, set(state.done)) == ((), {0, 64})
    run: list[int] = []
    original = room._in_threads

    def in_threads(shards: list[Any], *more: Any) -> Any:
        run.extend(shard.start for shard in shards)
        return original(shards, *more)

    monkeypatch.setattr(room, "_in_threads", in_threads)
    assert bytes_of(collect(small(), misleading, options=options)) == bytes_of(whole)
    assert run == [128, 192]
