"""Calibration: exact against ONNX Runtime, and the same however it is divided, interrupted or limited."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, create_calibrator

from builders import network, node, small_cnn
from dcnv4.networks import Guise, Writer
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.precision import calibrate as room
from orinport.precision.calibrate import CalibrationOptions, calibrate, collect, watched
from orinport.precision.plan import groups_of
from orinport.precision.scales import Origin, Scales
from orinport.precision.state import read_state
from orinport.precision.tap import tapping

SAMPLES = 9


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "d.npy"
    np.save(path, np.random.default_rng(3).standard_normal((SAMPLES, 3, 16, 16)).astype(np.float32))
    return path


def values(scales: Scales) -> dict[str, float]:
    return {name: each.value for name, each in scales.tensors.items()}


class Reader(CalibrationDataReader):
    def __init__(self, path: Path) -> None:
        self.samples = iter(np.load(path))

    def get_next(self) -> dict[str, Any] | None:
        sample = next(self.samples, None)
        return None if sample is None else {"x": sample[None]}


def test_min_max_equals_onnx_runtime(data: Path, tmp_path: Path) -> None:
    proto = small_cnn()
    proto = onnx.shape_inference.infer_shapes(proto)
    onnx.save(proto, tmp_path / "m.onnx")
    calibrator = create_calibrator(
        str(tmp_path / "m.onnx"),
        [],
        str(tmp_path / "augmented.onnx"),
        calibrate_method=CalibrationMethod.MinMax,
        extra_options={"symmetric": True},
    )
    calibrator.collect_data(Reader(data))
    ranges = calibrator.compute_data().data.items()
    theirs = {name: float(np.asarray(each.range_value[1]).item()) for name, each in ranges}
    ours = calibrate(load(proto), data, options=CalibrationOptions(method="min-max"))
    assert set(theirs) == set(ours.tensors)
    for name, largest in theirs.items():
        assert ours[name].value == float(np.float32(largest) / np.float32(127)), name


def test_every_floating_point_tensor_is_watched(data: Path) -> None:
    model = load(small_cnn())
    names = set(watched(model))
    assert names == {"x", "c1", "r1", "p1", "c2", "a1", "g1", "f1", "y"}
    scales = calibrate(model, data)
    assert set(scales.tensors) == names
    assert {each.origin for each in scales.tensors.values()} == {Origin.DATA}
    assert scales.method == f"percentile 99.99 on {SAMPLES} samples"


@pytest.mark.parametrize(
    "options",
    [
        CalibrationOptions(shard=1),
        CalibrationOptions(shard=4),
        CalibrationOptions(megabytes=1, shard=100),
        pytest.param(CalibrationOptions(jobs=2, shard=2), id="two processes"),
    ],
)
def test_division_does_not_change_the_scales(data: Path, options: CalibrationOptions) -> None:
    model = load(small_cnn(channels=512))
    assert values(calibrate(model, data, options=options)) == values(calibrate(model, data))


def test_groups_of_outputs_fit_into_memory() -> None:
    groups = groups_of({"a": 600_000, "b": 600_000, "c": 100, "d": 3_000_000}, 1)
    assert groups == (("a",), ("b", "c"), ("d",))


class StopError(Exception):
    """Ends a calibration in the middle."""


@pytest.mark.parametrize("stop", [StopError, KeyboardInterrupt])
def test_an_interrupted_calibration_goes_on_to_the_same_scales(
    data: Path, tmp_path: Path, stop: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(small_cnn())
    options = CalibrationOptions(shard=2, state=tmp_path / "state")
    whole = values(calibrate(model, data))
    seen = 0

    def interrupt(message: str) -> None:
        nonlocal seen
        assert "samples" in message
        seen += 1
        if seen == 3:
            raise stop

    with pytest.raises(stop):
        calibrate(model, data, options=options, progress=interrupt)
    assert (tmp_path / "state").exists()
    run: list[int] = []
    original = room._in_threads

    def in_threads(shards: list[Any], *more: Any) -> Any:
        run.extend(shard.start for shard in shards)
        return original(shards, *more)

    monkeypatch.setattr(room, "_in_threads", in_threads)
    assert values(calibrate(model, data, options=options)) == whole
    assert run == [6, 8]
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("optimised", [True, False])
@pytest.mark.parametrize("where", ["data", "inference"])
def test_an_error_in_one_thread_loses_no_shard_before_it(
    where: str, optimised: bool, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third sample is bad while another thread is still at the first: the two before it are kept."""
    model, array = load(small_cnn()), np.load(data)
    options = CalibrationOptions(shard=2, state=tmp_path / "state", optimised=optimised)
    whole = values(calibrate(model, data, options=CalibrationOptions(optimised=optimised)))
    begun = threading.Barrier(2)
    failed = threading.Event()
    kind = room._Counter if optimised and tapping() is not None else room._Watcher
    watch = kind.watch

    def slow(self: Any, number: int, sample: Any) -> None:
        if number < 2:
            begun.wait(10)
        if number == 0:
            assert failed.wait(10)
            time.sleep(0.2)
        if number == 2 and where == "inference":
            failed.set()
            raise OrinportError("the third sample")
        watch(self, number, sample)

    class Failing:
        identity = room.open_data(room.DataSpec(str(data), room.input_specs(model), "")).identity

        def __len__(self) -> int:
            return len(array)

        def __getitem__(self, number: int) -> dict[str, np.ndarray]:
            if number == 2 and where == "data":
                failed.set()
                raise OrinportError("the third sample")
            return {"x": array[number][None]}

    with monkeypatch.context() as patched:
        patched.setattr(os, "cpu_count", lambda: 2)
        patched.setattr(kind, "watch", slow)
        patched.setattr(room, "open_data", lambda *_: Failing())
        with pytest.raises(OrinportError, match="the third sample"):
            calibrate(model, data, options=options)
    state = read_state(tmp_path / "state", str(np.load(tmp_path / "state")["head"][1]))
    assert state is not None
    assert dict(state.done) == {0: 2}
    assert values(calibrate(model, data, options=options)) == whole


def test_a_state_that_cannot_be_written_is_refused_before_the_work(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "open_data", lambda *_: pytest.fail("the work had begun"))
    with pytest.raises(OrinportError, match="there is no such folder"):
        calibrate(load(small_cnn()), data, options=CalibrationOptions(state=tmp_path / "no" / "state"))


def test_a_state_of_other_data_is_refused(data: Path, tmp_path: Path) -> None:
    model = load(small_cnn())
    options = CalibrationOptions(shard=2, state=tmp_path / "state")

    def interrupt(message: str) -> None:
        raise StopError

    with pytest.raises(StopError):
        calibrate(model, data, options=options, progress=interrupt)
    np.save(data, np.zeros((4, 3, 16, 16), np.float32))
    with pytest.raises(OrinportError, match="another network"):
        calibrate(model, data, options=options)


def test_only_the_first_samples(data: Path) -> None:
    model = load(small_cnn())
    few = collect(model, data, options=CalibrationOptions(samples=2))
    assert few.samples == 2
    assert few.histograms["x"].seen == 2 * 3 * 16 * 16


def test_half_precision_networks(data: Path) -> None:
    proto = network(
        [node("Cast", ["x"], "h", to=10), node("Mul", ["h", "two"], "y")],
        {"x": (1, 3, 16, 16)},
        ["y"],
        {"two": np.array(2, np.float16)},
    )
    scales = calibrate(load(proto), data, options=CalibrationOptions(method="min-max"))
    assert scales["y"].value == pytest.approx(2 * scales["h"].value)


@pytest.mark.parametrize("constant", [0.0, 2.5])
def test_constant_tensors_are_told(data: Path, constant: float) -> None:
    proto = network(
        [node("Mul", ["x", "zero"], "z"), node("Add", ["z", "c"], "k"), node("Add", ["x", "k"], "y")],
        {"x": (1, 3, 16, 16)},
        ["y"],
        {"zero": np.array(0, np.float32), "c": np.array(constant, np.float32)},
    )
    scales = calibrate(load(proto), data)
    told = {f.message.split("'")[1]: f.value for f in scales.findings if f.code == "Q008"}
    assert told == {"z": 0, "k": constant}
    assert scales["z"].origin is Origin.FREE


@pytest.mark.parametrize("method", ["min-max", "percentile"])
@pytest.mark.parametrize(("largest", "told"), [(1e-42, True), (1.49e-36, True), (1.5e-36, False)])
def test_ranges_too_small_for_a_scale_are_told(tmp_path: Path, method: str, largest: float, told: bool) -> None:
    """127 times FP32's smallest normal number is 1.4929e-36; what is smaller gets 1, and not in silence."""
    np.save(tmp_path / "d.npy", np.linspace(0, largest, 64, dtype=np.float32).reshape(2, 1, 32))
    proto = network([node("Relu", ["x"], "y")], {"x": (1, 32)}, ["y"])
    scales = calibrate(load(proto), tmp_path / "d.npy", options=CalibrationOptions(method=method))
    assert {f.code for f in scales.findings} == ({"Q007"} if told else set())
    assert (scales["x"].origin is Origin.FREE) == told


def test_values_that_are_not_finite_are_told(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.stack([np.ones((1, 4), np.float32), np.array([[0, 1, 2, 3]], np.float32)]))
    proto = network([node("Log", ["x"], "l"), node("Relu", ["l"], "y")], {"x": (1, 4)}, ["y"])
    scales = calibrate(load(proto), tmp_path / "d.npy", options=CalibrationOptions(method="min-max"))
    assert [(f.code, f.value) for f in scales.findings if f.code == "Q009"] == [("Q009", 1)]
    assert scales["l"].range == pytest.approx(float(np.log(3)), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (CalibrationOptions(method="best"), "is not a calibration method"),
        (CalibrationOptions(percentile=0), "is not a percentile"),
        (CalibrationOptions(jobs=0), "must be positive"),
        (CalibrationOptions(samples=-1), "must be positive"),
    ],
)
def test_options_that_make_no_sense(data: Path, options: CalibrationOptions, message: str) -> None:
    with pytest.raises(OrinportError, match=message):
        calibrate(load(small_cnn()), data, options=options)


def test_errors_of_other_processes_arrive_in_one_sentence(tmp_path: Path) -> None:
    array = np.zeros((4, 3, 16, 16), np.float32)
    array[3, 0, 0, 0] = np.nan
    np.save(tmp_path / "d.npy", array)
    with pytest.raises(OrinportError, match="Sample 3 of"):
        calibrate(load(small_cnn()), tmp_path / "d.npy", options=CalibrationOptions(jobs=2, shard=1))


def test_a_state_that_cannot_be_written_is_refused_at_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(OrinportError, match="its folder is read-only"):
        calibrate(load(small_cnn()), data, options=CalibrationOptions(state=data.parent / "state"))


def test_networks_that_onnx_runtime_does_not_run(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.zeros((1, 4), np.float32))
    proto = network([node("Nothing", ["x"], "y", domain="custom")], {"x": (1, 4)}, {"y": (1, 4)}, domains={"custom": 1})
    with pytest.raises(OrinportError, match="ONNX Runtime does not run the network"):
        calibrate(load(proto), tmp_path / "d.npy")


def test_nothing_is_left_behind(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    calibrate(load(small_cnn()), data)
    assert not list(scratch.iterdir())
    assert not room._NETWORKS


def test_a_cluster_of_dask_gives_the_same_scales(data: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra 'fleet' is not installed")
    model = load(small_cnn())
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        options = CalibrationOptions(shard=2, scheduler=cluster.scheduler_address)
        assert values(calibrate(model, data, options=options)) == values(calibrate(model, data))


def test_workers_of_a_cluster_find_data_of_a_relative_path(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra 'fleet' is not installed")
    model = load(small_cnn())
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        monkeypatch.chdir(data.parent)
        options = CalibrationOptions(shard=4, scheduler=cluster.scheduler_address)
        assert values(calibrate(model, data.name, options=options)) == values(calibrate(model, data))


def test_workers_of_a_cluster_that_end_are_told(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra 'fleet' is not installed")
    import dask

    (tmp_path / "loader.py").write_text(
        "import os\nimport numpy as np\n\ndef samples():\n"
        f"    if os.getpid() != {os.getpid()}:\n        os._exit(1)\n"
        "    for _ in range(4):\n        yield np.zeros((1, 3, 16, 16), np.float32)\n"
    )
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
    ):
        options = CalibrationOptions(shard=2, scheduler=cluster.scheduler_address)
        with pytest.raises(OrinportError, match="ended before their parts were done"):
            calibrate(load(small_cnn()), f"{tmp_path / 'loader.py'}:samples", options=options)


def test_workers_of_a_cluster_get_the_weights_with_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.random.default_rng(0).standard_normal((48, 64)).astype(np.float32)
    room._write(load(network([node("MatMul", ["x", "w"], "y")], {"x": (1, 48)}, ["y"], {"w": weights})), tmp_path / "m")
    assert len(list(tmp_path.iterdir())) == 2
    content = room._in_one(tmp_path / "m")
    np.testing.assert_array_equal(
        onnx.numpy_helper.to_array(onnx.load_from_string(content).graph.initializer[0]), weights
    )
    monkeypatch.setattr(room, "EMBEDDED_BYTES", 10_000)
    with pytest.raises(OrinportError, match="more than is sent to the workers"):
        room._in_one(tmp_path / "m")


def test_without_dask_the_extra_is_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(OrinportError, match=r"orinport\[fleet\]"):
        calibrate(load(small_cnn()), data, options=CalibrationOptions(scheduler="tcp://127.0.0.1:1"))


def test_networks_with_dcnv4(tmp_path: Path) -> None:
    """The operator runs in its portable form, and every tensor of the given network keeps its name."""
    proto = Writer(Guise(batch=1)).network()
    model = load(proto)
    shape = model.inputs[0].shape
    assert shape is not None
    np.save(tmp_path / "d.npy", np.random.default_rng(0).standard_normal((3, *shape[1:])).astype(np.float32))
    scales = calibrate(model, tmp_path / "d.npy", options=CalibrationOptions(method="min-max"))
    assert set(scales.tensors) == set(watched(model))
    operators = [each.outputs[0].name for each in model.graph if each.domain]
    assert len(operators) == 2
    assert all(scales[str(name)].range > 0 for name in operators)
