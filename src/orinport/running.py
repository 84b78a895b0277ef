"""`run`: a network on the board (TensorRT or cuDLA) or in ONNX Runtime, and how far its outputs are from the original.

A bundle is run through its record: inputs have the shapes of the original network, moved edges are applied on the way
in and out, INT8 edges are quantised with the bundle's scales, and a tail that was cut off runs in ONNX Runtime.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.device.backends import Backend, CudlaBackend, Edge, OnnxBackend, TensorRTBackend
from orinport.device.built import require_current
from orinport.device.bundle import Workspace
from orinport.device.closing import Closing
from orinport.device.measure import built_core
from orinport.device.record import BundleRecord, read_record
from orinport.device.tensor_layout import known_formats
from orinport.emulation import MIN_SNR, named_source, open_samples, require_ratio
from orinport.errors import OrinportError, first_line
from orinport.model.layer import DType
from orinport.model.load import load
from orinport.model.model import shape_of
from orinport.model.save import to_proto
from orinport.precision.cache import read_scales
from orinport.precision.data import DataSpec, open_data
from orinport.rewrites.edges import board_feed, prepared_shapes
from orinport.rewrites.runnable import runnable
from orinport.targets import list_targets, load_target
from orinport.targets.target import Platform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from orinport.device.tensor_layout import TensorLayout
    from orinport.model.model import Model
    from orinport.precision.data import InputSpec
    from orinport.rewrites.edges import EdgeMapping

__all__ = ["BACKENDS", "OpenNetwork", "OutputRow", "RunOptions", "RunReport", "open_network", "run_network"]

Arrays = dict[str, "NDArray[Any]"]

BACKENDS = ("auto", "tensorrt", "cudla", "onnxruntime")
_SUFFIXES = {
    ".onnx": "onnxruntime",
    ".engine": "tensorrt",
    ".plan": "tensorrt",
    ".trt": "tensorrt",
    ".loadable": "cudla",
    ".dla": "cudla",
}
_FILES = {"tensorrt": "model.engine", "cudla": "model.loadable", "onnxruntime": "model.onnx"}
_CLOCK = "sys/kernel/debug/bpmp/debug/clk/nafll_dla{core}_core/rate"
"""Of a Jetson, in Hz; readable by root."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """On what, with what, and what is asked."""

    backend: str = "auto"
    data: str | None = None
    """Samples as `quantize` takes them; random inputs without."""
    preprocess: Path | None = None
    cases: int = 3
    """How many samples, from the first on; 0 for all of the data."""
    seed: int = 0
    scales: Path | None = None
    """Of INT8 inputs and outputs; a bundle has its own."""
    model: Path | None = None
    """The network that an engine or loadable was built from, where it is not in a bundle."""
    reference: Path | None = None
    """What to compare with; by default the network that was built."""
    compare: bool = True
    input_formats: tuple[str, ...] = ()
    """`type:format` of each input of a loadable that comes without its bundle."""
    output_formats: tuple[str, ...] = ()
    platform: Platform = Platform.ORIN
    dla_core: int | None = None
    """None: the one that a bundle is built for, else 0."""
    plugins: tuple[str, ...] = ()
    warm_up: int = 3
    repeat: int = 10
    """Timed inferences of each sample."""
    min_snr: float = MIN_SNR
    save: Path | None = None
    """A new folder for the outputs."""
    statistics: Path | None = None
    """A CSV file for cuDLA's layer statistics."""
    dla_mhz: int | None = None
    """The DLA's clock; by default the board is asked."""


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One output against the reference, over all samples."""

    name: str
    shape: tuple[int, ...]
    snr_db: float
    max_abs: float
    """Largest difference."""
    broken: int
    """Values that are finite in the reference alone."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """What ran, how long it took, and how its outputs compare."""

    network: str
    backend: str
    device: str
    samples: int
    source: str
    reference: str
    """Empty if nothing was compared."""
    rows: tuple[OutputRow, ...]
    us: tuple[float, ...]
    """Times of single inferences."""
    spans: str
    """What they are the times of."""
    min_snr: float
    layouts: tuple[TensorLayout, ...] = ()
    """Inputs and outputs in the device's memory; empty for ONNX Runtime."""
    files: tuple[Path, ...] = ()
    """What was written."""

    def wrong(self, row: OutputRow) -> bool:
        """The output is too far from the reference."""
        return row.snr_db < self.min_snr or row.broken > 0

    @property
    def good(self) -> bool:
        """No output is too far from the reference."""
        return not any(self.wrong(row) for row in self.rows)


@dataclass(frozen=True, slots=True)
class _Job:
    """What is run: the file for the backend, and what belongs to it."""

    kind: str
    file: Path
    model: Path | None
    record: BundleRecord | None = None
    tail: Path | None = None
    scales: Path | None = None


class OpenNetwork(Closing):
    """A network on its backend; a context manager.

    `run` has the shapes of the board's network, `finish` turns what it gives into what the original network gives.
    """

    def __init__(self, path: Path, options: RunOptions) -> None:
        _require_sane(options)
        self.job = _resolve(path, options)
        _require_applying(self.job, options)
        options = replace(options, dla_core=_core(path, options))
        self.options = options
        self.name = path.name
        self.edges: tuple[EdgeMapping, ...] = () if self.job.record is None else self.job.record.edges
        self.model: Model | None = None if self.job.model is None else load(self.job.model)
        self._stack = ExitStack()
        with ExitStack() as stack:
            self.backend = stack.enter_context(_open_backend(self.job, self.model, options))
            self.tail = None
            if self.job.tail is not None:
                self.tail = stack.enter_context(_onnx(load(self.job.tail)))
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Give everything back."""
        self._stack.close()

    def run(self, feeds: Mapping[str, NDArray[Any]], *, warm_up: int = 0, repeat: int = 1) -> Arrays:
        """The board's outputs of the board's inputs."""
        return self.backend.run(feeds, warm_up=warm_up, repeat=repeat)

    def single(self, array: NDArray[Any]) -> NDArray[Any]:
        """The original network's only output of its only input. Raises OrinportError if there are more."""
        if len(self.backend.inputs) != 1:
            raise OrinportError(f"The network has {len(self.backend.inputs)} inputs.", "It has to have one.")
        sample: Mapping[str, NDArray[Any]] = {self.backend.inputs[0]: array}
        feed = board_feed(self.edges)
        sample = sample if feed is None else feed(sample)
        found = self.finish(self.run(sample), sample)
        names = list(found) if self.tail is None else list(self.tail.outputs)
        if len(names) != 1:
            raise OrinportError(f"The network has {len(names)} outputs: {', '.join(names)}.", "It has to have one.")
        return found[names[0]]

    def finish(self, outputs: Arrays, feeds: Mapping[str, NDArray[Any]]) -> Arrays:
        """The original network's outputs: through the tail, where one was cut off, and back through moved edges."""
        found = dict(outputs)
        if self.tail is not None:
            known = {**feeds, **outputs}
            found |= self.tail.run({name: known[name] for name in self.tail.inputs if name in known})
        return _back(found, self.edges, "output")


def open_network(path: str | Path, options: RunOptions | None = None) -> OpenNetwork:
    """Open a bundle, an engine, a loadable or an ONNX file. Raises OrinportError for what is missing or unfit."""
    return OpenNetwork(Path(path), options or RunOptions())


def run_network(
    path: str | Path, options: RunOptions | None = None, *, progress: Callable[[str], None] | None = None
) -> RunReport:
    """Run a network on samples, compare every output with the reference, and write what was asked for.

    The reference runs in ONNX Runtime: the network that was built, or `options.reference`, which takes the original
    inputs. Files appear whole or not at all. Raises OrinportError.
    """
    chosen = options or RunOptions()
    _require_free(chosen)
    with ExitStack() as stack:
        network = stack.enter_context(open_network(path, chosen))
        if chosen.statistics is not None and not isinstance(network.backend, CudlaBackend):
            raise OrinportError(
                "Layer statistics come from cuDLA.",
                "Run a loadable, or profile the engine with trtexec --exportProfile.",
            )
        frequency = _dla_mhz(network.options) if chosen.statistics is not None else 0
        reference = _reference(network, chosen, stack)
        samples, source = _samples(network, chosen)
        tally = _Tally()
        saved = None if chosen.save is None else stack.enter_context(Workspace(chosen.save))
        for number, sample in enumerate(samples):
            if progress is not None:
                progress(f"sample {number + 1} of {len(samples)}")
            outputs = network.run(sample, warm_up=chosen.warm_up, repeat=chosen.repeat)
            finished = network.finish(outputs, sample)
            if chosen.reference is not None and reference is not None:
                tally.add(reference.run(_original(sample, network.edges)), finished)
            elif reference is not None:
                tally.add(reference.run(sample), outputs)
            if saved is not None:
                np.savez(saved / f"{number}.npz", allow_pickle=False, **finished)
        files = _write(network, chosen, saved, frequency)
        return RunReport(
            network.name,
            network.backend.name,
            network.backend.description,
            len(samples),
            source,
            "" if reference is None else str(chosen.reference or network.job.model),
            tally.rows(),
            tuple(network.backend.us),
            network.backend.spans,
            chosen.min_snr,
            network.backend.layouts,
            files,
        )


# ---------------------------------------------------------------------------------------------- what is run


def _resolve(path: Path, options: RunOptions) -> _Job:
    if options.backend not in BACKENDS:
        raise OrinportError(f"{options.backend!r} is no backend.", f"Use one of {', '.join(BACKENDS)}.")
    if path.is_dir():
        return _bundle(path, options)
    if not path.is_file():
        raise OrinportError(f"There is no file or bundle {str(path)!r}.")
    kind = options.backend if options.backend != "auto" else _SUFFIXES.get(path.suffix.lower(), "")
    if not kind:
        raise OrinportError(f"It is not known what {str(path)!r} is.", "Say it with --backend tensorrt or cudla.")
    is_model = path.suffix.lower() == ".onnx"
    if is_model is not (kind == "onnxruntime"):
        raise OrinportError(
            f"{str(path)!r} cannot be run with {kind}.", "Build a bundle first, or run the ONNX file with onnxruntime."
        )
    return _Job(kind, path, path if is_model else options.model, scales=options.scales)


def _core(path: Path, options: RunOptions) -> int:
    """The DLA core that is meant."""
    if options.dla_core is not None:
        return options.dla_core
    return (built_core(path) or 0) if path.is_dir() else 0


def _bundle(folder: Path, options: RunOptions) -> _Job:
    record = read_record(folder / "report.json")
    kind = options.backend
    if kind == "auto":
        kind = next((name for name in ("tensorrt", "cudla") if (folder / _FILES[name]).is_file()), "")
    if not kind or not (folder / _FILES[kind]).is_file():
        missing = f"no {_FILES[kind]}" if kind else "neither model.engine nor model.loadable"
        raise OrinportError(
            f"{str(folder)!r} holds {missing}.",
            "Build it on the board with orinport build; --backend onnxruntime runs model.onnx here.",
        )
    if kind != "onnxruntime":
        require_current(folder, folder / _FILES[kind])
    own = (folder / name for name in ("scales.json", "calibration.cache"))
    scales = options.scales or next((path for path in own if path.is_file()), None)
    tail = folder / "tail.onnx"
    return _Job(kind, folder / _FILES[kind], folder / "model.onnx", record, tail if tail.is_file() else None, scales)


def _open_backend(job: _Job, model: Model | None, options: RunOptions) -> Backend:
    if job.kind == "onnxruntime":
        assert model is not None
        return _onnx(model)
    scales = {} if job.scales is None else {n: s.value for n, s in read_scales(job.scales).tensors.items()}
    platform = options.platform
    if job.record is not None:
        platform = load_target(job.record.target).platform
    if job.kind == "tensorrt":
        return TensorRTBackend(
            job.file, scales=scales, platform=platform, dla_core=options.dla_core or 0, plugins=options.plugins
        )
    return CudlaBackend(
        job.file,
        _edges(job, model, options.input_formats, is_input=True),
        _edges(job, model, options.output_formats, is_input=False),
        scales=scales,
        platform=platform,
        dla_core=options.dla_core or 0,
        statistics=options.statistics is not None,
    )


def _onnx(model: Model) -> OnnxBackend:
    return OnnxBackend(runnable(to_proto(model)).SerializeToString())


def _edges(job: _Job, model: Model | None, given: Sequence[str], *, is_input: bool) -> list[Edge] | None:
    """What is known of a loadable's inputs or outputs: formats as given or in the bundle, shapes of the network."""
    values = [] if model is None else list(model.graph.inputs if is_input else model.graph.outputs)
    shapes = {value.name or "": shape_of(value) for value in values}
    if given:
        names = list(shapes) if len(shapes) == len(given) else [""] * len(given)
        return [Edge(name, _fixed(shapes.get(name)), *_spelled(text)) for name, text in zip(names, given, strict=True)]
    if job.record is None:
        return None
    formats = job.record.inputs if is_input else job.record.outputs
    return [Edge(name, _fixed(shapes.get(name)), *_spelled(f"{dtype}:{layout}")) for name, dtype, layout in formats]


def _fixed(shape: Any) -> tuple[int, ...]:
    return tuple(int(dim) for dim in shape) if shape is not None and all(isinstance(d, int) for d in shape) else ()


def _spelled(text: str) -> tuple[DType, str]:
    kind, _, layout = text.partition(":")
    if layout not in known_formats() or kind not in [each.value for each in DType]:
        raise OrinportError(
            f"{text!r} is no element type and format.", f"Write int8:chw32; formats are {', '.join(known_formats())}."
        )
    return DType(kind), layout


# ---------------------------------------------------------------------------------------------- what it is fed


def _samples(network: OpenNetwork, options: RunOptions) -> tuple[Sequence[Mapping[str, NDArray[Any]]], str]:
    if network.model is not None:
        return open_samples(
            network.model,
            network.edges,
            data=options.data,
            preprocess=options.preprocess,
            cases=options.cases,
            seed=options.seed,
        )
    specs = network.backend.specs
    if options.data is None:
        rng = np.random.default_rng(options.seed)
        return [_random(specs, rng) for _ in range(max(1, options.cases))], "random inputs"
    preprocess = "" if options.preprocess is None else str(options.preprocess)
    opened = open_data(DataSpec(options.data, specs, preprocess, max(0, options.cases)))
    count = min(len(opened), options.cases) if options.cases > 0 else len(opened)
    return [opened[index] for index in range(count)], named_source(options.data, opened, count)


def _random(specs: Sequence[InputSpec], rng: np.random.Generator) -> Arrays:
    arrays: Arrays = {}
    for spec in specs:
        dtype = np.dtype(spec.dtype)
        if dtype.kind == "f":
            arrays[spec.name] = rng.standard_normal(spec.shape).astype(dtype)
        else:
            arrays[spec.name] = rng.integers(0, 2 if dtype.kind == "b" else 100, spec.shape).astype(dtype)
    return arrays


def _original(sample: Mapping[str, NDArray[Any]], edges: Sequence[EdgeMapping]) -> Arrays:
    return _back(sample, edges, "input")


def _back(arrays: Mapping[str, NDArray[Any]], edges: Sequence[EdgeMapping], kind: str) -> Arrays:
    """Tensors of the board as the original network has them. Raises OrinportError if a record does not fit them."""
    moved = {edge.name: edge for edge in edges if edge.kind == kind}
    try:
        return {name: moved[name].from_board(array) if name in moved else array for name, array in arrays.items()}
    except (ValueError, IndexError) as error:
        raise OrinportError(
            f"The bundle's record of moved edges does not fit its network: {first_line(error)}.",
            "Prepare the network again.",
        ) from error


# ---------------------------------------------------------------------------------------------- what comes of it


def _reference(network: OpenNetwork, options: RunOptions, stack: ExitStack) -> Backend | None:
    if options.reference is not None:
        shapes = prepared_shapes(options.reference, network.model, network.edges)
        return stack.enter_context(_onnx(load(options.reference, shapes=shapes or None)))
    if not options.compare or network.model is None or network.job.kind == "onnxruntime":
        return None
    return stack.enter_context(_onnx(network.model))


class _Tally:
    """Sums over samples, by output: of the squared reference, of the squared difference, and the largest one."""

    def __init__(self) -> None:
        self._signal: dict[str, float] = {}
        self._noise: dict[str, float] = {}
        self._largest: dict[str, float] = {}
        self._broken: dict[str, int] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}

    def add(self, wanted: Mapping[str, NDArray[Any]], had: Mapping[str, NDArray[Any]]) -> None:
        """One sample. Values that are not finite in the reference are left out. Raises OrinportError for misfits."""
        for name, first in wanted.items():
            if name not in had:
                raise OrinportError(
                    f"The reference's output {name!r} is not among those that ran: {', '.join(had)}.",
                    "Is it the same network?",
                )
            if first.shape != had[name].shape:
                raise OrinportError(
                    f"The output {name!r} has the shape {had[name].shape}, and the reference's {first.shape}."
                )
            left, right = first.astype(np.float64), had[name].astype(np.float64)
            known = np.isfinite(left)
            both = known & np.isfinite(right)
            difference = left[both] - right[both]
            self._shapes[name] = tuple(first.shape)
            self._signal[name] = self._signal.get(name, 0.0) + float(np.square(left[both]).sum())
            self._noise[name] = self._noise.get(name, 0.0) + float(np.square(difference).sum())
            self._largest[name] = max(self._largest.get(name, 0.0), float(np.abs(difference).max(initial=0.0)))
            self._broken[name] = self._broken.get(name, 0) + int((known & ~both).sum())

    def rows(self) -> tuple[OutputRow, ...]:
        """What the sums say of every output."""
        return tuple(
            OutputRow(name, shape, self._snr(name), self._largest[name], self._broken[name])
            for name, shape in self._shapes.items()
        )

    def _snr(self, name: str) -> float:
        signal, noise = self._signal[name], self._noise[name]
        if self._broken[name]:
            return -inf
        if noise == 0:
            return inf
        return 10 * log10(signal / noise) if signal else -inf


def _require_free(options: RunOptions) -> None:
    if options.save is not None and options.save.exists():
        raise OrinportError(f"{str(options.save)!r} exists.", "Give --save a new folder.")
    if not options.compare and options.reference is not None:
        raise OrinportError("A reference was given, and nothing is to be compared.", "Leave --no-compare out.")
    if options.data is None and options.preprocess is not None:
        raise OrinportError("Random inputs are not preprocessed.", "Give --data, or leave --preprocess out.")
    if options.statistics is None and options.dla_mhz is not None:
        raise OrinportError("The DLA's clock is for layer statistics.", "Give --statistics, or leave --dla-mhz out.")


def _require_sane(options: RunOptions) -> None:
    """Raise OrinportError for numbers that mean nothing."""
    if options.cases < 0 or options.repeat < 1 or options.warm_up < 0:
        raise OrinportError(
            "The numbers of samples, repetitions and warm-ups cannot be negative, nor repetitions zero."
        )
    if options.seed < 0:
        raise OrinportError(f"The seed {options.seed} is negative.", "Use 0 or more.")
    require_ratio(options.min_snr)


def _require_applying(job: _Job, options: RunOptions) -> None:
    """Raise OrinportError for options that the backend would not look at, and for DLA cores that there are not."""
    kind = job.kind
    formats = options.input_formats or options.output_formats
    given = {
        "--dla-core": options.dla_core is not None and kind == "onnxruntime",
        "--scales": options.scales is not None and kind == "onnxruntime",
        "--model": options.model is not None and kind == "onnxruntime",
        "--plugin": bool(options.plugins) and kind != "tensorrt",
        "--input-formats and --output-formats": bool(formats) and kind != "cudla",
    }
    names = [name for name, wrong in given.items() if wrong]
    if names:
        raise OrinportError(
            f"The backend {kind} has no use for {' and '.join(names)}.", "Leave them out, or choose another --backend."
        )
    if options.dla_core is None:
        return
    targets = list_targets() if job.record is None else (load_target(job.record.target),)
    cores = max(int(target.hardware.figures["dla_cores"].value) for target in targets)
    if not 0 <= options.dla_core < cores:
        raise OrinportError(f"There is no DLA core {options.dla_core}.", f"Use 0 to {cores - 1}.")


def _write(network: OpenNetwork, options: RunOptions, saved: Path | None, frequency: int) -> tuple[Path, ...]:
    files: list[Path] = []
    try:
        if saved is not None and options.save is not None:
            saved.rename(options.save).chmod(0o755)
            files.append(options.save)
        if options.statistics is not None:
            assert isinstance(network.backend, CudlaBackend)
            files += _write_statistics(options.statistics, network.backend.statistics(frequency))
    except OSError as error:
        raise OrinportError(f"{str(error.filename)!r} cannot be written: {error.strerror}.") from error
    return tuple(files)


def _write_statistics(path: Path, texts: Sequence[str]) -> list[Path]:
    """One file a text: FILE.csv, FILE1.csv, ..."""
    files = []
    for number, text in enumerate(texts):
        target = path if number == 0 else path.with_name(f"{path.stem}{number}{path.suffix}")
        partial = target.with_name(f".{target.name}.partial")
        try:
            partial.write_text(text, encoding="utf-8")
            files.append(partial.replace(target))
        finally:
            partial.unlink(missing_ok=True)
    return files


def _dla_mhz(options: RunOptions, root: Path = Path("/")) -> int:
    """The DLA's clock in MHz, which turns its cycles into times."""
    if options.dla_mhz is not None:
        if options.dla_mhz < 1:
            raise OrinportError(f"{options.dla_mhz} MHz is no clock.")
        return options.dla_mhz
    path = root / _CLOCK.format(core=options.dla_core or 0)
    try:
        return round(int(path.read_text(encoding="ascii").strip()) / 1e6)
    except (OSError, ValueError):
        raise OrinportError(
            f"The DLA's clock cannot be read from {str(path)!r}.", "Run as root, or give it with --dla-mhz."
        ) from None
