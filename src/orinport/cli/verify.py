"""`orinport verify`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from orinport.cli.options import ModelOptions, TextFormat, progress, style
from orinport.targets import DEFAULT_TARGET

__all__ = ["verify"]


@Parameter(name="*")
@dataclass(frozen=True)
class EmulationFlags:
    """One network as the DLA computes it."""

    emulate: Annotated[
        Literal["dla-int8", "dla-fp16"] | None,
        Parameter(name="--as", help="Run the last network as the DLA computes it, and compare it with FP32."),
    ] = None
    target: Annotated[
        str | None,
        Parameter(
            name=["--target", "-t"],
            help=f"With --as: board and software; by default a bundle's own, for a network {DEFAULT_TARGET}.",
        ),
    ] = None
    scales: Annotated[
        Path | None, Parameter(help="With --as dla-int8: a calibration cache or JSON file; a bundle has its own.")
    ] = None
    data: Annotated[
        str | None, Parameter(name=["--data", "-d"], help="With --as: samples, as quantize takes them.")
    ] = None
    preprocess: Annotated[Path | None, Parameter(help="TOML file that says how a picture becomes the input.")] = None
    ties: Annotated[
        Literal["all", "except-products", "none"], Parameter(help="Which ranges are made equal for the DLA.")
    ] = "all"
    min_snr: Annotated[float, Parameter(help="With --as: signal-to-noise ratio in dB below which it is wrong.")] = 20.0
    rank: Annotated[
        bool, Parameter(negative="", help="With --as dla-int8: try every layer in FP16 and rank what that gains.")
    ] = False


_DEFAULT_MODEL = ModelOptions()
_DEFAULT_EMULATION = EmulationFlags()


def verify(
    reference: Annotated[Path, Parameter(help="The original ONNX file.")],
    candidate: Annotated[
        Path | None, Parameter(help="The ONNX file, or the bundle, to compare with it; with --as there may be none.")
    ] = None,
    /,
    *,
    model_options: ModelOptions = _DEFAULT_MODEL,
    cases: Annotated[int, Parameter(help="Number of random inputs.")] = 3,
    seed: Annotated[int, Parameter(help="Seed of the random inputs.")] = 0,
    tolerance: Annotated[
        float | None,
        Parameter(help="Largest difference relative to the largest value; by default from the types."),
    ] = None,
    emulation: EmulationFlags = _DEFAULT_EMULATION,
    format: TextFormat = "text",
) -> int:
    """Run two models on the same random inputs and compare every output; or one as the DLA computes it.

    A bundle is compared through its record of moved edges. With --as the last model (or bundle) runs in the DLA's
    arithmetic, against the first in FP32, or against itself where there is only one. Exit status: 0 equal, or no output
    below --min-snr; 1 different; 2 unusable.
    """
    import sys

    import orinport
    from orinport.errors import OrinportError
    from orinport.report.json import dumps, verify_document
    from orinport.report.text import verify_text

    if emulation.emulate is None and emulation != _DEFAULT_EMULATION:
        raise OrinportError("Options of an emulation were given without --as.", "Add --as dla-int8 or --as dla-fp16.")
    if emulation.emulate is not None:
        if tolerance is not None:
            raise OrinportError("A tolerance is for two networks.", "An emulation has --min-snr.")
        return _emulate(reference, candidate, model_options, cases, seed, emulation, format)
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


def _emulate(
    reference: Path,
    candidate: Path | None,
    options: ModelOptions,
    cases: int,
    seed: int,
    flags: EmulationFlags,
    format: str,
) -> int:
    import sys

    import orinport
    from orinport.report.emulate import emulation_document, emulation_text
    from orinport.report.json import dumps

    assert flags.emulate is not None
    report = orinport.verify(
        reference,
        candidate,
        shapes=options.shapes or None,
        cases=cases,
        seed=seed,
        emulate=flags.emulate,
        target=flags.target,
        scales=flags.scales,
        data=flags.data,
        preprocess=flags.preprocess,
        ties=flags.ties,
        min_snr=flags.min_snr,
        rank=flags.rank,
        progress=progress,
    )
    progress("")
    sys.stdout.write(dumps(emulation_document(report)) if format == "json" else emulation_text(report, style()))
    return 0 if report.good else 1
