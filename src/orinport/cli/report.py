"""`orinport report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from orinport.cli.options import emit

__all__ = ["report"]


def report(
    bundle: Annotated[Path, Parameter(help="A bundle's folder, or its report.json.")],
    /,
    *,
    format: Annotated[
        Literal["html", "markdown", "csv", "trace", "explorer"],
        Parameter(
            name=["--format", "-f"],
            help="One page of HTML; Markdown for a pull request; CSV of the layers; a trace for chrome://tracing or"
            " Perfetto; node data for Model Explorer.",
        ),
    ] = "html",
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], help="Write to this file.")] = None,
) -> int:
    """Render what a bundle's report.json holds in another form.

    Exit status: 0, or 2 if the bundle is unusable.
    """
    from orinport.report.document import read_report, reading_report

    document = read_report(bundle)
    if format == "html":
        from orinport.report.html import report_html

        text = report_html(document)
    elif format == "markdown":
        from orinport.report.markdown import report_markdown

        text = report_markdown(document)
    elif format == "csv":
        from orinport.errors import OrinportError
        from orinport.report.predict import predict_csv

        if document.get("prediction") is None:
            raise OrinportError("The report holds no prediction.", "No public measurement covers its target.")
        with reading_report():
            text = predict_csv(document["prediction"])
    else:
        from orinport.report.json import dumps
        from orinport.report.trace import explorer_document, trace_document

        text = dumps(trace_document(document) if format == "trace" else explorer_document(document))
    emit(text, output, bundle, bundle / "report.json", bundle / "model.onnx")
    return 0
