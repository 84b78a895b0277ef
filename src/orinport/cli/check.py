"""`orinport check`."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from orinport.cli.options import ModelOptions, ModelPath, ReportPath, SelectOptions, TargetOptions, emit, style

__all__ = ["check"]

_DEFAULT_TARGET = TargetOptions()
_DEFAULT_MODEL = ModelOptions()
_DEFAULT_SELECT = SelectOptions()


def check(
    model: ModelPath,
    /,
    *,
    target: TargetOptions = _DEFAULT_TARGET,
    model_options: ModelOptions = _DEFAULT_MODEL,
    select: SelectOptions = _DEFAULT_SELECT,
    gpu_fallback: Annotated[bool, Parameter(help="Whether refused layers may run on the GPU.")] = True,
    format: Annotated[
        Literal["text", "json", "sarif", "github"], Parameter(name=["--format", "-f"], help="Output format.")
    ] = "text",
    output: ReportPath = None,
    with_tensorrt: Annotated[
        bool,
        Parameter(negative="", help="Also hand the model to NVIDIA's own parser (extra 'tensorrt') and compare."),
    ] = False,
) -> int:
    """Say for every layer whether the DLA takes it, and if not, why and what to do.

    Exit status: 0 if every layer is `dla`, 1 if not, 2 if the model or the options are unusable.
    """
    import orinport
    from orinport.report.github import github_text
    from orinport.report.json import check_document, dumps
    from orinport.report.sarif import sarif_document
    from orinport.report.text import check_text

    report = orinport.check(
        model,
        target=target.target,
        precision=target.precision,
        shapes=model_options.shapes or None,
        standalone=target.standalone,
        gpu_fallback=gpu_fallback,
        select=select.select,
        ignore=select.ignore,
    )
    if format == "json":
        text = dumps(check_document(report))
    elif format == "sarif":
        from orinport.rules import titles

        text = dumps(sarif_document(report, titles()))
    elif format == "github":
        text = github_text(report)
    else:
        text = check_text(report, style())
    emit(text, output, model, target.target)
    agrees = True
    if with_tensorrt:
        from orinport.cli.tensorrt import compare_with_parser

        agrees = compare_with_parser(model, target.target, model_options.shapes)
    return 0 if report.clean and agrees else 1
