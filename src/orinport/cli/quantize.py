"""`orinport quantize`, and the options of calibration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from orinport.cli.options import ModelOptions, ModelPath, TargetName, progress, require_not_input, style
from orinport.targets import DEFAULT_TARGET

if TYPE_CHECKING:
    from orinport.precision.calibrate import CalibrationOptions

__all__ = ["CalibrationFlags", "ScaleFlags", "quantize"]


@Parameter(name="*")
@dataclass(frozen=True)
class ScaleFlags:
    """Where INT8 scales come from."""

    data: Annotated[
        str | None,
        Parameter(
            name=["--data", "-d"],
            help="Calibration data: a folder of pictures or arrays, a .npy or .npz file, or FILE.py:FUNCTION, whose"
            " code is run.",
        ),
    ] = None
    preprocess: Annotated[Path | None, Parameter(help="TOML file that says how a picture becomes the input.")] = None
    scales: Annotated[Path | None, Parameter(help="A calibration cache or JSON file, in place of data.")] = None


@Parameter(name="*")
@dataclass(frozen=True)
class CalibrationFlags:
    """How data becomes ranges."""

    method: Annotated[
        Literal["percentile", "min-max", "mse", "entropy"], Parameter(help="How a range follows from the values seen.")
    ] = "percentile"
    percentile: Annotated[float, Parameter(help="For --method percentile: the share of values inside, in percent.")] = (
        99.99
    )
    samples: Annotated[int, Parameter(help="Use only the first so many samples; 0 for all.")] = 0
    jobs: Annotated[int, Parameter(name=["--jobs", "-j"], help="Processes.")] = 1
    scheduler: Annotated[
        str, Parameter(help="Address of a dask scheduler whose workers calibrate (extra 'fleet').")
    ] = ""
    state: Annotated[
        Path | None, Parameter(help="File from which an interrupted calibration goes on; removed at the end.")
    ] = None
    ties: Annotated[
        Literal["all", "except-products", "none"], Parameter(help="Which ranges are made equal for the DLA.")
    ] = "all"

    def options(self) -> CalibrationOptions:
        """As the library takes them."""
        from orinport.precision.calibrate import CalibrationOptions

        return CalibrationOptions(
            method=self.method,
            percentile=self.percentile,
            jobs=self.jobs,
            scheduler=self.scheduler,
            state=self.state,
            samples=self.samples,
        )


_DEFAULT_MODEL = ModelOptions()
_DEFAULT_SCALES = ScaleFlags()
_DEFAULT_CALIBRATION = CalibrationFlags()


def quantize(
    model: ModelPath,
    /,
    *,
    target: TargetName = DEFAULT_TARGET,
    model_options: ModelOptions = _DEFAULT_MODEL,
    scales: ScaleFlags = _DEFAULT_SCALES,
    calibration: CalibrationFlags = _DEFAULT_CALIBRATION,
    output: Annotated[
        Path | None,
        Parameter(
            name=["--output", "-o"],
            help="What to write, by its ending: .json scales, .cache a calibration cache, .onnx a Q/DQ model.",
        ),
    ] = None,
    format: Annotated[
        Literal["text", "json"], Parameter(name=["--format", "-f"], help="Format of the report.")
    ] = "text",
) -> int:
    """Find INT8 scales from data, a file or the network's own Q/DQ layers, as the DLA wants them.

    Exit status: 0 if every tensor on the DLA has a scale, 1 if not, 2 if the model, the data or the options are
    unusable.
    """
    import sys

    import orinport
    from orinport.checking import as_target
    from orinport.precision.cache import scales_json
    from orinport.quantization import require_writable, write_scales
    from orinport.report.quantize import quantize_text

    if output is not None:
        require_not_input(output, model, scales.data, scales.scales, scales.preprocess)
        require_writable(output, as_target(target))
    report = orinport.quantize(
        model,
        data=scales.data,
        scales=scales.scales,
        target=target,
        shapes=model_options.shapes or None,
        preprocess=scales.preprocess,
        calibration=calibration.options(),
        ties=calibration.ties,
        progress=progress,
    )
    progress("")
    if output is not None:
        write_scales(report, output)
    sys.stdout.write(scales_json(report.scales) if format == "json" else quantize_text(report, style()))
    return 0 if report.coverage.complete else 1
