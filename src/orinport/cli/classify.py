"""`orinport classify`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from orinport.cli.options import BoardOptions, TextFormat, emit, progress
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.dcnv4.classifier import Classifier, Guess

__all__ = ["classify"]


_BOARD = BoardOptions()


def classify(
    model: Annotated[Path, Parameter(help="ONNX file, bundle, engine or loadable.")],
    images: Annotated[tuple[Path, ...], Parameter(help="JPEG or PNG files, or folders of them.")],
    /,
    *,
    board: BoardOptions = _BOARD,
    top: Annotated[int, Parameter(name="--top", help="How many classes to show.")] = 5,
    labels: Annotated[
        Path | None, Parameter(name="--labels", help="Names of the classes, one a line; 1000 classes: ImageNet's.")
    ] = None,
    resize: Annotated[
        Literal["crop", "stretch"],
        Parameter(
            name="--resize",
            help="crop: short side to the network's size, middle cut out, as the models are evaluated; "
            "stretch: both sides to the network's size.",
        ),
    ] = "crop",
    size: Annotated[
        int | None, Parameter(name="--size", help="Height and width, if the network leaves them open; by default 224.")
    ] = None,
    accuracy: Annotated[
        bool,
        Parameter(
            name="--accuracy",
            negative="",
            help="The one folder given holds a sub-folder for each class (synset, number or name): count the hits.",
        ),
    ] = False,
    csv: Annotated[Path | None, Parameter(name="--csv", help="Write a row for each picture and class shown.")] = None,
    format: TextFormat = "text",
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], help="Write the result to this file.")] = None,
) -> int:
    """Classify pictures with a network such as `dcnv4 export` writes: in ONNX Runtime, or on the board.

    Pictures are turned upright by their EXIF orientation, scaled with bicubic interpolation and normalised with
    ImageNet's mean and standard deviation. Exit status: 0, 1 if a picture could not be read, 2 if the network or the
    options are unusable.
    """
    from orinport.dcnv4.classifier import true_classes
    from orinport.report.json import SCHEMA_VERSION, dumps

    if top < 1:
        raise OrinportError(f"{top} classes show nothing.", "Use --top 1 or more.")
    if accuracy and (len(images) != 1 or not images[0].is_dir()):
        raise OrinportError("--accuracy needs exactly one folder.")
    paths = _paths(images)
    rows: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []
    with ExitStack() as stack:
        classifier = _open(model, board, size, labels, stack)
        truths = true_classes(paths, images[0], classifier.labels, classifier.classes) if accuracy else {}
        for row in _run(classifier, paths, resize, max(top, 5) if accuracy else top):
            (failures if "error" in row else rows).append(row)
    progress("")
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "model": str(model),
        "weights": classifier.facts.weights,
        "output": classifier.activation.lower() or "logits",
    }
    if accuracy:
        document["accuracy"] = _accuracy(rows, truths)
    document["pictures"] = [*rows, *failures]
    read = (model, labels, *paths)
    if csv is not None:
        emit(_csv(rows, top), csv, *read)
    if format == "json":
        emit(dumps(_plain(document, top)), output, *read)
    else:
        emit(_text(classifier, document, top), output, *read)
    return 1 if failures else 0


def _open(model: Path, board: BoardOptions, size: int | None, labels: Path | None, stack: ExitStack) -> Classifier:
    """The classifier, in ONNX Runtime or on the board; `stack` gives the board back."""
    from orinport.dcnv4.classifier import Classifier, read_labels

    names = None if labels is None else read_labels(labels)
    if not model.is_dir() and board.backend in ("auto", "onnxruntime") and model.suffix.lower() == ".onnx":
        return Classifier(model, size=size, labels=names)
    from orinport.running import RunOptions, open_network

    options = RunOptions(
        backend=board.backend,
        model=board.network,
        scales=board.scales,
        input_formats=board.input_formats,
        output_formats=board.output_formats,
        dla_core=board.dla_core,
        plugins=board.plugins,
    )
    network = stack.enter_context(open_network(model, options))
    if network.job.model is None:
        raise OrinportError("An engine does not say what pictures it takes.", "Give --model: the ONNX file of it.")
    return Classifier(network.job.model, size=size, labels=names, run=network.single, tail=network.job.tail)


def _paths(images: tuple[Path, ...]) -> list[Path]:
    from orinport.dcnv4.images import find_pictures

    if not images:
        raise OrinportError("No picture is given.", "orinport classify MODEL PICTURE...")
    paths: list[Path] = []
    for each in images:
        found = list(find_pictures(each)) if each.is_dir() else [each]
        if not found:
            raise OrinportError(f"There is no JPEG or PNG file in {str(each)!r}.")
        paths.extend(found)
    return paths


def _run(
    classifier: Classifier, paths: list[Path], resize: Literal["crop", "stretch"], top: int
) -> Iterator[dict[str, Any]]:
    """A row for each picture: its classes, or why it could not be read. Few pictures are in memory at once."""
    from orinport.dcnv4.classifier import read_all

    for start in range(0, len(paths), classifier.batch):
        progress(f"{start} of {len(paths)} pictures")
        good, bad = read_all(paths[start : start + classifier.batch])
        for path, error in bad:
            yield {"picture": path, "error": str(error)}
        guesses = classifier.classify([picture for _, picture in good], mode=resize, top=top)
        for (path, picture), found in zip(good, guesses, strict=True):
            yield {"picture": path, "notes": picture.notes, "classes": found}


def _accuracy(rows: list[dict[str, Any]], truths: dict[Path, int]) -> dict[str, Any]:
    first = within = 0
    for row in rows:
        truth = truths[row["picture"]]
        guesses: tuple[Guess, ...] = row["classes"]
        first += guesses[0].index == truth
        within += truth in [guess.index for guess in guesses[:5]]
    count = len(rows)
    if not count:
        raise OrinportError("No picture could be read, so there is nothing to count.")
    return {"pictures": count, "top1": first / count, "top5": within / count}


def _plain(document: dict[str, Any], top: int) -> dict[str, Any]:
    """`document` with strings and numbers only."""
    pictures = []
    for row in document["pictures"]:
        plain = {**row, "picture": str(row["picture"])}
        if "classes" in row:
            plain["notes"] = list(row["notes"])
            plain["classes"] = [
                {"index": g.index, "name": g.name, "probability": g.probability, "logit": g.logit}
                for g in row["classes"][:top]
            ]
        pictures.append(plain)
    return {**document, "pictures": pictures}


def _csv(rows: list[dict[str, Any]], top: int) -> str:
    import csv
    import io

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["picture", "rank", "class", "name", "probability", "logit"])
    for row in rows:
        for rank, guess in enumerate(row["classes"][:top], 1):
            numbers = [f"{guess.probability:.6g}", "" if guess.logit is None else f"{guess.logit:.6g}"]
            writer.writerow([row["picture"], rank, guess.index, guess.name, *numbers])
    return buffer.getvalue()


def _text(classifier: Classifier, document: dict[str, Any], top: int) -> str:
    from orinport.report.style import clean
    from orinport.words import count

    lines = []
    facts = classifier.facts
    if facts.seed is not None:
        lines.append(f"This network has {clean(facts.weights)}: what it says means nothing.")
    elif facts.weights:
        lines.append(clean(facts.weights))
    found = document.get("accuracy")
    if found:
        lines.append(f"{count(found['pictures'], 'picture')}, top-1 {found['top1']:.2%}, top-5 {found['top5']:.2%}")
    for row in document["pictures"]:
        if "error" in row:
            lines.append(clean(row["error"]))
        elif not found:
            notes = f"  ({'; '.join(row['notes'])})" if row["notes"] else ""
            lines.append(f"{clean(str(row['picture']))}{notes}")
            lines += [f"  {g.probability:7.2%}  {g.index:>4}  {clean(g.name)}" for g in row["classes"][:top]]
    return "\n".join(lines) + "\n"
