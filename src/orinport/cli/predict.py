"""`orinport predict`."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from orinport.cli.options import (
    ModelOptions,
    ModelPath,
    PlacementOptions,
    PowerModeName,
    PrecisionName,
    ReportPath,
    TargetName,
    emit,
    progress,
    require_rows,
    style,
)
from orinport.targets import DEFAULT_TARGET

__all__ = ["predict"]

_DEFAULT_MODEL = ModelOptions()
_DEFAULT_PLACEMENT = PlacementOptions()


def predict(
    model: ModelPath,
    /,
    *,
    target: TargetName = DEFAULT_TARGET,
    precision: PrecisionName = "int8",
    power_mode: PowerModeName = None,
    model_options: ModelOptions = _DEFAULT_MODEL,
    placement: PlacementOptions = _DEFAULT_PLACEMENT,
    batch: Annotated[int | None, Parameter(help="Images of one inference.")] = None,
    sparse: Annotated[bool, Parameter(negative="", help="Weights have the 2:4 pattern.")] = False,
    linear_io: Annotated[
        bool, Parameter(negative="", help="FP32 linear inputs and outputs, as trtexec has them by default.")
    ] = False,
    compare: Annotated[
        Literal["gpu"] | None, Parameter(help="Also predict the whole network on the GPU, as an order of magnitude.")
    ] = None,
    rewrite: Annotated[
        bool, Parameter(negative="", help="Rewrite the network first, and predict what prepare would write.")
    ] = False,
    rows: Annotated[int, Parameter(help="Layers in the table.")] = 40,
    format: Annotated[
        Literal["text", "json", "csv"], Parameter(name=["--format", "-f"], help="Output format.")
    ] = "text",
    output: ReportPath = None,
) -> int:
    """Predict time, bound, MAC utilisation and bytes of every layer, without a board.

    Every figure rests on published measurements and carries a band; nothing is measured here. Exit status:
    0, or 2 if the model or the options are unusable.
    """
    import orinport
    from orinport.placing import parse_wishes
    from orinport.report.json import dumps
    from orinport.report.predict import compare_text, predict_csv, predict_document, predict_text

    require_rows(rows)
    prediction = orinport.predict(
        model,
        target=target,
        precision=precision,
        power_mode=power_mode,
        shapes=model_options.shapes or None,
        batch=batch,
        sparse=sparse,
        linear_io=linear_io,
        rewrite=rewrite,
        compare_gpu=compare == "gpu",
        optimize=placement.optimize,
        keep=parse_wishes(placement.keep),
        cores=placement.cores,
        progress=progress,
    )
    progress("")
    if format == "json":
        text = dumps(predict_document(prediction))
    elif format == "csv":
        text = predict_csv(predict_document(prediction))
    else:
        text = predict_text(prediction, style(), rows=rows) + compare_text(prediction)
    emit(text, output, model, target)
    return 0
