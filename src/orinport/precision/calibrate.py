"""`calibrate`: run a network on data and watch every tensor, in bounded memory.

Data is cut into shards of some samples. A shard gives one histogram for each tensor, and histograms add up to the
same result in whatever order (see `histogram`), so that shards may run in several processes or on several
machines, and a calibration that was interrupted goes on from its state file to identical scales.

There are two ways to run the network. As it is written, which is how ONNX Runtime's own calibrator does it: ranges of
`min-max` equal its ranges exactly. And optimised, with elements counted inside ONNX Runtime (see `tapped`), which is
much faster and changes the last bits of the values: for the other methods, whose ranges are edges of bins. A percentile
then agrees within one bin; `mse` and `entropy` choose among nearly equal candidates, and may choose another.

Where a percentile asks only for the largest magnitudes, these are all counted, and the others in some blocks (see
`tails`): its range is the same as if everything had been counted. Where a few samples have misled about which
magnitudes these are, everything is counted in a second run.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from orinport.errors import MissingExtraError, OrinportError, first_line
from orinport.model.layer import DType
from orinport.model.model import dtype_of, shape_of
from orinport.model.runtime import open_session
from orinport.model.save import EMBEDDED_BYTES, copy_model, save, to_proto
from orinport.precision.calibrators import METHODS, find_range, is_exact
from orinport.precision.data import DataSpec, InputSpec, Samples, open_data
from orinport.precision.findings import absurd_range, constant_activation, nonfinite_activation
from orinport.precision.histogram import Histogram
from orinport.precision.plan import Plan, Watched, plan_of
from orinport.precision.processes import in_processes
from orinport.precision.scales import Origin, Scale, Scales
from orinport.precision.state import State, read_state, write_state
from orinport.precision.tails import FEWEST, LEAST_PERCENTILE, PILOTS, Thresholds, pilots, share_of, thresholds_of
from orinport.precision.tap import Taps, tapping
from orinport.precision.tapped import tapped
from orinport.rewrites.runnable import counts_padding_wrong, runnable
from orinport.words import count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orinport.model.model import Model
    from orinport.rules.finding import Finding

__all__ = ["CalibrationOptions", "Collected", "calibrate", "collect", "input_specs", "scales_of", "watched"]

_FLOATS = frozenset({DType.FP32, DType.FP16, DType.FP64})
_STATE_SECONDS = 20.0
_SMALLEST_RANGE = float(np.finfo(np.float32).tiny) * 127
"""No larger range has a step that is a normal number."""
_LARGEST = 256 << 20
"""Bytes of a network that may run optimised: its weights are held several times, as it is and reordered."""
_COUNTER = 1 << 32
"""Values of one tensor and shard that a counter inside ONNX Runtime can hold."""


@dataclass(frozen=True, slots=True)
class CalibrationOptions:
    """How data is watched and how ranges follow from it."""

    method: str = "percentile"
    percentile: float = 99.99
    jobs: int = 1
    """Processes."""
    scheduler: str = ""
    """Address of a dask scheduler whose workers take the shards (extra `fleet`)."""
    state: Path | None = None
    """File that keeps what is done; deleted at the end."""
    samples: int = 0
    """How many samples are used, from the first on; 0 for all."""
    shard: int = 32
    """Samples of one shard."""
    elements: int = 1 << 15
    """Where the network runs as it is written, elements of one tensor and sample that are counted in its histogram,
    evenly spread; 0 for all. Extremes are always those of all elements."""
    optimised: bool = True
    """Whether the network may run optimised, with elements counted inside ONNX Runtime; `min-max` never does."""
    counted: int = 1 << 12
    """Where it does, elements of one tensor and sample that are counted whatever they are, in evenly spread blocks; 0
    for all. Those of the tail that a percentile asks for are always all counted. All elements are with a percentile
    below 99.9, with any other method, and with fewer than 64 samples."""
    megabytes: int = 384
    """Memory for watched tensors: samples run side by side as long as theirs fit; those of a sample that are larger
    are watched in several runs."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What was seen: a histogram for each tensor, and how many samples.

    Where only the tail was counted completely, histograms say from where on they are exact.
    """

    histograms: Mapping[str, Histogram]
    samples: int
    left_out: str = ""
    """What of the data is in no sample."""


@dataclass(frozen=True, slots=True)
class _Shard:
    """Everything that another process needs for its part."""

    model: str
    data: DataSpec
    start: int
    stop: int
    plan: Plan
    elements: int
    content: bytes = field(default=b"", repr=False)
    """The model itself where the process may not see the file."""
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Of the tensors that are counted inside ONNX Runtime; none if the network runs as it is written."""
    thresholds: tuple[Thresholds, ...] = ()
    """Beyond which all elements of these tensors are counted; none: all elements of all of them are."""


def calibrate(
    model: Model,
    data: str | os.PathLike[str],
    *,
    preprocess: str | os.PathLike[str] | None = None,
    options: CalibrationOptions | None = None,
    inputs: tuple[InputSpec, ...] | None = None,
    feed: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Scales:
    """Scales of every floating-point tensor of `model` that exists at run time.

    `inputs` and `feed` are for networks whose inputs were moved: `inputs` says what the data looks like, and
    `feed` turns a sample into what the network takes. Raises OrinportError for bad data, for
    networks that ONNX Runtime does not run, and for inputs without fixed shapes.
    """
    chosen = options or CalibrationOptions()
    collected = collect(model, data, preprocess=preprocess, options=chosen, inputs=inputs, feed=feed, progress=progress)
    return scales_of(collected, method=chosen.method, percentile=chosen.percentile)


def scales_of(collected: Collected, *, method: str = "percentile", percentile: float = 99.99) -> Scales:
    """Scales from what was collected, with findings on tensors that were constant or not finite.

    Raises OrinportError if it was collected for percentiles, and this method or percentile asks for more.
    """
    tensors: dict[str, Scale] = {}
    findings: list[Finding] = []
    for name, histogram in collected.histograms.items():
        if histogram.nonfinite:
            findings.append(nonfinite_activation(name, histogram.nonfinite, histogram.seen))
        if histogram.low > histogram.high:
            continue
        if histogram.low == histogram.high:
            findings.append(constant_activation(name, histogram.low))
        if not is_exact(histogram, method, percentile=percentile):
            raise OrinportError(
                f"Of {name!r} only the largest magnitudes were all counted, which do not give its range.",
                "Collect with the options of that method and percentile.",
            )
        largest = find_range(histogram, method, percentile=percentile)
        if largest > _SMALLEST_RANGE:
            tensors[name] = Scale.of_range(largest, Origin.DATA)
            continue
        tensors[name] = Scale.of_range(1.0, Origin.FREE)
        if largest:
            findings.append(absurd_range(name, largest, "too small for a scale, so that 1 is taken instead"))
    spelled = f"{method} {percentile:g}" if method == "percentile" else method
    left_out = f", {collected.left_out}" if collected.left_out else ""
    return Scales(tensors, f"{spelled} on {count(collected.samples, 'sample')}{left_out}", tuple(findings))


def input_specs(model: Model) -> tuple[InputSpec, ...]:
    """What the network takes. Raises OrinportError unless all shapes are fixed and all types are numbers."""
    specs = []
    for value in model.graph.inputs:
        shape, dtype = shape_of(value), value.dtype
        if shape is None:
            raise OrinportError(f"The input {value.name!r} has no fixed shape.", "Give it with --shapes.")
        if dtype is None or (not dtype.is_floating_point() and not dtype.is_integer() and dtype.name != "BOOL"):
            raise OrinportError(f"The input {value.name!r} takes no numbers.")
        specs.append(InputSpec(value.name or "", shape, str(np.dtype(dtype.numpy()))))
    return tuple(specs)


def watched(model: Model) -> dict[str, int]:
    """The floating-point tensors of the main graph that exist at run time, with their bytes (0: not known)."""
    values = [*model.graph.inputs, *(value for node in model.graph for value in node.outputs)]
    found = {}
    for value in values:
        if value.name and value.const_value is None and dtype_of(value) in _FLOATS:
            shape = shape_of(value)
            found[value.name] = 0 if shape is None else 4 * int(np.prod(shape, dtype=np.int64))
    return found


def collect(
    model: Model,
    data: str | os.PathLike[str],
    *,
    preprocess: str | os.PathLike[str] | None = None,
    options: CalibrationOptions | None = None,
    inputs: tuple[InputSpec, ...] | None = None,
    feed: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Collected:
    """Run `model` on the data and watch its tensors; see `calibrate`."""
    chosen = options or CalibrationOptions()
    _require_sane(chosen, feed is not None)
    specs = input_specs(model) if inputs is None else inputs
    spec = DataSpec(os.fspath(data), specs, "" if preprocess is None else os.fspath(preprocess), chosen.samples)
    samples = open_data(spec)
    total = min(len(samples), chosen.samples) if chosen.samples else len(samples)
    names = watched(model)
    with tempfile.TemporaryDirectory(prefix="orinport-") as folder:
        path = Path(folder) / "watched.onnx"
        threads = max(1, (os.cpu_count() or 1) // chosen.jobs)
        plan = plan_of(model, names, megabytes=chosen.megabytes, threads=threads)
        _write(_with_outputs(model, plan.roots), path)
        streaming = plan.streaming(max(names.values(), default=0), megabytes=chosen.megabytes, threads=threads)
        limit = chosen.counted if _is_about_tails(chosen, total) else 0
        shapes = _countable(model, streaming, path, chosen, limit)
        plan = streaming if shapes else plan
        job = _Shard(str(path), spec, 0, total, plan, limit if shapes else chosen.elements, shapes=shapes)
        signature = ""
        if chosen.state is not None:
            signature = _signature(path, samples, preprocess, chosen, job)
        state = read_state(chosen.state, signature)
        try:
            if state is None:
                state = State({}, {}, _thresholds(job, chosen, samples, feed) if shapes and limit else ())
            if chosen.jobs > 1 or chosen.scheduler:
                _forget(path)
            run = partial(_run, job, chosen, signature, samples, feed, progress)
            histograms = run(state)
            vague = _vague(histograms, chosen)
            if vague:
                if progress is not None:
                    progress(_again(vague))
                histograms = run(State({}, {}))
        finally:
            _forget(path)
    return Collected(histograms, total, samples.left_out if total == len(samples) else "")


def _run(
    job: _Shard,
    options: CalibrationOptions,
    signature: str,
    samples: Samples,
    feed: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]] | None,
    progress: Callable[[str], None] | None,
    state: State,
) -> dict[str, Histogram]:
    """The histograms of all samples, of which `state` has some."""
    shards = [
        replace(job, start=start, stop=min(start + options.shard, job.stop), thresholds=state.thresholds)
        for start in range(0, job.stop, options.shard)
        if start not in state.done
    ]
    with _Keeper(options.state, signature, state, job.stop, progress) as keeper:
        for start, stop, part in _results(shards, options, samples, feed):
            keeper.take(start, stop, part)
    return {name: histogram.weighted() for name, histogram in keeper.histograms.items()}


def _is_about_tails(options: CalibrationOptions, total: int) -> bool:
    """Whether ranges follow from the largest magnitudes alone, and samples are enough to know beforehand which."""
    return options.method == "percentile" and options.percentile >= LEAST_PERCENTILE and total >= FEWEST


def _vague(histograms: Mapping[str, Histogram], options: CalibrationOptions) -> list[str]:
    """Tensors whose ranges would be estimates, because less was counted completely than they ask for."""
    return [
        name
        for name, histogram in histograms.items()
        if not is_exact(histogram, options.method, percentile=options.percentile)
    ]


def _again(vague: Sequence[str]) -> str:
    return (
        f"calibrating again, all elements counted: {PILOTS} samples misled about {count(len(vague), 'tensor')},"
        f" the first {vague[0]!r}"
    )


def _require_sane(options: CalibrationOptions, fed: bool) -> None:
    if options.method not in METHODS:
        raise OrinportError(f"{options.method!r} is not a calibration method.", f"Use one of {', '.join(METHODS)}.")
    if not 0 < options.percentile <= 100:
        raise OrinportError(f"{options.percentile:g} is not a percentile.", "Use more than 0 and at most 100.")
    if (
        min(options.jobs, options.shard, options.megabytes) < 1
        or min(options.samples, options.elements, options.counted) < 0
    ):
        raise OrinportError(
            "Numbers of processes, shards and megabytes must be positive, those of samples and elements at least 0."
        )
    if options.method != "percentile" and options.percentile != CalibrationOptions().percentile:
        raise OrinportError(
            f"The method {options.method!r} has no percentile.", "Leave --percentile out, or use --method percentile."
        )
    if options.scheduler and options.jobs > 1:
        raise OrinportError(
            "The workers of a dask scheduler are the processes.", "Leave --jobs out where there is --scheduler."
        )
    if options.state is not None:
        folder = options.state.absolute().parent
        if not folder.is_dir():
            raise OrinportError(f"The state {str(options.state)!r} cannot be written: there is no such folder.")
        if not os.access(folder, os.W_OK):
            raise OrinportError(f"The state {str(options.state)!r} cannot be written: its folder is read-only.")
    if fed and (options.jobs > 1 or options.scheduler):
        raise OrinportError("A network whose inputs were moved is calibrated in one process.", "Leave --jobs out.")


def _countable(
    model: Model, plan: Plan, path: Path, options: CalibrationOptions, limit: int
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The tensors to be counted inside ONNX Runtime, with their shapes; none if the network has to run as written."""
    exact = options.method == "min-max" or not options.optimised
    if exact or sum(file.stat().st_size for file in path.parent.iterdir()) > _LARGEST or tapping() is None:
        return ()
    values = [*model.graph.inputs, *(value for node in model.graph for value in node.outputs)]
    roots = {value.name: value for value in values if value.name in plan.roots}
    shapes = {name: shape_of(value) for name, value in roots.items() if dtype_of(value) is DType.FP32}
    found = tuple((name, shape) for name, shape in shapes.items() if name is not None and shape is not None)
    largest = max((prod(shape) for _, shape in found), default=0)
    if len(found) < len(plan.roots) or options.shard * largest >= _COUNTER:
        return ()
    try:
        network = _Network(str(path), found, plan.threads, limit)
    except Exception:  # then the network runs as it is written, or that says why it does not
        return ()
    _NETWORKS.clear()
    _NETWORKS[str(path), plan.threads, True] = network
    return found


def _with_outputs(model: Model, names: Iterable[str]) -> Model:
    """A copy whose watched tensors are outputs, in FP32 where ONNX Runtime gives them so."""
    copy = copy_model(model)
    graph = copy.ir.graph
    wanted = set(names) - {value.name for value in graph.outputs} - {value.name for value in graph.inputs}
    for node in graph:
        for value in node.outputs:
            if value.name in wanted:
                graph.outputs.append(value)
    return copy


def _write(model: Model, path: Path) -> None:
    """Write the network as ONNX Runtime takes it: operators of ours as standard ones."""
    nodes = list(model.ir.graph.all_nodes())
    standard = {node.domain for node in nodes} <= {"", "ai.onnx"}
    if standard and not (counts_padding_wrong() and any(node.op_type == "AveragePool" for node in nodes)):
        save(model, path, apart=True)
        return
    path.write_bytes(runnable(to_proto(model)).SerializeToString(deterministic=True))


# ---------------------------------------------------------------------------------------------- shards


def _results(
    shards: list[_Shard],
    options: CalibrationOptions,
    samples: Samples,
    feed: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]] | None,
) -> Iterator[tuple[int, int, dict[str, Histogram]]]:
    """Shards as they are done: first and last sample, and the histograms."""
    if options.scheduler:
        yield from _on_fleet(shards, options.scheduler)
    elif options.jobs > 1 and len(shards) > 1:
        for shard, part in in_processes(run_shard, shards, options.jobs):
            yield shard.start, shard.stop, part
    elif shards:
        yield from _in_threads(shards, samples, feed)


def _on_fleet(shards: list[_Shard], scheduler: str) -> Iterator[tuple[int, int, dict[str, Histogram]]]:
    """Shards on the workers of a dask scheduler; they need orinport, and the data under the same absolute path."""
    try:
        from distributed import Client, KilledWorker
        from distributed import as_completed as completed
    except ModuleNotFoundError as error:
        raise MissingExtraError("distributed", "fleet", "Calibration on several machines") from error
    if not shards:
        return
    try:
        client = Client(scheduler, timeout=20)
    except (OSError, ValueError, TimeoutError) as error:
        raise OrinportError(f"The dask scheduler {scheduler!r} does not answer: {error}.") from error
    with client:
        content = client.scatter(_in_one(Path(shards[0].model)), broadcast=True)
        spec = shards[0].data
        # Workers have current folders of their own.
        preprocess = str(Path(spec.preprocess).resolve()) if spec.preprocess else ""
        spec = replace(spec, data=str(Path(spec.data).resolve()), preprocess=preprocess)
        futures = {
            client.submit(run_shard_of, replace(shard, data=spec), content, pure=False): shard for shard in shards
        }
        for future in completed(list(futures)):
            try:
                part = future.result()
            except (CancelledError, KilledWorker) as error:
                raise OrinportError(
                    f"The workers of the dask scheduler {scheduler!r} ended before their parts were done.",
                    "If memory ran out on them, give them more, or calibrate with fewer at once.",
                ) from error
            yield futures[future].start, futures[future].stop, part


def _in_one(path: Path) -> bytes:
    """The network of a file with its weights. Raises OrinportError if they are more than one file can hold."""
    size = sum(file.stat().st_size for file in path.parent.iterdir())
    if size > EMBEDDED_BYTES:
        raise OrinportError(
            f"The network takes {size} bytes, more than is sent to the workers of a dask scheduler.",
            "Use --jobs in place of --scheduler.",
        )
    proto = onnx.load_from_string(path.read_bytes())
    onnx.load_external_data_for_model(proto, str(path.parent))
    return bytes(proto.SerializeToString(deterministic=True))


def run_shard_of(shard: _Shard, content: bytes) -> dict[str, Histogram]:
    """`run_shard` where the model comes as bytes."""
    return run_shard(replace(shard, content=content, model=hashlib.sha256(content).hexdigest()))


def run_shard(shard: _Shard) -> dict[str, Histogram]:
    """The histograms of a shard, in whatever process this is called."""
    return next(part for _, _, part in _in_threads([shard], _samples(shard.data), None))


@lru_cache(maxsize=2)
def _samples(spec: DataSpec) -> Samples:
    return open_data(spec)


class _Network:
    """A session of a network with what is counted inside it, if anything is."""

    def __init__(
        self, source: str | bytes, shapes: tuple[tuple[str, tuple[int, ...]], ...], threads: int, limit: int
    ) -> None:
        self.slots: dict[str, int] = {}
        self.output = ""
        if not shapes:
            self.session = open_session(source, threads=threads, optimise=False)
            return
        functions = tapping()
        if functions is None:
            raise OrinportError(
                "Tensors cannot be counted inside ONNX Runtime on this machine, but on the one that began.",
                "Install a C compiler here, or set ORINPORT_COMPILE=0 there.",
            )
        # The session keeps what it has mapped when the files are gone.
        with tempfile.TemporaryDirectory(prefix="orinport-") as folder:
            network = tapped(source, dict(shapes), threads, Path(folder), limit=limit)
            self.slots, self.output = dict(network.slots), network.output
            self.session = open_session(str(network.path), threads=threads, optimise=False, operators=functions.path)


_NETWORKS: dict[tuple[str, int, bool], _Network] = {}


def _network(shard: _Shard) -> _Network:
    """A shard's network; one is kept for each process."""
    key = (shard.model, shard.plan.threads, bool(shard.shapes))
    if key not in _NETWORKS:
        _NETWORKS.clear()
        try:
            _NETWORKS[key] = _Network(shard.content or shard.model, shard.shapes, shard.plan.threads, shard.elements)
        except OrinportError:
            raise
        except Exception as error:
            raise OrinportError(f"ONNX Runtime does not run the network: {first_line(error).rstrip('.')}.") from error
    return _NETWORKS[key]


def _forget(path: Path) -> None:
    for key in [key for key in _NETWORKS if key[0] == str(path)]:
        del _NETWORKS[key]


def _in_threads(
    shards: Sequence[_Shard],
    samples: Samples,
    feed: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]] | None,
) -> Iterator[tuple[int, int, dict[str, Histogram]]]:
    """Shards of one network in their order, their samples shared out among as many threads as the plan says.

    Threads do not wait for each other at the end of a shard: each hands over what it has of one when it goes on. When a
    sample fails, the others that were taken are finished first, so that the shards before it are whole.
    """
    network, plan = _network(shards[0]), shards[0].plan
    streams = min(plan.streams, sum(shard.stop - shard.start for shard in shards))
    left = _Left(shards, samples, feed)
    ready: SimpleQueue[_Handed] = SimpleQueue()

    def work(stream: int) -> None:
        at = 0
        try:
            with _watcher(network, shards[0]) as watcher:
                error = None
                try:
                    while (taken := left.take()) is not None:
                        if taken.shard != at:
                            ready.put(_Handed(stream, at, taken.shard, watcher.drain()))
                            at = taken.shard
                        with left.failing_at(at):
                            watcher.watch(taken.number, taken.sample)
                except BaseException as raised:  # raised again where the results are taken
                    error = raised
                ready.put(_Handed(stream, at, len(shards), watcher.drain(), last=True, error=error))
        except BaseException as raised:
            left.stop(at)
            ready.put(_Handed(stream, at, len(shards), {}, last=True, error=raised))

    found: dict[int, dict[Watched, Histogram]] = {}
    reached, done, running = [0] * streams, 0, streams
    failure: BaseException | None = None
    with ThreadPoolExecutor(streams) as pool:
        try:
            for stream in range(streams):
                pool.submit(work, stream)
            while running:
                handed = ready.get()
                running -= handed.last
                failure = failure or handed.error
                into = found.setdefault(handed.shard, {})
                for tensor, histogram in handed.part.items():
                    into.setdefault(tensor, Histogram()).merge(histogram)
                reached[handed.stream] = handed.reached
                whole = min(*reached, left.end)
                for index in range(done, whole):
                    yield shards[index].start, shards[index].stop, plan.named(found.pop(index))
                done = max(done, whole)
        finally:
            left.stop(done)
    if failure is not None:
        raise failure


@dataclass(frozen=True, slots=True)
class _Handed:
    """What a thread has of a shard, and the shard that it is at now; with the last, what has ended the thread."""

    stream: int
    shard: int
    reached: int
    part: dict[Watched, Histogram]
    last: bool = False
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class _Taken:
    """A sample, its number, and the number of its shard."""

    shard: int
    number: int
    sample: Mapping[str, NDArray[Any]]


class _Left:
    """The samples of shards that nobody has taken yet, for several threads; read one after the other."""

    def __init__(
        self,
        shards: Sequence[_Shard],
        samples: Samples,
        feed: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]] | None,
    ) -> None:
        self._lock = threading.Lock()
        self.end = len(shards)
        """The first shard that will not be whole."""
        self._numbers = iter(
            [(index, number) for index, shard in enumerate(shards) for number in range(shard.start, shard.stop)]
        )
        self._samples, self._feed = samples, feed

    def stop(self, shard: int) -> None:
        """Hand out nothing more, since this shard will not be whole."""
        with self._lock:
            self._stop(shard)

    def _stop(self, shard: int) -> None:
        self._numbers = iter([])
        self.end = min(self.end, shard)

    @contextmanager
    def failing_at(self, shard: int) -> Iterator[None]:
        """Stop if what is done with a sample of this shard fails."""
        try:
            yield
        except BaseException:
            self.stop(shard)
            raise

    def take(self) -> _Taken | None:
        """The next sample; None when there is none."""
        with self._lock:
            taken = next(self._numbers, None)
            if taken is None:
                return None
            try:
                sample: Mapping[str, NDArray[Any]] = self._samples[taken[1]]
                return _Taken(*taken, sample if self._feed is None else self._feed(sample))
            except BaseException:
                self._stop(taken[0])
                raise


class _Counter:
    """Histograms of samples that this thread runs, counted inside ONNX Runtime."""

    def __init__(self, network: _Network, shard: _Shard) -> None:
        functions = tapping()
        assert functions is not None
        self._network, self._plan = network, shard.plan
        self._taps = Taps(functions, len(network.slots))
        self._everything = not shard.thresholds
        for (name, _), (above, below) in zip(shard.shapes, shard.thresholds, strict=False):
            self._taps.split(network.slots[name], above, below)

    def __enter__(self) -> _Counter:
        self._taps.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._taps.__exit__(*error)

    def watch(self, number: int, sample: Mapping[str, NDArray[Any]]) -> None:
        """Run the sample of this number."""
        self._taps.begin(number, everything=self._everything)
        _outputs(self._network.session, [self._network.output], sample)

    def drain(self) -> dict[Watched, Histogram]:
        """What was seen since the last time."""
        drained = self.drain_both()
        return {tensor: drained[tensor.name][tensor.rectified] for tensor in self._plan.tensors}

    def drain_both(self) -> dict[str, tuple[Histogram, Histogram]]:
        """What was seen since the last time, of every tensor and of its ReLU."""
        slots = self._network.slots
        drained = {slot: self._taps.drain(slot) for slot in set(slots.values())}
        return {name: drained[slot] for name, slot in slots.items()}


class _Watcher:
    """Histograms of samples that this thread runs, from the tensors that ONNX Runtime hands out."""

    def __init__(self, network: _Network, shard: _Shard) -> None:
        self._session, self._plan, self._elements = network.session, shard.plan, shard.elements
        self._given = {value.name for value in self._session.get_inputs()}
        self._histograms = {tensor: Histogram() for tensor in self._plan.tensors}

    def __enter__(self) -> _Watcher:
        return self

    def __exit__(self, *_: object) -> None: ...

    def watch(self, number: int, sample: Mapping[str, NDArray[Any]]) -> None:
        """Run the sample of this number."""
        for group in self._plan.groups:
            wanted = [name for name in group if name not in self._given]
            arrays = {name: sample[name] for name in group if name in self._given}
            arrays.update(zip(wanted, _outputs(self._session, wanted, sample), strict=True))
            for name, array in arrays.items():
                rectified = self._histograms.get(Watched(name, rectified=True))
                self._histograms[Watched(name)].add(array, sample=number, limit=self._elements, rectified=rectified)

    def drain(self) -> dict[Watched, Histogram]:
        """What was seen since the last time."""
        seen = self._histograms
        self._histograms = {tensor: Histogram() for tensor in self._plan.tensors}
        return seen


def _watcher(network: _Network, shard: _Shard) -> _Counter | _Watcher:
    return _Counter(network, shard) if shard.shapes else _Watcher(network, shard)


def _outputs(session: Any, wanted: list[str], sample: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    if not wanted:
        return []
    try:
        outputs: list[NDArray[Any]] = session.run(wanted, dict(sample))
    except Exception as error:
        raise OrinportError(f"ONNX Runtime fails on the data: {first_line(error).rstrip('.')}.") from error
    return outputs


def _thresholds(
    job: _Shard,
    options: CalibrationOptions,
    samples: Samples,
    feed: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]] | None,
) -> tuple[Thresholds, ...]:
    """From which magnitudes on all elements of the tensors of `job` are counted, judged by a few samples.

    None if all elements are counted anyway.
    """
    if all(prod(shape) <= job.elements for _, shape in job.shapes):
        return ()
    network = _network(job)
    numbers = pilots(job.stop)
    taken = [samples[number] for number in numbers]

    def watch(number: int, sample: Mapping[str, NDArray[Any]]) -> dict[str, tuple[Histogram, Histogram]]:
        with _Counter(network, job) as counter:
            counter.watch(number, sample if feed is None else feed(sample))
            return counter.drain_both()

    with ThreadPoolExecutor(job.plan.streams) as pool:
        seen = list(pool.map(watch, numbers, taken))
    share = share_of(options.percentile)
    return tuple(
        thresholds_of([each[name] for each in seen], share) if prod(shape) > job.elements else (0.0, 0.0)
        for name, shape in job.shapes
    )


# ---------------------------------------------------------------------------------------------- state


def _signature(
    path: Path,
    samples: Samples,
    preprocess: str | os.PathLike[str] | None,
    options: CalibrationOptions,
    job: _Shard,
) -> str:
    """Changes with everything that the histograms depend on."""
    digest = hashlib.sha256()
    for file in sorted(path.parent.iterdir()):
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    elements: object = job.elements
    if job.shapes:
        elements = f"optimised {job.elements} {share_of(options.percentile) if job.elements else 0}"
    digest.update(f"{samples.identity} {options.shard} {elements} {job.stop}".encode())
    if preprocess is not None:
        digest.update(Path(preprocess).read_bytes())
    return digest.hexdigest()


class _Keeper:
    """Adds shards up, tells of the progress, and writes the state now and then and on the way out."""

    def __init__(
        self,
        path: Path | None,
        signature: str,
        state: State,
        total: int,
        progress: Callable[[str], None] | None,
    ) -> None:
        self.path, self.signature, self.thresholds = path, signature, state.thresholds
        self.done, self.histograms = dict(state.done), dict(state.histograms)
        self.total, self.progress = total, progress
        self.saved = self.started = time.monotonic()
        self.before = sum(stop - start for start, stop in self.done.items())

    def __enter__(self) -> _Keeper:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.path is None:
            return
        if kind is None:
            self.path.unlink(missing_ok=True)
        elif self.done:
            self._write(self.path)

    def _write(self, path: Path) -> None:
        write_state(path, self.signature, State(self.done, self.histograms, self.thresholds))

    def take(self, start: int, stop: int, part: Mapping[str, Histogram]) -> None:
        """Add one shard."""
        for name, histogram in part.items():
            self.histograms.setdefault(name, Histogram()).merge(histogram)
        self.done[start] = stop
        now = time.monotonic()
        if self.path is not None and now - self.saved > _STATE_SECONDS:
            self._write(self.path)
            self.saved = now
        if self.progress is not None:
            self.progress(self._words(now))

    def _words(self, now: float) -> str:
        seen = sum(stop - start for start, stop in self.done.items())
        rate = (seen - self.before) / max(now - self.started, 1e-9)
        return (
            f"calibrating: {seen} of {count(self.total, 'sample')}, {(self.total - seen) / max(rate, 1e-9):.0f} s left"
        )
