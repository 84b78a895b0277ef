"""`orinport verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from orinport.cli.options import ModelOptions, style

__all__ = ["verify"]

_DEFAULT_MODEL = ModelOptions()


def verify(
    reference: Annotated[Path, Parameter(help="The original ONNX file.")],
    candidate: Annotated[Path, Parameter(help="The ONNX file, or the bundle, to compare with it.")],
    /,
    *,
    model_options: ModelOptions = _DEFAULT_MODEL,
    cases: Annotated[int, Parameter(help="Number of random inputs.")] = 3,
    seed: Annotated[int, Parameter(help="Seed of the random inputs.")] = 0,
    tolerance: Annotated[
        float | None,
        Parameter(help="Largest difference relative to the largest value; by default from the types."),
    ] = None,
    format: Annotated[Literal["text", "json"], Parameter(name=["--format", "-f"], help="Output format.")] = "text",
) -> int:
    """Run two models on the same random inputs and compare every output.

    A bundle is compared through its record of moved edges. Exit status: 0 equal, 1 different, 2 unusable.
    """
    import sys

    import orinport
    from orinport.report.json import dumps, verify_document
    from orinport.report.text import verify_text

    report = orinport.verify(
        reference,
        candidate,
        shapes=model_options.shapes or None,
        cases=cases,
        seed=seed,
        tolerance=tolerance,
    )
    sys.stdout.write(dumps(verify_document(report)) if format == "json" else verify_text(report, style()))
    return 0 if report.equal else 1
