"""`orinport profile`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from orinport.cli.options import (
    ModelOptions,
    PowerModeName,
    ReportPath,
    TextFormat,
    emit,
    require_not_input,
    require_rows,
    style,
)
from orinport.errors import OrinportError
from orinport.targets import DEFAULT_TARGET

if TYPE_CHECKING:
    from orinport.device.compare import Comparison
    from orinport.measuring import Build, Refit

__all__ = ["profile"]

_DEFAULT_MODEL = ModelOptions()


@dataclass(frozen=True)
class _Subject:
    """What was measured: the network that was built, for which target and precision, and the files of the run."""

    model: Path
    target: str
    precision: str
    measurement: Path
    times: Path | None
    layers: Path | None


def profile(
    model: Annotated[Path, Parameter(help="A bundle, or the ONNX file that was built.")],
    measurement: Annotated[
        Path | None,
        Parameter(
            help="What the board measured: trtexec --exportProfile, or cuDLA's layer statistics as CSV. Without it the"
            " bundle's engine is measured with trtexec."
        ),
    ] = None,
    /,
    *,
    target: Annotated[
        str | None, Parameter(name=["--target", "-t"], help="Board and software; a bundle's own by default.")
    ] = None,
    precision: Annotated[
        Literal["int8", "fp16"] | None,
        Parameter(name=["--precision", "-p"], help="Precision of the build; a bundle's own by default, else int8."),
    ] = None,
    power_mode: PowerModeName = None,
    model_options: ModelOptions = _DEFAULT_MODEL,
    host: Annotated[str | None, Parameter(help="Measure on this board over ssh: user@board.")] = None,
    times: Annotated[Path | None, Parameter(help="trtexec --exportTimes of the same run.")] = None,
    layers: Annotated[Path | None, Parameter(help="trtexec --exportLayerInfo: names the ONNX nodes of layers.")] = None,
    tegrastats: Annotated[Path | None, Parameter(help="A log of tegrastats during the run.")] = None,
    jtop: Annotated[Path | None, Parameter(help="A CSV of jtop's logger during the run.")] = None,
    refit: Annotated[
        Path | None,
        Parameter(
            help="Fit the prediction's constants to the measurement, and write a profile (.toml) that is a target."
        ),
    ] = None,
    refit_anyway: Annotated[
        bool, Parameter(negative="", help="Write the profile of --refit also where it does not meet the measurement.")
    ] = False,
    rows: Annotated[int, Parameter(help="Layers in the table.")] = 40,
    quiet: Annotated[bool, Parameter(negative="", help="Do not show trtexec's output; it is in profile.log.")] = False,
    format: TextFormat = "text",
    output: ReportPath = None,
) -> int:
    """Lay what a board measured beside the prediction: time, achieved utilisation and GB/s of every layer and region.

    Exit status: 0, 1 if trtexec failed, nothing in the measurement belongs to the model or --refit does not meet it, 2
    if a file is unusable.
    """
    from orinport.device.board import parts_note
    from orinport.device.measured import read_jtop, read_measurement, read_tegrastats, read_times
    from orinport.measuring import lay_beside
    from orinport.measuring import refit as fit

    require_rows(rows)
    if not model.exists():
        raise OrinportError(f"There is no file or bundle {str(model)!r}.")
    inputs = (model, measurement, times, layers, tegrastats, jtop)
    if refit is not None:
        _require_profile(refit, output, *inputs, target)
    subject = _subject(model, measurement, target, precision, times, layers, host, quiet)
    if subject is None:
        return 1
    measured = read_measurement(subject.measurement)
    medians = {} if subject.times is None else read_times(subject.times)
    clocks = {} if tegrastats is None else read_tegrastats(tegrastats)
    clocks |= {} if jtop is None else read_jtop(jtop)
    build = _build(subject, model, power_mode, model_options)
    comparison = lay_beside(subject.model, measured, build)
    fitted = None if refit is None else fit(subject.model, measured, build)
    text = _rendered(comparison, fitted, medians, clocks, rows, format)
    kept = fitted is None or fitted.holds or refit_anyway
    if refit is not None and fitted is not None and kept:
        _write_profile(refit, fitted, subject.measurement)
    if model.is_dir() and (note := parts_note(model)):
        sys.stderr.write(f"{note}\n")
    emit(text, output, *inputs, target)
    if fitted is not None and not kept:
        _explain_misfit(fitted)
    return 0 if comparison.rows and kept else 1


def _build(subject: _Subject, model: Path, power_mode: str | None, options: ModelOptions) -> Build:
    """How what was measured was built."""
    from orinport.device.measure import built_core, built_gpu_layers
    from orinport.device.measured import read_layer_nodes
    from orinport.measuring import Build

    return Build(
        subject.target,
        subject.precision,
        power_mode,
        options.shapes or None,
        None if subject.layers is None else read_layer_nodes(subject.layers),
        dla=not model.is_dir() or built_core(model) is not None,
        gpu_layers=built_gpu_layers(model) if model.is_dir() else (),
    )


def _rendered(
    comparison: Comparison,
    fitted: Refit | None,
    medians: dict[str, float],
    clocks: dict[str, tuple[float, float]],
    rows: int,
    format: str,
) -> str:
    from orinport.report.json import dumps
    from orinport.report.profile import profile_document, profile_text
    from orinport.report.refit import refit_document, refit_text

    if format == "json":
        document = profile_document(comparison, medians, clocks)
        return dumps(document if fitted is None else {**document, "refit": refit_document(fitted)})
    text = profile_text(comparison, medians, clocks, style(), rows=rows)
    return text + ("" if fitted is None else refit_text(fitted, style()))


def _subject(
    model: Path,
    measurement: Path | None,
    target: str | None,
    precision: str | None,
    times: Path | None,
    layers: Path | None,
    host: str | None,
    quiet: bool,
) -> _Subject | None:
    """What is reported on, measured first if there is no measurement yet; None if trtexec failed."""
    folder = model if model.is_dir() else None
    record = _record(folder) if folder is not None else {}
    target = target or str(record.get("target") or DEFAULT_TARGET)
    precision = precision or str(record.get("precision") or "int8")
    network = model if folder is None else folder / "model.onnx"
    if measurement is not None:
        if host is not None:
            raise OrinportError("A measurement is given and a board to measure on.", "Leave one of them out.")
        return _Subject(network, target, precision, measurement, times, layers)
    if folder is None:
        raise OrinportError(
            "There is no measurement.", "Give a file of one, or a bundle with an engine, which is measured then."
        )
    return _measure(folder, network, target, precision, host, quiet)


def _record(folder: Path) -> dict[str, object]:
    from orinport.device.board import require_bundle
    from orinport.report.document import read_report

    require_bundle(folder)
    return read_report(folder) if (folder / "report.json").is_file() else {}


def _measure(folder: Path, model: Path, target: str, precision: str, host: str | None, quiet: bool) -> _Subject | None:
    from orinport.checking import as_target
    from orinport.device.board import board_folders
    from orinport.device.built import require_current
    from orinport.device.log import read_log
    from orinport.device.measure import ENGINE, built_core, measure_arguments, measure_here, measure_remotely
    from orinport.report.log import log_text

    def show(line: str) -> None:
        if not quiet:
            sys.stderr.write(line + "\n")

    arguments = measure_arguments(as_target(target).stack.tensorrt, built_core(folder))
    bundle = folder
    if host:
        own = board_folders(folder, [host])[host]
        folder = own if (own / ENGINE).is_file() else folder
    require_current(bundle, folder / ENGINE)
    done = measure_remotely(folder, host, arguments, show) if host else measure_here(folder, arguments, show)
    if done.status != 0 or done.profile is None:
        with done.log.open(encoding="utf-8", errors="replace") as lines:
            sys.stdout.write(log_text(str(done.log), read_log(lines), None, style()))
        sys.stdout.write(f"trtexec ended with status {done.status} and measured nothing\n")
        return None
    return _Subject(model, target, precision, done.profile, done.times, done.layers)


def _require_profile(path: Path, output: Path | None, *inputs: Path | str | None) -> None:
    """Raise OrinportError unless a profile may be written to `path`: before anything is measured or computed."""
    if path.suffix != ".toml":
        raise OrinportError(f"{str(path)!r} is no name for a profile.", "Let it end in .toml.")
    if path.exists() and not path.is_file():
        raise OrinportError(f"{str(path)!r} is no file.", "Give --refit another name.")
    if output is not None and output.absolute() == path.absolute():
        raise OrinportError("Report and profile have the same name.", "Give --output another name.")
    require_not_input(path, *inputs)


def _write_profile(path: Path, fitted: Refit, measurement: Path) -> None:
    from orinport.report.refit import refit_toml

    emit(refit_toml(fitted, measurement.name), path)
    sys.stderr.write(f"{path}: a target for the other commands, for instance orinport predict -t {path}\n")


def _explain_misfit(fitted: Refit) -> None:
    sys.stderr.write(
        f"no profile is written: with these constants {100 * (1 - fitted.met):.0f} % of the measured time that could be"
        " used lie outside the bands of the predictions; are network, precision and clocks"
        f" ({fitted.target.power_mode.name}) those of the measurement? --refit-anyway writes it all the same\n"
    )
