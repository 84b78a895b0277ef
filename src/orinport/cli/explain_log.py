"""`orinport explain-log`."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

from cyclopts import Parameter

from orinport.cli.options import ModelOptions, ReportPath, TargetOptions, TextFormat, emit, style

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["explain_log"]

_DEFAULT_TARGET = TargetOptions()
_DEFAULT_MODEL = ModelOptions()


def explain_log(
    log: Annotated[
        str,
        Parameter(allow_leading_hyphen=True, help="A log of trtexec or of a program that uses TensorRT; - for stdin."),
    ],
    /,
    *,
    model: Annotated[
        Path | None,
        Parameter(name=["--model", "-m"], help="The ONNX file of that build: names its nodes, compares the verdicts."),
    ] = None,
    target: TargetOptions = _DEFAULT_TARGET,
    model_options: ModelOptions = _DEFAULT_MODEL,
    format: TextFormat = "text",
    output: ReportPath = None,
) -> int:
    """Read a log: what went where and why, the true reason of a failure first, and what to do.

    Exit status: 0 if the log holds no refusal, no failure and no error and agrees with the verdicts, 1 if not,
    2 if the log or the model is unusable.
    """
    from orinport.device.log import read_log
    from orinport.report.json import dumps
    from orinport.report.log import log_document, log_text

    with _opened(log) as lines:
        report = read_log(lines)
    match = None
    if model is not None:
        import orinport
        from orinport.device.log_match import match_log

        check = orinport.check(
            model,
            target=target.target,
            precision=target.precision,
            shapes=model_options.shapes or None,
            standalone=target.standalone,
        )
        match = match_log(report, check)
    name = "stdin" if log == "-" else log
    text = dumps(log_document(name, report, match)) if format == "json" else log_text(name, report, match, style())
    emit(text, output, log, model)
    quiet = report.reason is None and not report.refused and not (match and match.differences)
    quiet = quiet and (not report.errors or report.outcome == "PASSED")
    return 0 if quiet else 1


@contextmanager
def _opened(log: str) -> Iterator[TextIO]:
    """The log as text; bytes that are none are replaced."""
    from orinport.errors import OrinportError
    from orinport.files import as_text

    if log == "-":
        if sys.stdin is None:
            raise OrinportError("There is no standard input.", "Name a file.")
        binary = getattr(sys.stdin, "buffer", None)
        yield sys.stdin if binary is None else as_text(binary)
        return
    try:
        with Path(log).open("rb") as file:
            if stat.S_ISCHR(os.fstat(file.fileno()).st_mode) and not file.isatty():
                raise OrinportError(f"{log!r} is a device, no log.")
            yield as_text(file)
    except OSError as error:
        raise OrinportError(f"{log!r} cannot be read: {error.strerror}.") from error
