"""A classification network in ONNX Runtime: pictures in, the most probable classes out."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from orinport.dcnv4.dynamic import load_any
from orinport.dcnv4.facts import Facts
from orinport.dcnv4.images import Mode, normalise, resize
from orinport.dcnv4.node import custom_nodes
from orinport.dcnv4.portable import portable_proto
from orinport.dcnv4.scores import final_activation
from orinport.errors import OrinportError, first_line
from orinport.files import read_bounded
from orinport.model.runtime import open_session
from orinport.pictures import MAX_PIXELS, Picture, read_picture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

__all__ = ["Classifier", "Guess", "Labels", "imagenet_labels", "read_all", "read_labels", "true_class", "true_classes"]

_IMAGENET_CLASSES = 1000
_DEFAULT_SIZE = 224
_BATCH = 8


@dataclass(frozen=True, slots=True)
class Labels:
    """A name for every class, and where WordNet has one, its synset."""

    names: tuple[str, ...]
    synsets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Guess:
    """One class that a picture may belong to."""

    index: int
    name: str
    probability: float
    logit: float | None
    """None where the network gives probabilities itself."""


def imagenet_labels() -> Labels:
    """The 1000 classes of ImageNet-1k: WordNet's first lemma and synset."""
    text = (resources.files("orinport.dcnv4") / "data" / "imagenet1k.txt").read_text(encoding="utf-8")
    rows = [line.split(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return Labels(tuple(name for _, name in rows), tuple(synset for synset, _ in rows))


def read_labels(path: Path) -> Labels:
    """One name a line. Raises OrinportError if the file cannot be read."""
    try:
        lines = read_bounded(path).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OrinportError(f"The labels {str(path)!r} cannot be read: {error}.") from error
    names = tuple(line.strip() for line in lines if line.strip())
    if not names:
        raise OrinportError(f"The labels {str(path)!r} are empty.")
    return Labels(names)


class Classifier:
    """A network with one input (N, 3, H, W) of floats and one output (N, classes), in ONNX Runtime or on a board.

    DCNv4 operators are run in their portable form. `size`, by default 224, is the height and width of pictures in
    pixels where the network leaves them open. `run` takes a batch to its output where it is not ONNX Runtime that runs
    the network in `path`, and `tail` is what it runs behind that. Where the network ends in Softmax or Sigmoid its
    output is taken for the probabilities, else for logits.
    Raises OrinportError if the network is no such classifier, or the labels are not as many as its classes.
    """

    def __init__(
        self,
        path: Path,
        *,
        size: int | None = None,
        labels: Labels | None = None,
        run: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
        tail: Path | None = None,
    ) -> None:
        side = _DEFAULT_SIZE if size is None else size
        _require_size(side, side)
        model = load_any(path, side=side)
        self._input = _picture_input(model.ir)
        if run is None:
            _require_one_output(model.ir)
        self.facts = Facts.of(model.ir.metadata_props)
        self._run = run or _in_onnxruntime(model.ir)
        self.size = self._picture_size(size)
        self._dtype = np.float16 if self._input.dtype == ir.DataType.FLOAT16 else np.float32
        shape = None if run is not None else model.ir.graph.outputs[0].shape
        classes = None if shape is None else shape[1]
        self.classes = classes if isinstance(classes, int) else len(self._outputs([np.zeros((3, *self.size))])[0])
        models = [model.ir] if tail is None else [load_any(tail).ir, model.ir]
        self.activation = final_activation(models, self.classes)
        if labels is None and self.classes == _IMAGENET_CLASSES:
            labels = imagenet_labels()
        if labels is not None and len(labels.names) != self.classes:
            raise OrinportError(f"There are {len(labels.names)} labels for {self.classes} classes.")
        self.labels = labels

    def _picture_size(self, asked: int | None) -> tuple[int, int]:
        height, width = (int(dim) for dim in self._input.shape[2:])  # type: ignore[index,arg-type]
        if asked is not None and (height, width) != (asked, asked):
            raise OrinportError(f"The network takes {height} x {width} pixels, not {asked} x {asked}.")
        _require_size(height, width)
        return height, width

    def classify(self, pictures: Sequence[Picture], *, mode: Mode = "crop", top: int = 5) -> list[tuple[Guess, ...]]:
        """The `top` classes of each picture, most probable first."""
        inputs = [normalise(resize(picture.pixels, self.size, mode)) for picture in pictures]
        return [self._best(output, top) for output in self._outputs(inputs)]

    def _best(self, output: NDArray[np.float64], top: int) -> tuple[Guess, ...]:
        if np.isnan(output).any():
            raise OrinportError("The network gives NaN.", "Its weights or the runtime are broken.")
        order = np.argsort(-output, kind="stable")[:top].tolist()
        if self.activation:
            return tuple(Guess(index, self._name(index), float(output[index]), None) for index in order)
        powers = np.exp(output - output.max())
        probabilities = powers / powers.sum()
        return tuple(
            Guess(index, self._name(index), float(probabilities[index]), float(output[index])) for index in order
        )

    @property
    def batch(self) -> int:
        """Pictures that go through the network at once."""
        return self._fixed_batch or _BATCH

    @property
    def _fixed_batch(self) -> int | None:
        first = self._input.shape[0]  # type: ignore[index]
        return first if isinstance(first, int) else None

    def _name(self, index: int) -> str:
        return f"class {index}" if self.labels is None else self.labels.names[index]

    def _outputs(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[np.float64]]:
        """What the network gives for every picture, (classes,), in batches that it takes."""
        fixed = self._fixed_batch
        step = self.batch
        results: list[NDArray[np.float64]] = []
        for start in range(0, len(inputs), step):
            batch = np.stack(inputs[start : start + step]).astype(self._dtype)
            padded = (
                batch if fixed is None else np.concatenate([batch, np.zeros_like(batch[:1]).repeat(step, 0)])[:step]
            )
            output = self._run(padded)
            results.extend(output[: len(batch)].reshape(len(batch), -1).astype(np.float64))
        return results


def true_classes(paths: Sequence[Path], root: Path, labels: Labels | None, classes: int) -> dict[Path, int]:
    """The class of every picture, as `true_class` finds it; each folder is looked at once."""
    by_folder: dict[Path, int] = {}
    for path in paths:
        if path.parent not in by_folder:
            by_folder[path.parent] = true_class(path, root, labels, classes)
    return {path: by_folder[path.parent] for path in paths}


def true_class(path: Path, root: Path, labels: Labels | None, classes: int) -> int:
    """The class of a picture from the folder that it lies in, below `root`.

    The folder is called by the class's WordNet synset, its number, or its name; or there are exactly as many
    folders as classes, in the order of their names. Raises OrinportError if it is none of these.
    """
    relative = path.relative_to(root).parts
    folder = relative[0] if len(relative) > 1 else ""
    if labels is not None and folder in labels.synsets:
        return labels.synsets.index(folder)
    if folder.isdecimal() and int(folder) < classes:
        return int(folder)
    if labels is not None and labels.names.count(folder) == 1:
        return labels.names.index(folder)
    folders = sorted(each.name for each in root.iterdir() if each.is_dir() and not each.name.startswith("."))
    if len(folders) == classes and folder in folders:
        return folders.index(folder)
    raise OrinportError(
        f"The folder {folder or str(root)!r} names no class.",
        "Sub-folders are called by synset (n01440764), number or name, or there is one for every class.",
    )


def _require_size(height: int, width: int) -> None:
    if height < 1 or width < 1 or height * width > MAX_PIXELS:
        raise OrinportError(
            f"A picture of {height} x {width} pixels cannot be made.",
            f"It has at least one, and at most {MAX_PIXELS} pixels.",
        )


def _picture_input(model: ir.Model) -> ir.Value:
    """The network's only input, for pictures."""
    inputs = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    first = inputs[0] if inputs else None
    dims = None if first is None or first.shape is None else [d if isinstance(d, int) else None for d in first.shape]
    wanted = first is not None and first.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16)
    if first is None or len(inputs) != 1 or dims is None or len(dims) != 4 or dims[1] != 3 or not wanted:
        shown = ", ".join(f"{value.name} {value.shape}" for value in inputs[:3])
        raise OrinportError(f"The network is no classifier of pictures: its inputs are {shown or 'none'}.")
    return first


def _require_one_output(model: ir.Model) -> None:
    if len(model.graph.outputs) != 1:
        raise OrinportError(f"The network is no classifier: it has {len(model.graph.outputs)} outputs.")
    shape = model.graph.outputs[0].shape
    if shape is not None and (len(shape) < 2 or any(dim not in (1,) for dim in list(shape)[2:])):
        raise OrinportError(f"The network is no classifier: its output has shape {shape}, not (N, classes).")


def _in_onnxruntime(model: ir.Model) -> Callable[[NDArray[Any]], NDArray[Any]]:
    proto = ir.to_proto(model)
    session = _session(portable_proto(proto) if custom_nodes(model) else proto)
    name = session.get_inputs()[0].name

    def run(batch: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = session.run(None, {name: batch})[0]
        return found

    return run


def _session(proto: onnx.ModelProto) -> Any:
    try:
        return open_session(proto.SerializeToString())
    except Exception as error:  # onnxruntime has no class of its own for these
        raise OrinportError(f"ONNX Runtime does not run the network: {first_line(error)}") from error


def read_all(paths: Sequence[Path]) -> tuple[list[tuple[Path, Picture]], list[tuple[Path, OrinportError]]]:
    """The pictures that can be read, and why the others cannot."""
    answers = [(path, _read_or_error(path)) for path in paths]
    good = [(path, answer) for path, answer in answers if isinstance(answer, Picture)]
    return good, [(path, answer) for path, answer in answers if isinstance(answer, OrinportError)]


def _read_or_error(path: Path) -> Picture | OrinportError:
    try:
        return read_picture(path)
    except OrinportError as error:
        return error
