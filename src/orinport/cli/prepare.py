"""`orinport prepare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from orinport.cli.options import ModelOptions, ModelPath, PlacementOptions, TargetOptions, progress, style
from orinport.cli.quantize import CalibrationFlags, ScaleFlags

__all__ = ["prepare"]

_DEFAULT_TARGET = TargetOptions()
_DEFAULT_MODEL = ModelOptions()
_DEFAULT_PLACEMENT = PlacementOptions()
_DEFAULT_SCALES = ScaleFlags()
_DEFAULT_CALIBRATION = CalibrationFlags()


def prepare(
    model: ModelPath,
    /,
    *,
    target: TargetOptions = _DEFAULT_TARGET,
    model_options: ModelOptions = _DEFAULT_MODEL,
    placement: PlacementOptions = _DEFAULT_PLACEMENT,
    scales: ScaleFlags = _DEFAULT_SCALES,
    calibration: CalibrationFlags = _DEFAULT_CALIBRATION,
    output: Annotated[
        Path | None,
        Parameter(name=["--output", "-o"], help="The folder to write; by default the model's name + .orin."),
    ] = None,
    force: Annotated[bool, Parameter(name="--force", negative="", help="Replace an existing bundle.")] = False,
    keep_io: Annotated[
        bool,
        Parameter(name="--keep-io", negative="", help="Leave the network's inputs and outputs as they are."),
    ] = False,
    cut_tail: Annotated[
        bool,
        Parameter(name="--cut-tail", negative="", help="Save what the DLA does not take at the end as tail.onnx."),
    ] = False,
    allow: Annotated[
        tuple[Literal["tolerance"], ...],
        Parameter(name="--allow", consume_multiple=False, help="Also apply approximations with a stated error."),
    ] = (),
    dla_core: Annotated[int, Parameter(help="The DLA core that build.sh builds for.")] = 0,
    fp16: Annotated[
        tuple[str, ...],
        Parameter(
            name="--fp16",
            consume_multiple=False,
            help="With --precision int8: run this layer or ONNX node in FP16 all the same; may be given several times.",
        ),
    ] = (),
) -> int:
    """Rewrite a network until the DLA takes it, prove that it still computes the same, and write the bundle.

    The bundle holds model.onnx, build.sh and the report; with --precision int8, which needs --data or --scales, also
    the calibration cache. The input file is never touched.
    Exit status: 0 if every layer is `dla` afterwards, 1 if not, 2 if the model or the options are unusable.
    """
    import sys

    import orinport
    from orinport.placing import parse_wishes
    from orinport.report.text import prepare_text
    from orinport.rewrites.rewrite import Safety

    report = orinport.prepare(
        model,
        target=target.target,
        precision=target.precision,
        shapes=model_options.shapes or None,
        standalone=target.standalone,
        output=output,
        force=force,
        keep_io=keep_io,
        cut_tail=cut_tail,
        consent=(Safety.EXACT, *(Safety(word) for word in allow)),
        dla_core=dla_core,
        optimize=placement.optimize,
        keep=parse_wishes(placement.keep),
        cores=placement.cores,
        data=scales.data,
        preprocess=scales.preprocess,
        scales=scales.scales,
        calibration=calibration.options(),
        ties=calibration.ties,
        fp16=fp16,
        progress=progress,
    )
    progress("")
    sys.stdout.write(prepare_text(report, style()))
    proved = report.proof is None or report.proof.equal
    return 0 if report.after.clean and proved else 1
