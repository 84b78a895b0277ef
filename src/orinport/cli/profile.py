"""`orinport profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from orinport.cli.options import ModelOptions, ModelPath, emit, style

__all__ = ["profile"]

_DEFAULT_MODEL = ModelOptions()


def profile(
    model: ModelPath,
    measurement: Annotated[
        Path, Parameter(help="What the board measured: trtexec --exportProfile, or cuDLA's layer statistics as CSV.")
    ],
    /,
    *,
    target: Annotated[str, Parameter(name=["--target", "-t"], help="Board and software.")] = "orin-agx-64gb/jp6.2",
    precision: Annotated[
        Literal["int8", "fp16"], Parameter(name=["--precision", "-p"], help="Precision of the build.")
    ] = "int8",
    power_mode: Annotated[str | None, Parameter(help="Power mode of the board.")] = None,
    model_options: ModelOptions = _DEFAULT_MODEL,
    times: Annotated[Path | None, Parameter(help="trtexec --exportTimes of the same run.")] = None,
    tegrastats: Annotated[Path | None, Parameter(help="A log of tegrastats during the run.")] = None,
    rows: Annotated[int, Parameter(help="Layers in the table.")] = 40,
    format: Annotated[Literal["text", "json"], Parameter(name=["--format", "-f"], help="Output format.")] = "text",
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], help="Write the report to this file.")] = None,
) -> int:
    """Lay what a board measured beside the prediction: time, achieved utilisation and GB/s of every layer and region.

    The model is the one that was built (a bundle's model.onnx). Exit status: 0, 1 if nothing in the measurement
    belongs to the model, 2 if a file is unusable.
    """
    import orinport
    from orinport.device.compare import compare
    from orinport.device.measured import read_measurement, read_tegrastats, read_times
    from orinport.report.json import dumps
    from orinport.report.profile import profile_document, profile_text

    measured = read_measurement(measurement)
    medians = {} if times is None else read_times(times)
    clocks = {} if tegrastats is None else read_tegrastats(tegrastats)
    prediction = orinport.predict(
        model,
        target=target,
        precision=precision,
        power_mode=power_mode,
        shapes=model_options.shapes or None,
        rewrite=False,
    )
    comparison = compare(measured, prediction)
    if format == "json":
        text = dumps(profile_document(comparison, medians, clocks))
    else:
        text = profile_text(comparison, medians, clocks, style(), rows=rows)
    emit(text, output, model, measurement, times, tegrastats)
    return 0 if comparison.rows else 1
