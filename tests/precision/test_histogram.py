"""Histograms do not depend on order, division or interruption, and calibrators agree with their definitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from orinport.errors import OrinportError
from orinport.precision.calibrators import METHODS, entropy_bins, find_range, is_exact
from orinport.precision.histogram import BINS, Histogram
from orinport.precision.state import State, read_state, write_state

FLOATS = hnp.arrays(np.float32, st.integers(0, 60), elements=st.floats(-1e6, 1e6, width=32))


def histogram(*arrays: np.ndarray) -> Histogram:
    made = Histogram()
    for index, array in enumerate(arrays):
        made.add(array, sample=index)
    return made


def same(left: Histogram, right: Histogram) -> bool:
    return (
        (left.exponent, left.low, left.high, left.seen, left.nonfinite)
        == (right.exponent, right.low, right.high, right.seen, right.nonfinite)
        and bool((left.counts == right.counts).all())
        and left.exact_from == right.exact_from
        and (left.tail is None) == (right.tail is None)
        and (left.tail is None or right.tail is None or bool((left.tail == right.tail).all()))
    )


def split(sample: np.ndarray, others: np.ndarray, *, exact_from: float, seen: int = 0) -> Histogram:
    """A tensor of which some elements are counted, and of the others those of at least `exact_from`."""
    made = histogram(sample, others)

    def counted(values: np.ndarray) -> np.ndarray:
        part = Histogram(made.exponent)
        part.add(values)
        return part.counts

    made.counts, made.tail, made.exact_from = counted(sample), counted(others[others >= exact_from]), exact_from
    made.seen = seen or made.seen
    return made


@settings(max_examples=25)
@given(st.lists(FLOATS, max_size=4), st.randoms(use_true_random=False))
def test_order_and_division_do_not_matter(arrays: list[np.ndarray], random: object) -> None:
    whole = histogram(*arrays)
    shuffled = list(arrays)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert same(whole, histogram(*shuffled))
    left, right = histogram(*shuffled[::2]), histogram(*shuffled[1::2])
    left.merge(right)
    assert same(whole, left)
    assert whole.counts.sum() == sum(array.size for array in arrays)


@given(hnp.arrays(np.float32, st.integers(1, 200), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_every_value_is_in_its_bin(values: np.ndarray) -> None:
    made = histogram(*np.array_split(values, 5))
    assert made.low == values.min()
    assert made.high == values.max()
    if not made.width:
        assert not values.any()
        return
    expected = np.bincount((np.abs(values.astype(np.float64)) / made.width).astype(np.int64), minlength=BINS)
    assert (made.counts == expected).all()
    assert BINS // 2 < made.used <= BINS
    assert made.folded(4).sum() == values.size


def test_values_that_are_not_finite_are_counted_apart() -> None:
    made = histogram(np.array([1, np.nan, -np.inf, 2], np.float32), np.array([np.inf], np.float32))
    assert (made.low, made.high, made.seen, made.nonfinite, made.counts.sum()) == (1, 2, 5, 3, 2)


def test_denormal_and_huge_values() -> None:
    made = histogram(np.array([1e-45, 2e-45], np.float32))
    assert made.counts.sum() == 2
    made.add(np.array([3e38], np.float32))
    assert made.counts[0] == 2
    assert made.largest == float(np.float32(3e38))


def test_a_limit_spreads_over_the_tensor_and_keeps_the_extremes() -> None:
    values = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    values[12_345], values[54_321] = 100, -200
    made = Histogram()
    made.add(values, sample=3, limit=5000)
    assert (made.low, made.high, made.seen) == (-200, 100, 100_000)
    assert 4000 < made.counts.sum() <= 5000


def test_state_comes_back(tmp_path: Path) -> None:
    made = {
        "a: b": histogram(np.arange(5, dtype=np.float32)),
        "zeros": histogram(np.zeros(3, np.float32)),
        "n": Histogram(),
        "tailed": split(np.arange(100, dtype=np.float32), np.arange(200, dtype=np.float32), exact_from=90.0),
    }
    thresholds = ((0.0, 1.5), (90.0, 0.0))
    write_state(tmp_path / "s", "signature", State({0: 16, 32: 40}, made, thresholds))
    back = read_state(tmp_path / "s", "signature")
    assert back is not None
    assert (back.done, back.thresholds) == ({0: 16, 32: 40}, thresholds)
    assert list(back.histograms) == list(made)
    assert all(same(made[name], back.histograms[name]) for name in made)
    write_state(tmp_path / "empty", "signature", State({}, {}))
    assert read_state(tmp_path / "empty", "signature") == State({}, {})
    assert read_state(tmp_path / "none", "signature") is None
    with pytest.raises(OrinportError, match="another network"):
        read_state(tmp_path / "s", "other")
    for wrong in (-1.0, float("nan")):
        write_state(tmp_path / "w", "signature", State({}, {}, ((1.0, wrong),)))
        with pytest.raises(OrinportError, match="is not the state"):
            read_state(tmp_path / "w", "signature")
    (tmp_path / "s").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(OrinportError, match="is not the state"):
        read_state(tmp_path / "s", "signature")


# ------------------------------------------------------------------------------------------ samples with tails


MAGNITUDES = hnp.arrays(np.float32, st.integers(1, 60), elements=st.floats(0, 1e6, width=32))


@given(st.lists(st.tuples(MAGNITUDES, MAGNITUDES), min_size=1, max_size=4), st.floats(0.5, 1e5, width=32), st.data())
def test_weights_make_up_for_what_was_not_counted(
    parts: list[tuple[np.ndarray, np.ndarray]], threshold: float, draw: st.DataObject
) -> None:
    """Whatever the order, counts add up to all elements, those of the tail are exact, and no bin is negative."""
    made = [split(sample, others, exact_from=threshold) for sample, others in parts]
    merged, other_way = Histogram(), Histogram()
    for each in made:
        merged.merge(each)
    for each in draw.draw(st.permutations(made)):
        other_way.merge(each)
    assert same(merged, other_way)
    found, whole = merged.weighted(), histogram(*(array for pair in parts for array in pair))
    edge = found.estimated
    assert found.tail is None
    assert found.counts.sum() == whole.counts.sum()
    assert found.counts.min() >= 0
    assert (found.counts[edge:] == whole.counts[edge:]).all()
    assert (edge - 1) * found.width < threshold <= edge * found.width or edge in (0, BINS)


def test_what_is_left_is_shared_out_as_the_sample_lies() -> None:
    sample = np.repeat(np.arange(8, dtype=np.float32), [1, 0, 2, 4, 0, 0, 1, 1])
    made = split(sample, np.array([7, 3, 7], np.float32), exact_from=6.5, seen=9 + 2 + 80)
    found = made.weighted()
    bins = {int(at * found.width): int(found.counts[at]) for at in np.flatnonzero(found.counts)}
    assert bins == {0: 11, 2: 22, 3: 44, 6: 11, 7: 3}
    assert found.exact_from == 6.5
    assert found.estimated == 6.5 / found.width


def test_without_a_sample_the_rest_counts_as_zero() -> None:
    made = split(np.zeros(0, np.float32), np.array([7, 6], np.float32), exact_from=6.0, seen=100).weighted()
    assert (made.counts[0], made.counts.sum()) == (98, 100)


def test_totals_beyond_64_bits_are_shared_out_exactly() -> None:
    made = split(np.array([1, 2, 2], np.float32), np.array([7], np.float32), exact_from=4.0, seen=3 * 10**18 + 1)
    made.counts *= 10**9
    found = made.weighted()
    assert found.counts[found.counts > 0].tolist() == [10**18, 2 * 10**18, 1]


def test_ranges_are_exact_only_where_the_tail_is() -> None:
    values = np.abs(np.random.default_rng(0).standard_normal(100_000)).astype(np.float32)
    made = split(values[::10], np.delete(values, np.s_[::10]), exact_from=3.0)
    found, whole = made.weighted(), histogram(values)
    for percentile in (99.75, 99.9, 99.99, 100):
        assert is_exact(found, percentile=percentile)
        assert find_range(found, percentile=percentile) == find_range(whole, percentile=percentile)
    assert not is_exact(found, percentile=99.7)
    assert not is_exact(found, "mse")
    assert not is_exact(found, "entropy")
    assert is_exact(found, "min-max")
    assert is_exact(whole, "entropy")


def test_a_percentile_in_the_last_bin_of_the_sample_is_no_exact_one() -> None:
    """How many elements lie up to the edge is known, but not that fewer lie up to the edge before it."""
    sample, others = np.repeat(np.float32(7.9999), 10), np.repeat(np.float32([0.25, 8.0]), [90, 2])
    found = split(sample, others, exact_from=8.0).weighted()
    at = find_range(found, percentile=98)
    assert at == found.estimated * found.width == 8.0
    assert find_range(histogram(sample, others), percentile=85) < 1
    assert not is_exact(found, percentile=98)
    assert is_exact(found, percentile=99)


# ------------------------------------------------------------------------------------------ calibrators


def published_entropy(bins: np.ndarray) -> int:
    """The method as published, candidate by candidate: reference P, candidate Q, sum of P log(P / Q)."""
    bins = bins.astype(np.float64)
    bins[0] = bins[1]
    best, chosen = np.inf, 0
    for size in range(128, bins.size + 1):
        reference = bins[:size].copy()
        reference[-1] += bins[size:].sum()
        level = np.arange(size) * 128 // size
        candidate = np.zeros(size)
        for each in range(128):
            inside = (level == each) & (bins[:size] > 0)
            if inside.any():
                candidate[inside] = bins[:size][inside].sum() / inside.sum()
        present = reference > 0
        if not candidate.any() or (candidate[present] == 0).any():
            continue
        p, q = reference[present] / reference.sum(), candidate[present] / candidate.sum()
        divergence = float((p * np.log(p / q)).sum())
        if divergence <= best + 1e-12:
            best, chosen = min(best, divergence), size
    return chosen


SHAPES = {
    "normal": lambda rng: rng.standard_normal(20_000),
    "relu": lambda rng: np.maximum(rng.standard_normal(20_000), 0),
    "laplace": lambda rng: rng.laplace(size=20_000),
    "uniform": lambda rng: rng.uniform(-3, 3, 20_000),
    "outliers": lambda rng: np.concatenate([rng.standard_normal(20_000), [40.0, -55.0]]),
    "sparse": lambda rng: rng.choice([0.0, 0.5, 1.0, 7.0], 2_000),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_entropy_is_the_published_method(shape: str) -> None:
    values = SHAPES[shape](np.random.default_rng(1)).astype(np.float32)
    counts = np.histogram(np.abs(values), bins=600, range=(0, float(np.abs(values).max())))[0]
    assert entropy_bins(counts) == published_entropy(counts)


def test_entropy_cuts_outliers_off() -> None:
    made = histogram(SHAPES["outliers"](np.random.default_rng(1)).astype(np.float32))
    assert 2 < find_range(made, "entropy") < 10
    assert find_range(made, "min-max") == 55.0


def onnxruntime_percentile(values: np.ndarray, percentile: float) -> float:
    """The upper threshold of ONNX Runtime's histogram calibrator with 2048 bins."""
    from onnxruntime.quantization.calibrate import HistogramCollector

    collector = HistogramCollector(
        method="percentile",
        symmetric=True,
        num_bins=2048,
        num_quantized_bins=128,
        percentile=percentile,
        scenario="same",
    )
    collector.collect({"x": [values]})
    return float(collector.compute_collection_result()["x"][1])


@pytest.mark.parametrize("percentile", [90.0, 99.0, 99.9, 99.99, 100.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_percentile_agrees_with_onnx_runtime(shape: str, percentile: float) -> None:
    values = np.abs(SHAPES[shape](np.random.default_rng(2)).astype(np.float32))[:-7]  # no percentile falls on a value
    theirs = onnxruntime_percentile(values, percentile)
    ours = find_range(histogram(values), "percentile", percentile=percentile)
    assert abs(ours - theirs) <= float(values.max()) / 2048 + histogram(values).width


@pytest.mark.parametrize("shape", SHAPES)
def test_percentile_by_definition(shape: str) -> None:
    values = np.abs(SHAPES[shape](np.random.default_rng(3)).astype(np.float32))
    made = histogram(values)
    for percentile in (50.0, 97.0, 99.9):
        exact = np.sort(values)[int(np.ceil(percentile / 100 * values.size)) - 1]
        assert exact <= find_range(made, "percentile", percentile=percentile) <= exact + made.width


@pytest.mark.parametrize("shape", SHAPES)
def test_least_squared_error_by_search(shape: str) -> None:
    values = SHAPES[shape](np.random.default_rng(4)).astype(np.float32)
    largest = float(np.abs(values).max())

    def error(range_: float) -> float:
        step = range_ / 127
        levels = np.clip(np.trunc(values / step + np.copysign(0.5, values)), -127, 127)
        return float(((levels * step - values) ** 2).mean())

    best = min(error(each) for each in np.linspace(largest / 8, largest, 300))
    assert error(find_range(histogram(values), "mse")) <= best * 1.05 + 1e-12


@pytest.mark.parametrize("method", METHODS)
def test_zeros_and_constants(method: str) -> None:
    assert find_range(histogram(np.zeros(10, np.float32)), method) == 0
    assert find_range(Histogram(), method) == 0
    assert find_range(histogram(np.full(10, -0.3, np.float32)), method) == pytest.approx(0.3, rel=1e-3)


@given(
    hnp.arrays(np.float32, st.integers(1, 50), elements=st.floats(-(2.0**66), 2.0**66, width=32)),
    st.sampled_from(METHODS),
)
def test_a_range_never_exceeds_the_data(values: np.ndarray, method: str) -> None:
    largest = float(np.abs(values).max())
    assert 0 <= find_range(histogram(values), method) <= largest
    assert find_range(histogram(values), "min-max") == largest


def test_methods_that_do_not_exist() -> None:
    with pytest.raises(OrinportError, match="is not a calibration method"):
        find_range(Histogram(), "magic")
    for percentile in (0.0, -1.0, 100.1, float("nan")):
        with pytest.raises(OrinportError, match="is not a percentile"):
            find_range(Histogram(), "percentile", percentile=percentile)
