"""`orinport run`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from orinport.cli.options import BoardOptions, ReportPath, TextFormat, emit, progress, style

__all__ = ["run"]


@Parameter(name="*")
@dataclass(frozen=True)
class DataFlags:
    """What the network is fed."""

    data: Annotated[
        str | None, Parameter(name=["--data", "-d"], help="Samples, as quantize takes them; random inputs without.")
    ] = None
    preprocess: Annotated[Path | None, Parameter(help="TOML file that says how a picture becomes the input.")] = None
    cases: Annotated[int, Parameter(help="Number of samples; 0 for all of the data.")] = 3
    seed: Annotated[int, Parameter(help="Seed of random inputs.")] = 0


@Parameter(name="*")
@dataclass(frozen=True)
class CompareFlags:
    """What the outputs are compared with."""

    reference: Annotated[
        Path | None, Parameter(name="--reference", help="The original ONNX file; by default the one that was built.")
    ] = None
    compare: Annotated[
        bool, Parameter(name="--compare", negative="--no-compare", help="Compare with ONNX Runtime.")
    ] = True
    min_snr: Annotated[float, Parameter(help="Signal-to-noise ratio in dB below which an output is wrong.")] = 20.0


@Parameter(name="*")
@dataclass(frozen=True)
class TimeFlags:
    """What is measured."""

    repeat: Annotated[int, Parameter(name="--repeat", help="Timed inferences of each sample.")] = 10
    warm_up: Annotated[int, Parameter(name="--warm-up", help="Inferences before them.")] = 3
    statistics: Annotated[
        Path | None,
        Parameter(name="--statistics", help="Write cuDLA's layer statistics to this CSV file, for profile."),
    ] = None
    dla_mhz: Annotated[
        int | None,
        Parameter(name="--dla-mhz", help="The DLA's clock for the statistics; by default the board is asked."),
    ] = None


_DATA, _BOARD, _COMPARE, _TIME = DataFlags(), BoardOptions(), CompareFlags(), TimeFlags()


def run(
    network: Annotated[Path, Parameter(help="A bundle's folder, an engine, a loadable, or an ONNX file.")],
    /,
    *,
    board: BoardOptions = _BOARD,
    data: DataFlags = _DATA,
    compare: CompareFlags = _COMPARE,
    time: TimeFlags = _TIME,
    save: Annotated[
        Path | None, Parameter(name="--save", help="Write the outputs to this new folder, an .npz file a sample.")
    ] = None,
    format: TextFormat = "text",
    output: ReportPath = None,
) -> int:
    """Run a network on images or arrays: on the board through TensorRT or cuDLA, or here in ONNX Runtime.

    Inputs have the shapes of the original network; a bundle knows its formats, scales and moved edges. Every output is
    compared with ONNX Runtime. Exit status: 0, 1 if an output is too far from it, 2 if something is missing or unfit.
    """
    from orinport.device.board import parts_note
    from orinport.report.json import dumps
    from orinport.report.run import run_document, run_text
    from orinport.running import RunOptions, run_network

    options = RunOptions(
        backend=board.backend,
        data=data.data,
        preprocess=data.preprocess,
        cases=data.cases,
        seed=data.seed,
        scales=board.scales,
        model=board.network,
        reference=compare.reference,
        compare=compare.compare,
        input_formats=board.input_formats,
        output_formats=board.output_formats,
        dla_core=board.dla_core,
        plugins=board.plugins,
        warm_up=time.warm_up,
        repeat=time.repeat,
        min_snr=compare.min_snr,
        save=save,
        statistics=time.statistics,
        dla_mhz=time.dla_mhz,
    )
    report = run_network(network, options, progress=progress)
    progress("")
    if network.is_dir() and (note := parts_note(network)):
        sys.stderr.write(f"{note}\n")
    text = dumps(run_document(report)) if format == "json" else run_text(report, style())
    emit(text, output, network, board.network, board.scales, compare.reference, data.data, data.preprocess)
    return 0 if report.good else 1
