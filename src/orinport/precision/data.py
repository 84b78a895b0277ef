"""Calibration data: samples that fit the network's inputs, from arrays, folders, pictures or a Python function.

A sample holds one array for each input, in the shape and type that the network takes. `open_data` says what
is wrong with bad data, one sentence for each kind. Everything here can be opened again in another process from
a `DataSpec`.

`file.py:function` runs the user's own Python code, with all that it may do.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.arrays import read_arrays
from orinport.errors import OrinportError, first_line
from orinport.precision.preprocess import Preprocessing, read_preprocessing
from orinport.words import count, some

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DataSpec", "InputSpec", "Samples", "open_data"]

Arrays = dict[str, "NDArray[Any]"]

_PICTURES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
_ARRAYS = frozenset({".npy", ".npz"})


@dataclass(frozen=True, slots=True)
class InputSpec:
    """Name, shape and NumPy type of one input."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def batch(self) -> int:
        """Size of the first dimension, 1 for scalars."""
        return self.shape[0] if self.shape else 1


@dataclass(frozen=True, slots=True)
class DataSpec:
    """Where samples come from, as another process can open them."""

    data: str
    inputs: tuple[InputSpec, ...]
    preprocess: str = ""
    most: int = 0
    """Samples that are asked for, 0 for all; a function that yields without end is read no further."""


class Samples(ABC):
    """Samples by number."""

    inputs: tuple[InputSpec, ...]
    identity: str
    """Changes when the data changes: what an interrupted calibration is compared by."""
    left_out: str = ""
    """What of the data is in no sample, in a few words; empty if all of it is."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples."""

    @abstractmethod
    def load(self, index: int) -> tuple[Arrays, str]:
        """The arrays of a sample as they come, and what to call it in an error."""

    def __getitem__(self, index: int) -> Arrays:
        """One sample, checked. Raises OrinportError if it does not fit the network."""
        arrays, name = self.load(index)
        missing = [each.name for each in self.inputs if each.name not in arrays]
        if missing:
            raise OrinportError(f"{name} has no array for the input {missing[0]!r}; it has {', '.join(arrays)}.")
        return {each.name: _fitting(arrays[each.name], each, name) for each in self.inputs}


def _fitting(array: Any, spec: InputSpec, name: str) -> NDArray[Any]:
    try:
        values = np.asarray(array)
    except ValueError as error:
        raise OrinportError(f"{name}: {spec.name!r} is no array: its rows differ in length.") from error
    except Exception as error:  # of the object's own code: tensors of PyTorch that need gradients, for one
        raise OrinportError(f"{name}: {spec.name!r} is no array: {first_line(error).rstrip('.')}.") from error
    if values.dtype == object or values.dtype.kind not in "fiub":
        raise OrinportError(f"{name}: {spec.name!r} holds no numbers but {values.dtype}.")
    if values.shape == spec.shape[1:] and spec.batch == 1 and spec.shape:
        values = values[None]
    if values.shape != spec.shape:
        raise OrinportError(
            f"{name}: {spec.name!r} has the shape {_by(values.shape)}, and the network takes {_by(spec.shape)}.",
            "Prepare the data as the network takes it, or give other --shapes.",
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = int((~np.isfinite(values)).sum())
        raise OrinportError(
            f"{name}: {count(bad, 'element')} of {spec.name!r} {'is' if bad == 1 else 'are'} NaN or infinite."
        )
    with np.errstate(over="ignore", invalid="ignore"):
        cast = np.ascontiguousarray(values, dtype=np.dtype(spec.dtype))
    kept = np.isfinite(cast).all() if cast.dtype.kind == "f" else np.array_equal(cast, values)
    if cast.dtype != values.dtype and not kept:
        raise OrinportError(
            f"{name}: {spec.name!r} holds values that {cast.dtype}, the type of the input, does not.",
            "Convert the data to the type that the network takes.",
        )
    return cast


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "()"


def open_data(spec: DataSpec) -> Samples:
    """The samples of a spec. Raises OrinportError if there are none."""
    path = Path(spec.data)
    if not path.exists() and ":" in spec.data:
        file, _, function = spec.data.rpartition(":")
        if file.endswith(".py"):
            return _Loader(spec.inputs, Path(file), function, spec.most)
    if not path.exists():
        raise OrinportError(
            f"The data {spec.data!r} does not exist.", "Give a folder, a .npy or .npz file, or FILE.py:FUNCTION."
        )
    if path.is_dir():
        return _open_folder(path, spec)
    if path.suffix.lower() in _ARRAYS:
        return _Stacked(spec.inputs, path)
    if path.suffix.lower() in _PICTURES:
        return _Pictures(spec.inputs, [path], _preprocessing(spec))
    raise OrinportError(
        f"{spec.data!r} is no kind of data that is known.", "Give a folder, a .npy or .npz file, or FILE.py:FUNCTION."
    )


def _open_folder(path: Path, spec: DataSpec) -> Samples:
    files = sorted(each for each in path.rglob("*") if _counts(each, path))
    arrays = [each for each in files if each.suffix.lower() in _ARRAYS]
    pictures = [each for each in files if each.suffix.lower() in _PICTURES]
    if not files:
        raise OrinportError(f"The folder {str(path)!r} is empty.", "Put pictures, .npy or .npz files into it.")
    if arrays and pictures:
        raise OrinportError(
            f"The folder {str(path)!r} holds both pictures and arrays.", "Keep them in different folders."
        )
    if arrays:
        return _Chain(spec.inputs, [_Stacked(spec.inputs, each) for each in arrays])
    if pictures:
        return _Pictures(spec.inputs, pictures, _preprocessing(spec))
    raise OrinportError(f"The folder {str(path)!r} holds neither pictures nor .npy or .npz files.")


def _counts(file: Path, folder: Path) -> bool:
    """False for folders and what is hidden, alone or with its folder. Raises OrinportError for links to nowhere."""
    if any(part.startswith(".") for part in file.relative_to(folder).parts):
        return False
    if file.is_symlink() and not file.exists() and file.suffix.lower() in _ARRAYS | _PICTURES:
        raise OrinportError(f"{str(file)!r} is a link to nothing.", "Remove it, or mount what it points to.")
    return file.is_file()


def _preprocessing(spec: DataSpec) -> dict[str, Preprocessing]:
    if not spec.preprocess:
        raise OrinportError(
            "How a picture becomes the network's input is not known.",
            "Describe it in a TOML file and give --preprocess.",
        )
    if len(spec.inputs) != 1:
        raise OrinportError(
            f"A folder of pictures feeds one input, and the network has {len(spec.inputs)}.", "Give .npz files instead."
        )
    return read_preprocessing(Path(spec.preprocess), tuple(each.name for each in spec.inputs))


def _rest(number: int, batch: int, what: str) -> str:
    """That the last of `number` fill no batch; empty if they do."""
    rest = number % batch
    return f"without the last {rest} of {number} {what}, too few for a batch of {batch}" if rest else ""


class _Pictures(Samples):
    """A picture a batch entry, in the order of their paths."""

    def __init__(
        self, inputs: tuple[InputSpec, ...], files: list[Path], preprocessing: Mapping[str, Preprocessing]
    ) -> None:
        self.inputs = inputs
        self.files = files
        self.preprocessing = preprocessing[inputs[0].name]
        self.identity = _identity(files, repr(self.preprocessing))
        self.preprocessing.size(inputs[0].shape)
        if len(self) == 0:
            raise OrinportError(f"{count(len(files), 'picture')} do not fill one batch of {inputs[0].batch}.")
        self.left_out = _rest(len(files), inputs[0].batch, "pictures")

    def __len__(self) -> int:
        return int(len(self.files) // self.inputs[0].batch)

    def load(self, index: int) -> tuple[Arrays, str]:
        spec = self.inputs[0]
        files = self.files[index * spec.batch : (index + 1) * spec.batch]
        batch = np.stack([self.preprocessing.read(each, spec.shape) for each in files])
        return {spec.name: batch}, str(files[0])


class _Stacked(Samples):
    """One .npy or .npz file: arrays of whole samples, one behind the other along the first dimension."""

    def __init__(self, inputs: tuple[InputSpec, ...], path: Path) -> None:
        self.inputs = inputs
        self.path = path
        self.arrays = _read_arrays(path, inputs)
        self.identity = _identity([path])
        lengths = {each.name: self._length(each) for each in inputs}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{number} of {name!r}" for name, number in lengths.items())
            raise OrinportError(f"{str(path)!r} holds different numbers of samples: {told}.")
        self.length = next(iter(lengths.values()), 0)
        rests = [
            _rest(len(self.arrays[each.name]), each.batch, f"entries of {each.name!r} in {path.name!r}")
            for each in inputs
            if each.shape and self.arrays[each.name].ndim == len(each.shape)
        ]
        self.left_out = some([each for each in rests if each])

    def _length(self, spec: InputSpec) -> int:
        array = self.arrays[spec.name]
        if array.shape == spec.shape:
            return 1
        if array.shape == spec.shape[1:] and spec.batch == 1:
            return 1
        if array.ndim == len(spec.shape) + 1 and array.shape[1:] == spec.shape:
            number = array.shape[0]
        elif array.shape[1:] == spec.shape[1:] and spec.shape:
            number = array.shape[0] // spec.batch
        else:
            raise OrinportError(
                f"{str(self.path)!r}: {spec.name!r} has the shape {_by(array.shape)}, and the network takes"
                f" {_by(spec.shape)}.",
                f"Stack samples along the first dimension: Nx{_by(spec.shape[1:])}.",
            )
        if not number:
            raise OrinportError(f"{str(self.path)!r} holds no whole sample of {spec.name!r}.")
        return int(number)

    def __len__(self) -> int:
        return self.length

    def load(self, index: int) -> tuple[Arrays, str]:
        sample = {}
        for spec in self.inputs:
            array = self.arrays[spec.name]
            if array.shape in (spec.shape, spec.shape[1:]) and self.length == 1:
                sample[spec.name] = array
            elif array.ndim == len(spec.shape) + 1:
                sample[spec.name] = array[index]
            else:
                sample[spec.name] = array[index * spec.batch : (index + 1) * spec.batch]
        return sample, f"Sample {index} of {str(self.path)!r}"


def _read_arrays(path: Path, inputs: tuple[InputSpec, ...]) -> dict[str, NDArray[Any]]:
    held = read_arrays(path, mapped=True)
    if len(inputs) == 1 and len(held) == 1:
        return {inputs[0].name: next(iter(held.values()))}
    missing = [each.name for each in inputs if each.name not in held]
    if missing:
        names = ", ".join(name for name in held if name) or "one array without a name"
        raise OrinportError(
            f"{str(path)!r} has no array for the input {missing[0]!r}; it has {names}.",
            "Save it with numpy.savez(path, **{input name: array}).",
        )
    return {each.name: held[each.name] for each in inputs}


class _Chain(Samples):
    """Several files, one behind the other."""

    def __init__(self, inputs: tuple[InputSpec, ...], parts: list[_Stacked]) -> None:
        self.inputs = inputs
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])
        self.left_out = some([part.left_out for part in parts if part.left_out])
        self.identity = hashlib.sha256("".join(part.identity for part in parts).encode()).hexdigest()

    def __len__(self) -> int:
        return int(self.ends[-1])

    def load(self, index: int) -> tuple[Arrays, str]:
        part = int(np.searchsorted(self.ends, index, side="right"))
        before = int(self.ends[part - 1]) if part else 0
        return self.parts[part].load(index - before)


class _ToStderr:
    """What is printed goes to stderr, until the last of the threads inside has left."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._stack = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._stack.enter_context(redirect_stdout(sys.stderr))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._stack.close()


_PRINTED = _ToStderr()


class _Loader(Samples):
    """What the user's function gives: a sequence of samples, or anything that can be iterated.

    A sample is a mapping from input names to arrays, or the array of the only input. What has no length is
    iterated once to count it, up to `most` samples.
    """

    def __init__(self, inputs: tuple[InputSpec, ...], path: Path, function: str, most: int = 0) -> None:
        self.inputs = inputs
        self.name = f"{path}:{function}"
        self.function = _load_function(path, function)
        self.identity = _identity([path], function)
        self.sequence: Sequence[Any] | None = None
        with self._told():
            given = self.function()
        if given is None or isinstance(given, Mapping):
            told = "nothing" if given is None else "one dictionary"
            raise OrinportError(
                f"{self.name} returns {told} in place of samples.", "Return a list of samples, or yield them."
            )
        with self._told():
            if hasattr(given, "__getitem__") and hasattr(given, "__len__"):
                self.sequence = given
            self.length = len(given) if hasattr(given, "__len__") else sum(1 for _ in islice(given, most or None))
        if not self.length:
            raise OrinportError(f"{self.name} gives no samples.")
        self._iterator: Iterator[Any] = iter(())
        self._next = self.length

    def __len__(self) -> int:
        return self.length

    def load(self, index: int) -> tuple[Arrays, str]:
        name = f"Sample {index} of {self.name}"
        with self._told():
            sample = self.sequence[index] if self.sequence is not None else self._forward(index)
        if isinstance(sample, Mapping):
            return {str(key): value for key, value in sample.items()}, name
        parts = list(sample) if isinstance(sample, tuple) else [sample]
        if len(parts) != len(self.inputs):
            raise OrinportError(
                f"{name} has {count(len(parts), 'array')} for {count(len(self.inputs), 'input')}.",
                "Give a dictionary from input names to arrays.",
            )
        return {spec.name: part for spec, part in zip(self.inputs, parts, strict=True)}, name

    @contextmanager
    def _told(self) -> Iterator[None]:
        """The user's code fails in one sentence, not in a traceback, and what it prints is no part of a report."""
        try:
            with _PRINTED:
                yield
        except OrinportError:
            raise
        except (Exception, SystemExit) as error:
            raise OrinportError(f"{self.name} fails: {type(error).__name__}: {error}") from error

    def _forward(self, index: int) -> Any:
        """The sample at `index`, by iterating on from the last one, or from the beginning again."""
        if index < self._next:
            self._iterator, self._next = iter(self.function()), 0
        try:
            while self._next < index:
                next(self._iterator)
                self._next += 1
            self._next += 1
            return next(self._iterator)
        except StopIteration:
            raise OrinportError(f"{self.name} gives fewer samples than before.") from None


def _load_function(path: Path, function: str) -> Any:
    if not path.is_file():
        raise OrinportError(f"The file {str(path)!r} of the data does not exist.")
    spec = importlib.util.spec_from_file_location(f"orinport_data_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise OrinportError(f"{str(path)!r} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    try:
        with _PRINTED:
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise OrinportError(f"{str(path)!r} fails: {type(error).__name__}: {error}") from error
    found = getattr(module, function, None)
    if not callable(found):
        raise OrinportError(f"{str(path)!r} has no function {function!r}.")
    return found


def _identity(files: Sequence[Path], more: str = "") -> str:
    digest = hashlib.sha256(more.encode())
    for file in files:
        status = file.stat()
        digest.update(f"{file.absolute()}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()
