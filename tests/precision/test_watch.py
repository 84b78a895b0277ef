"""Watching in C, on several threads and through ReLUs: the same histograms as element by element in NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import network, node, small_cnn
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.precision import calibrate as room
from orinport.precision import histogram as histograms
from orinport.precision.calibrate import CalibrationOptions, collect, watched
from orinport.precision.histogram import Histogram
from orinport.precision.plan import Plan, Watched, plan_of
from orinport.precision.tap import tapping
from orinport.precision.watch import loops

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def told(histogram: Histogram) -> tuple[Any, ...]:
    h = histogram
    return h.exponent, h.low, h.high, h.seen, h.nonfinite, h.counts.tobytes()


def in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histograms, "loops", lambda: None)


def test_this_machine_compiles_the_loops() -> None:
    assert loops() is not None


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 20_000),
    st.integers(0, 400),
    st.sampled_from([0, 1, 7, 500]),
    st.sampled_from([0.0, 1e-42, 1e-33, 1e-3, 1.0, 1e30]),
    st.sampled_from([0.0, np.nan, np.inf, -np.inf]),
    st.integers(0, 2**32 - 1),
)
def test_c_and_numpy_give_the_same(size: int, sample: int, limit: int, unit: float, odd: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal(size) * unit).astype(np.float32)
    if odd:
        values[rng.integers(size)] = odd
    found = []
    for compiled in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not compiled:
                in_numpy(patch)
            plain, rectified, direct = Histogram(), Histogram(), Histogram()
            plain.add(values, sample=sample, limit=limit, rectified=rectified)
            direct.add(np.maximum(values, np.float32(0)), sample=sample, limit=limit)
            assert told(rectified) == told(direct)
            found.append((told(plain), told(rectified)))
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floats_and_layouts(dtype: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.random.default_rng(0).standard_normal((3, 50, 70)).astype(dtype).transpose(2, 0, 1)
    fast, slow = Histogram(), Histogram()
    fast.add(array, limit=100)
    in_numpy(monkeypatch)
    slow.add(array, limit=100)
    assert told(fast) == told(slow)


def test_without_a_compiler_numpy_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ORINPORT_COMPILE", "0")
    loops.cache_clear()
    try:
        assert loops() is None
        np.save(tmp_path / "d.npy", np.ones((2, 3, 16, 16), np.float32))
        assert collect(load(small_cnn()), tmp_path / "d.npy").histograms["x"].counts.sum() == 2 * 3 * 16 * 16
    finally:
        loops.cache_clear()


def chain() -> Any:
    """ReLUs and reshapes behind each other, and a ReLU that is an output."""
    return load(
        network(
            [
                node("Mul", ["x", "two"], "m"),
                node("Relu", ["m"], "r"),
                node("Reshape", ["r", "flat"], "f"),
                node("Relu", ["f"], "s"),
                node("Identity", ["m"], "i"),
                node("Relu", ["i"], "t"),
                node("Transpose", ["t"], "p", perm=[0, 2, 3, 1]),
                node("Cast", ["m"], "h", to=10),
                node("Relu", ["h"], "y"),
            ],
            {"x": (1, 3, 16, 16)},
            ["s", "p", "y"],
            {"two": np.array(2, np.float32), "flat": np.array([1, -1], np.int64)},
        )
    )


def test_what_follows_from_another_tensor_is_not_stored() -> None:
    model = chain()
    plan = plan_of(model, watched(model), megabytes=384, threads=2)
    assert plan.roots == ("x", "m", "p", "h")
    assert dict(plan.sources) == {
        "x": Watched("x"),
        "m": Watched("m"),
        "r": Watched("m", rectified=True),
        "f": Watched("m", rectified=True),
        "s": Watched("m", rectified=True),
        "i": Watched("m"),
        "t": Watched("m", rectified=True),
        "p": Watched("p"),
        "h": Watched("h"),
        "y": Watched("h", rectified=True),
    }


@pytest.mark.parametrize("elements", [0, 100])
def test_what_follows_is_what_the_runtime_gives(tmp_path: Path, elements: int) -> None:
    model = chain()
    data = np.random.default_rng(1).standard_normal((5, 3, 16, 16)).astype(np.float32)
    np.save(tmp_path / "d.npy", data)
    found = collect(model, tmp_path / "d.npy", options=CalibrationOptions(elements=elements)).histograms
    names = [name for name in watched(model) if name != "x"]
    session = onnxruntime.InferenceSession(
        room.to_proto(room._with_outputs(model, names)).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    wanted = {name: Histogram() for name in names}
    for number, sample in enumerate(data):
        for name, array in zip(names, session.run(names, {"x": sample[None]}), strict=True):
            wanted[name].add(array, sample=number, limit=elements)
    assert {name: told(found[name]) for name in names} == {name: told(each) for name, each in wanted.items()}


@pytest.mark.parametrize(
    ("tensors", "largest", "streams", "inside"),
    [(10, 1 << 20, 8, 8), (10, 16 << 20, 2, 32), (1000, 1 << 20, 2, 32), (4000, 1 << 20, 1, 64), (3000, 0, 1, 64)],
)
def test_counters_are_part_of_the_memory_of_a_stream(tensors: int, largest: int, streams: int, inside: int) -> None:
    """128 KiB a tensor, and eight times the largest tensor, in 384 MiB."""
    plan = Plan((), (tuple(map(str, range(tensors))),), 1, 1).streaming(largest, megabytes=384, threads=64)
    assert (plan.streams, plan.threads) == (streams, inside)
    functions = tapping()
    assert functions is None or 2**17 <= functions.size < 2**17 + 100


@pytest.mark.parametrize(
    ("megabytes", "threads", "streams", "inside"), [(384, 1, 1, 1), (384, 6, 6, 1), (384, 64, 8, 8), (1, 64, 8, 8)]
)
def test_samples_side_by_side(megabytes: int, threads: int, streams: int, inside: int) -> None:
    plan = plan_of(load(small_cnn()), {"x": 100_000, "c1": 20_000}, megabytes=megabytes, threads=threads)
    assert (plan.streams, plan.threads) == (streams, inside)


def test_large_tensors_leave_room_for_one_sample() -> None:
    model = load(small_cnn())
    for sizes, groups in (({"x": 1 << 18, "c1": 0}, 1), ({"x": 2 << 20, "c1": 2 << 20}, 2), ({"x": 3 << 18}, 1)):
        plan = plan_of(model, sizes, megabytes=1, threads=4)
        assert (len(plan.groups), plan.streams, plan.threads) == (groups, 1, 4)


def run_on(threads: int, monkeypatch: pytest.MonkeyPatch, path: Path) -> Mapping[str, Histogram]:
    monkeypatch.setattr(room.os, "cpu_count", lambda: threads)
    return collect(load(small_cnn()), path, options=CalibrationOptions(shard=7)).histograms


def test_threads_do_not_change_the_histograms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "d.npy", np.random.default_rng(2).standard_normal((17, 3, 16, 16)).astype(np.float32))
    one, four = (run_on(threads, monkeypatch, tmp_path / "d.npy") for threads in (1, 4))
    assert {name: told(each) for name, each in one.items()} == {name: told(each) for name, each in four.items()}


def test_a_loader_is_asked_in_order_by_one_thread_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "load.py").write_text(
        "import threading, time, numpy\nheld = threading.Lock()\n"
        "class Data:\n"
        "    last = -1\n"
        "    def __len__(self): return 12\n"
        "    def __getitem__(self, index):\n"
        "        assert held.acquire(blocking=False), 'two threads'\n"
        "        time.sleep(0.01)\n"
        "        assert index == Data.last + 1, 'out of order'\n"
        "        Data.last = index\n"
        "        held.release()\n"
        "        return {'x': numpy.full((1, 3, 16, 16), index, numpy.float32)}\n"
        "def data(): return Data()\n"
    )
    monkeypatch.setattr(room.os, "cpu_count", lambda: 4)
    found = collect(load(small_cnn()), f"{tmp_path / 'load.py'}:data").histograms["x"]
    assert (found.low, found.high, found.seen) == (0, 11, 12 * 3 * 16 * 16)


def test_a_bad_sample_ends_all_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.zeros((40, 3, 16, 16), np.float32)
    array[3, 0, 0, 0] = np.nan
    np.save(tmp_path / "d.npy", array)
    monkeypatch.setattr(room.os, "cpu_count", lambda: 4)
    with pytest.raises(OrinportError, match="Sample 3 of"):
        collect(load(small_cnn()), tmp_path / "d.npy", options=CalibrationOptions(shard=40))
