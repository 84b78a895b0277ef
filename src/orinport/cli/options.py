"""Options that several commands share: spelled once, meaning the same everywhere."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from orinport.errors import OrinportError
from orinport.files import write_whole
from orinport.report.style import COLOUR, PLAIN, Style
from orinport.targets import DEFAULT_TARGET

__all__ = [
    "BoardOptions",
    "ModelOptions",
    "ModelPath",
    "PlacementOptions",
    "PowerModeName",
    "PrecisionName",
    "ReportPath",
    "SelectOptions",
    "TargetName",
    "TargetOptions",
    "TextFormat",
    "emit",
    "progress",
    "require_free",
    "require_not_input",
    "require_rows",
    "require_seed",
    "style",
]

ModelPath = Annotated[Path, Parameter(help="ONNX file.")]
TargetName = Annotated[
    str,
    Parameter(
        name=["--target", "-t"],
        help="Board and software, e.g. orin-agx-64gb/jp6.0 (see orinport targets), or a profile of yours (.toml).",
    ),
]
PrecisionName = Annotated[Literal["fp16", "int8"], Parameter(name=["--precision", "-p"], help="Precision on the DLA.")]
PowerModeName = Annotated[str | None, Parameter(help="Power mode of the board, e.g. MAXN, 50W, 30W, 15W.")]
TextFormat = Annotated[Literal["text", "json"], Parameter(name=["--format", "-f"], help="Output format.")]
ReportPath = Annotated[Path | None, Parameter(name=["--output", "-o"], help="Write the report to this file.")]


@Parameter(name="*")
@dataclass(frozen=True)
class TargetOptions:
    """What the network is meant for."""

    target: TargetName = DEFAULT_TARGET
    precision: PrecisionName = "fp16"
    standalone: Annotated[
        bool,
        Parameter(name="--standalone", negative="", help="Meant as a DLA loadable that runs without TensorRT."),
    ] = False


@Parameter(name="*")
@dataclass(frozen=True)
class ModelOptions:
    """How the model is read."""

    shapes: Annotated[
        tuple[str, ...],
        Parameter(
            name=["--shapes", "-s"],
            consume_multiple=False,
            help="Input shapes: x:1x3x224x224 or x:1,3,224,224 or x:[1,3,224,224]; may be given several times.",
        ),
    ] = ()


@Parameter(name="*")
@dataclass(frozen=True)
class BoardOptions:
    """What runs a network, and what an engine or loadable without its bundle does not say."""

    backend: Annotated[
        Literal["auto", "tensorrt", "cudla", "onnxruntime"],
        Parameter(
            name=["--backend", "-b"],
            help="tensorrt: an engine, through TensorRT's Python package; cudla: a standalone loadable; "
            "onnxruntime: the ONNX file, on this machine's CPU; auto: what is there.",
        ),
    ] = "auto"
    dla_core: Annotated[
        int | None,
        Parameter(
            name="--dla-core", help="DLA core that runs the engine or loadable; a bundle's own by default, else 0."
        ),
    ] = None
    network: Annotated[
        Path | None, Parameter(name="--model", help="The ONNX file that the engine or loadable was built from.")
    ] = None
    scales: Annotated[
        Path | None,
        Parameter(name="--scales", help="Of INT8 edges: a calibration cache or JSON; a bundle has its own."),
    ] = None
    input_formats: Annotated[
        tuple[str, ...],
        Parameter(
            name="--input-formats", negative="", consume_multiple=False, help="TYPE:FORMAT of a loadable's input."
        ),
    ] = ()
    output_formats: Annotated[
        tuple[str, ...],
        Parameter(
            name="--output-formats", negative="", consume_multiple=False, help="TYPE:FORMAT of a loadable's output."
        ),
    ] = ()
    plugins: Annotated[
        tuple[str, ...],
        Parameter(
            name="--plugin",
            negative="",
            consume_multiple=False,
            help="Plugin library of the engine; may be given several times.",
        ),
    ] = ()


@Parameter(name="*")
@dataclass(frozen=True)
class SelectOptions:
    """Which findings are shown; verdicts are not touched."""

    select: Annotated[
        tuple[str, ...],
        Parameter(name="--select", consume_multiple=False, help="Show only codes with this prefix."),
    ] = field(default=())
    ignore: Annotated[
        tuple[str, ...],
        Parameter(name="--ignore", consume_multiple=False, help="Do not show codes with this prefix."),
    ] = field(default=())


@Parameter(name="*")
@dataclass(frozen=True)
class PlacementOptions:
    """Where layers run that the DLA takes."""

    optimize: Annotated[
        bool,
        Parameter(
            name="--optimize",
            negative="",
            help="Leave layers to the GPU where that is predicted to be faster, launches and transfers counted.",
        ),
    ] = False
    keep: Annotated[
        tuple[str, ...],
        Parameter(
            name="--keep",
            consume_multiple=False,
            help="NAME=gpu or NAME=dla keeps a layer or the layers of a node there, with --cores 2 also NAME=dla0 or"
            " NAME=dla1; may be given several times.",
        ),
    ] = field(default=())
    cores: Annotated[
        int,
        Parameter(name="--cores", help="2: split the network over both DLA cores where that shortens one inference."),
    ] = 1


def style(stream: object = None) -> Style:
    """Colour if the stream is a terminal and NO_COLOR is not set."""
    import os

    stream = sys.stdout if stream is None else stream
    terminal = getattr(stream, "isatty", lambda: False)()
    return COLOUR if terminal and not os.environ.get("NO_COLOR") else PLAIN


def emit(text: str, output: Path | None, *inputs: str | Path | None) -> None:
    """Write a result to stdout, or to a file that is none of `inputs`, the files that the command has read."""
    if output is None:
        sys.stdout.write(text)
        return
    require_not_input(output, *inputs)
    try:
        write_whole(output, text)
    except OSError as error:
        raise OrinportError(f"{str(output)!r} cannot be written: {error.strerror}.") from error


def require_not_input(output: Path, *inputs: str | Path | None) -> None:
    """Raise OrinportError if `output` is one of `inputs`, the files that the command reads."""
    if any(source is not None and _is_same_file(Path(source), output) for source in inputs):
        raise OrinportError(
            f"{str(output)!r} is the input file, which is never changed.", "Give --output another name."
        )


def require_free(output: Path, *inputs: str | Path | None, force: bool) -> None:
    """Raise OrinportError if the file `output` must not be written: an input, an existing file without `force`.

    Also if it cannot be, because something else has its name or its folder does not exist.
    """
    require_not_input(output, *inputs)
    if output.exists() and not output.is_file():
        raise OrinportError(f"{str(output)!r} is not a file.")
    if output.exists() and not force:
        raise OrinportError(f"{str(output)!r} exists.", "Use --force to replace it.")
    if not output.absolute().parent.is_dir():
        raise OrinportError(f"The folder {str(output.absolute().parent)!r} does not exist.")


def require_rows(rows: int) -> None:
    """Raise OrinportError for a number of rows that no table has."""
    if rows < 0:
        raise OrinportError(f"A table cannot have {rows} rows.", "Use --rows 0 or more.")


def require_seed(seed: int, bits: int = 63) -> None:
    """Raise OrinportError for a seed that a generator does not take."""
    if not 0 <= seed < 2**bits:
        raise OrinportError(f"--seed must be a whole number from 0 to 2**{bits} - 1.")


def _is_same_file(source: Path, output: Path) -> bool:
    files = (source, Path(str(source).rpartition(":")[0] or source))  # data may be FILE.py:FUNCTION
    for file in files:
        with suppress(OSError):
            if file.samefile(output):
                return True
    return False


def progress(message: str) -> None:
    """One line of progress on stderr, on terminals only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{message[:100]}")
        sys.stderr.flush()
