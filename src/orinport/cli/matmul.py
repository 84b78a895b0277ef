"""`orinport matmul`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from orinport.cli.options import (
    PowerModeName,
    PrecisionName,
    ReportPath,
    TargetName,
    TextFormat,
    emit,
    progress,
    require_free,
    style,
)
from orinport.targets import DEFAULT_TARGET

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orinport.matmul.planner import MatmulReport

__all__ = ["matmul"]


def matmul(
    product: Annotated[
        tuple[str, ...], Parameter(help="M K N, or the shapes as 128x1024@1024x128.", consume_multiple=True)
    ],
    /,
    *,
    count: Annotated[int, Parameter(help="How many products there are.")] = 1,
    constant: Annotated[
        Literal["rhs", "lhs", "none"], Parameter(help="The operand that is known when the network is built.")
    ] = "rhs",
    distinct: Annotated[bool, Parameter(negative="", help="Every product has a constant of its own.")] = False,
    values: Annotated[
        Path | None, Parameter(help="The constant, a .npy or .npz file; random values if left out.")
    ] = None,
    target: TargetName = DEFAULT_TARGET,
    precision: PrecisionName = "int8",
    power_mode: PowerModeName = None,
    write: Annotated[
        Path | None, Parameter(help="Write the best plan's network to this .onnx file, its layouts to .json beside it.")
    ] = None,
    force: Annotated[bool, Parameter(negative="", help="Replace existing files.")] = False,
    format: TextFormat = "text",
    output: ReportPath = None,
) -> int:
    """Rank the ways to put a matrix product on the DLA, predict each, prove the best against NumPy, and write it.

    Exit status: 0 if there is a plan that the DLA takes, 1 if not, 2 if the sizes or options are unusable.
    """
    import orinport
    from orinport.report.json import dumps
    from orinport.report.matmul import matmul_document, matmul_text

    m, k, n = _sizes(product)
    report = orinport.plan_matmul(
        m,
        k,
        n,
        count=count,
        constant=constant,
        distinct=distinct,
        values=None if values is None else _read(values),
        target=target,
        precision=precision,
        power_mode=power_mode,
        progress=progress,
    )
    progress("")
    document = matmul_document(report)
    if write is not None:
        _write(write, report, dumps(document), values, force=force)
    emit(dumps(document) if format == "json" else matmul_text(report, style()), output, values, target)
    return 0 if report.best is not None else 1


def _sizes(words: tuple[str, ...]) -> tuple[int, int, int]:
    from orinport.errors import OrinportError
    from orinport.matmul.product import parse_product

    if len(words) == 3 and all(word.isascii() and word.isdigit() for word in words):
        return int(words[0]), int(words[1]), int(words[2])
    if len(words) == 3 and words[1] in ("@", "x", "*"):
        return parse_product(f"{words[0]}@{words[2]}")
    if len(words) == 1:
        return parse_product(words[0])
    raise OrinportError(f"{' '.join(words)!r} is no matrix product.", "Write 128 1024 128 or 128x1024@1024x128.")


def _read(path: Path) -> NDArray[Any]:
    from orinport.arrays import read_arrays
    from orinport.errors import OrinportError

    held = read_arrays(path)
    if len(held) != 1:
        raise OrinportError(f"{str(path)!r} holds {len(held)} arrays, and the product takes one constant.")
    return next(iter(held.values()))


def _write(path: Path, report: MatmulReport, text: str, values: Path | None, *, force: bool) -> None:
    from orinport.model.save import save_proto

    if report.best is None:
        return
    layout = path.with_suffix(".json")
    for file in (path, layout):
        require_free(file, values, force=force)
    save_proto(report.best.candidate.model, path)
    emit(text, layout)
