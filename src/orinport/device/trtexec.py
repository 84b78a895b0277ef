"""The trtexec command for a target: only options that its TensorRT version has, every name quoted."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from orinport.errors import OrinportError
from orinport.targets.version import Version
from orinport.toml import read_toml

if TYPE_CHECKING:
    from orinport.placement.placement import IOFormat, Placement
    from orinport.targets.target import Precision, Target

__all__ = ["BuildOptions", "build_arguments", "has_option", "shell_command"]


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What the build on the board is asked for beside the target itself."""

    standalone: bool = False
    dla_core: int | None = 0
    """None for an engine on the GPU alone."""
    cache: str = ""
    """The calibration cache in the bundle's folder; empty without one."""
    layer_precisions: bool = False
    """The bundle holds `layer_precisions.txt`."""
    sram_mib: float | None = None
    """DLA managed SRAM per loadable in MiB; None leaves TensorRT's default."""
    gpu_layers: tuple[str, ...] = ()
    """Layers that the DLA takes and that are to run on the GPU all the same."""


@cache
def _options() -> dict[str, tuple[Version | None, Version | None]]:
    table = read_toml(resources.files("orinport.targets") / "data" / "trtexec.toml")["options"]

    def version(entry: dict[str, str], key: str) -> Version | None:
        return Version.parse(entry[key]) if key in entry else None

    return {name: (version(entry, "since"), version(entry, "until")) for name, entry in table.items()}


def has_option(name: str, tensorrt: Version) -> bool:
    """True if trtexec of this TensorRT version has the option (without its leading dashes).

    Options that the table does not name exist in every version that orinport knows.
    """
    since, until = _options().get(name, (None, None))
    if since is not None and tensorrt < since:
        return False
    return until is None or tensorrt < until or tensorrt.starts_with(until)


def build_arguments(
    target: Target, precision: Precision, placement: Placement, options: BuildOptions, *, engine: str
) -> list[str]:
    """Arguments of trtexec, unquoted, without the program and without `--onnx`.

    `engine` is the file that the engine or loadable is saved to.
    """
    version = target.stack.tensorrt
    on_dla = options.dla_core is not None
    arguments = [f"--saveEngine={engine}", *([f"--useDLACore={options.dla_core}"] if on_dla else [])]
    if has_option("fp16", version):
        arguments.append("--fp16")
    if precision.value == "int8" and has_option("int8", version):
        arguments.append("--int8")
    if options.cache:
        arguments.append(f"--calib={options.cache}")
    if options.layer_precisions:
        arguments.append("--precisionConstraints=prefer")
    arguments += _io_formats(version, placement)
    if options.standalone and on_dla:
        arguments.append("--buildDLAStandalone" if has_option("buildDLAStandalone", version) else "--safe")
    elif placement.all_dla:
        if has_option("directIO", version):
            arguments.append("--directIO")
    elif on_dla:
        arguments.append("--allowGPUFallback")
    if placement.all_dla and has_option("adjustForDLA", version):
        arguments.append("--adjustForDLA")
    if options.gpu_layers:
        arguments.append(f"--layerDeviceTypes={_devices(options.gpu_layers, version)}")
    if options.sram_mib is not None:
        arguments.append(f"--memPoolSize=dlaSRAM:{options.sram_mib:g}")
    arguments.append("--timingCacheFile=timing.cache")
    if not (options.standalone and on_dla):  # trtexec reads the information from the engine, and a loadable is none
        arguments += ["--exportLayerInfo=layers.json", "--profilingVerbosity=detailed"]
    arguments.append("--skipInference" if has_option("skipInference", version) else "--buildOnly")
    return arguments


def _devices(names: tuple[str, ...], version: Version) -> str:
    """Layers for the GPU in trtexec's spelling. Raises OrinportError where trtexec cannot be told."""
    if not has_option("layerDeviceTypes", version):
        raise OrinportError(f"trtexec of TensorRT {version} cannot move single layers.", "It can from 8.6 on.")
    for name in names:
        if "," in name or ":" in name:
            raise OrinportError(f"trtexec cannot be told to move the layer {name!r}: its name holds , or :.")
    return ",".join(f"{name}:GPU" for name in names)


def _io_formats(version: Version, placement: Placement) -> list[str]:
    typed = has_option("typedIOFormats", version)

    def spell(formats: tuple[IOFormat, ...]) -> str:
        return ",".join(f"{f.dtype.value}:{f.format}" if typed else f.format for f in formats)

    return [
        f"--inputIOFormats={spell(placement.inputs)}",
        f"--outputIOFormats={spell(placement.outputs)}",
    ]


def shell_command(program: str, arguments: list[str]) -> str:
    """One shell command over several lines; every argument is quoted for a POSIX shell."""
    return " \\\n  ".join([program, *(shlex.quote(argument) for argument in arguments)])
