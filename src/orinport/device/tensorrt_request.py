"""A build in trtexec's words, for TensorRT's Python package: what a bundle's `build.sh` asks for, and more options.

Options and their meaning are those of trtexec (samples/common/sampleOptions.cpp of github.com/NVIDIA/TensorRT, 8.5.2 to
11.1). One that has no counterpart here is refused, never ignored.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orinport.device.trtexec import shell_command
from orinport.errors import OrinportError
from orinport.files import read_bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["BuildRequest", "EdgeRequest", "bundle_arguments", "parse_request"]

_SET = "\nset -- "
_END = '"$@"\nexec "$trtexec" "$@"\n'
_PRECISIONS = '"--layerPrecisions=$(cat layer_precisions.txt)" \\\n  '
_IGNORED = frozenset({"skipInference", "buildOnly", "explicitBatch"})
"""What asks for nothing beside the build, which is all that happens here."""
_FLAGS = {
    "allowGPUFallback": "gpu_fallback",
    "fp16": "fp16",
    "int8": "int8",
    "directIO": "direct_io",
    "buildDLAStandalone": "standalone",
    "safe": "standalone",
    "adjustForDLA": "adjust_for_dla",
    "reportCapabilityDLA": "report_capability_dla",
    "stronglyTyped": "strongly_typed",
    "verbose": "verbose",
}
_PATHS = {
    "onnx": "onnx",
    "saveEngine": "engine",
    "calib": "calibration",
    "timingCacheFile": "timing_cache",
    "exportLayerInfo": "layer_info",
}
_PLUGINS = frozenset({"plugins", "staticPlugins", "dynamicPlugins"})
_POOLS = {
    "workspace": "WORKSPACE",
    "dlaSRAM": "DLA_MANAGED_SRAM",
    "dlaLocalDRAM": "DLA_LOCAL_DRAM",
    "dlaGlobalDRAM": "DLA_GLOBAL_DRAM",
    "tacticSharedMem": "TACTIC_SHARED_MEMORY",
}
_UNITS = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_TYPES = frozenset({"fp32", "fp16", "bf16", "int8", "uint8", "int32", "int64", "bool", "fp8"})
_FORMATS = frozenset(
    {
        *("chw", "chw2", "chw4", "chw16", "chw32", "hwc", "hwc8", "hwc16", "dhwc", "dhwc8", "cdhw32"),
        *("dla_linear", "dla_hwc4"),
    }
)
_VERBOSITIES = {"layer_names_only": "LAYER_NAMES_ONLY", "detailed": "DETAILED", "none": "NONE"}
_LARGEST_SRAM = 30


@dataclass(frozen=True, slots=True)
class EdgeRequest:
    """Element type (empty: the network's own) and allowed memory formats of one input or output."""

    dtype: str
    formats: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What to build, from what, and how."""

    onnx: str = ""
    engine: str = ""
    dla_core: int = -1
    """-1: the GPU."""
    gpu_fallback: bool = False
    standalone: bool = False
    fp16: bool = False
    int8: bool = False
    direct_io: bool = False
    adjust_for_dla: bool = False
    report_capability_dla: bool = False
    strongly_typed: bool = False
    verbose: bool = False
    calibration: str = ""
    constraints: str = ""
    """`prefer`, `obey` or empty."""
    layer_precisions: tuple[tuple[str, str], ...] = ()
    layer_devices: tuple[tuple[str, str], ...] = ()
    inputs: tuple[EdgeRequest, ...] = ()
    outputs: tuple[EdgeRequest, ...] = ()
    pools: Mapping[str, int] = field(default_factory=dict)
    """Limits in bytes, by the name of the memory pool in TensorRT's API."""
    timing_cache: str = ""
    layer_info: str = ""
    verbosity: str = "LAYER_NAMES_ONLY"
    optimization_level: int | None = None
    average_timing: int | None = None
    tf32: bool = True
    sparse: bool = False
    plugins: tuple[str, ...] = ()


def bundle_arguments(folder: Path) -> list[str]:
    """The arguments for trtexec in a bundle's `build.sh`.

    Raises OrinportError if the script is not as `prepare` wrote it: only a shell knows what a changed one means.
    """
    path = folder / "build.sh"
    try:
        text = read_bounded(path, 1 << 22).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OrinportError(f"{str(path)!r} cannot be read: {error}.") from error
    changed = OrinportError(
        f"{str(path)!r} is not as prepare wrote it, so it can only be run with trtexec.",
        "Give the changes after -- instead, or install trtexec.",
    )
    _, found, rest = text.partition(_SET)
    if not found or not rest.endswith(_END):
        raise changed
    words = rest.removesuffix(_END)
    with_precisions = words.endswith(_PRECISIONS)
    words = words.removesuffix(_PRECISIONS)
    try:
        arguments = [word for word in shlex.split(words.replace("\\\n", " ")) if word.strip()]
    except ValueError:
        raise changed from None
    if f"{shell_command('', arguments).strip()} \\\n  " != words:
        raise changed
    if with_precisions:
        arguments.append(f"--layerPrecisions={_read_precisions(folder / 'layer_precisions.txt')}")
    return arguments


def _read_precisions(path: Path) -> str:
    try:
        return read_bounded(path, 1 << 26).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OrinportError(f"{str(path)!r} cannot be read: {error}.") from error


def parse_request(arguments: Iterable[str]) -> BuildRequest:
    """Read trtexec's arguments; of an option that is given twice the last one counts.

    Raises OrinportError for options and values that have no counterpart in the Python package.
    """
    request = BuildRequest()
    for argument in arguments:
        request = _with(request, argument)
    if not request.onnx or not request.engine:
        raise OrinportError("The build names no network or no engine.", "Give --onnx=FILE and --saveEngine=FILE.")
    if request.standalone and request.dla_core < 0:
        raise OrinportError("A standalone loadable is for the DLA.", "Add --useDLACore=0.")
    return request


def _with(request: BuildRequest, argument: str) -> BuildRequest:
    name, _, value = argument.removeprefix("--").partition("=")
    if not argument.startswith("--"):
        raise OrinportError(f"{argument!r} is no option.", "Options begin with --, as trtexec's do.")
    if name in _IGNORED:
        return request
    if name in _PLUGINS:
        return replace(request, plugins=(*request.plugins, _required(name, value)))
    changes: dict[str, Any]
    if name in _FLAGS:
        changes = {_FLAGS[name]: True}
    elif name in _PATHS:
        changes = {_PATHS[name]: _required(name, value)}
    elif name in _READERS:
        changes = _READERS[name](name, value)
    else:
        raise OrinportError(
            f"--{name} has no counterpart in orinport's build through TensorRT's Python package.",
            "Leave it out, or install trtexec.",
        )
    return replace(request, **changes)


def _required(name: str, value: str) -> str:
    if not value:
        raise OrinportError(f"--{name} needs a value.", f"Write --{name}=VALUE.")
    return value


def _number(name: str, value: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value):
        raise OrinportError(f"--{name}={value} is no whole number.")
    return int(value)


def _choice(name: str, value: str, choices: Iterable[str]) -> str:
    if value not in choices:
        raise OrinportError(f"--{name}={value} is unknown.", f"Use one of {', '.join(sorted(choices))}.")
    return value


def _pairs(name: str, value: str, choices: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """`layer:value,layer:value`; a layer's name may hold colons."""
    pairs = []
    for entry in filter(None, value.split(",")):
        layer, found, choice = entry.rpartition(":")
        if not found or not layer:
            raise OrinportError(f"--{name}: {entry!r} is not LAYER:VALUE.")
        pairs.append((layer, _choice(name, choice, choices)))
    return tuple(pairs)


def _edges(name: str, value: str) -> tuple[EdgeRequest, ...]:
    edges = []
    for entry in value.split(","):
        dtype, colon, formats = entry.rpartition(":")
        if colon:
            _choice(name, dtype, _TYPES)
        edges.append(EdgeRequest(dtype, tuple(_choice(name, each, _FORMATS) for each in formats.split("+"))))
    return tuple(edges)


def _pool_limits(name: str, value: str) -> dict[str, int]:
    pools = {}
    for entry in value.split(","):
        pool, _, size = entry.partition(":")
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([BKMG]?)", size)
        if pool not in _POOLS or found is None:
            raise OrinportError(f"--{name}: {entry!r} is no memory pool and size.", "Write dlaSRAM:1, in MiB.")
        number = int(float(found.group(1)) * _UNITS[found.group(2) or "M"])
        pools[_POOLS[pool]] = _power_of_two(number) if pool == "dlaSRAM" else number
    return pools


def _power_of_two(number: int) -> int:
    """What trtexec makes of a size of DLA managed SRAM, which is a power of two: the next one below."""
    return 1 << min(number.bit_length() - 1, _LARGEST_SRAM) if number else 0


_READERS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "useDLACore": lambda name, value: {"dla_core": _number(name, value)},
    "precisionConstraints": lambda name, value: {
        "constraints": _choice(name, value, ("none", "obey", "prefer")).replace("none", "")
    },
    "layerPrecisions": lambda name, value: {"layer_precisions": _pairs(name, value, _TYPES)},
    "layerDeviceTypes": lambda name, value: {"layer_devices": _pairs(name, value, ("GPU", "DLA"))},
    "inputIOFormats": lambda name, value: {"inputs": _edges(name, value)},
    "outputIOFormats": lambda name, value: {"outputs": _edges(name, value)},
    "memPoolSize": lambda name, value: {"pools": _pool_limits(name, value)},
    "profilingVerbosity": lambda name, value: {"verbosity": _VERBOSITIES[_choice(name, value, _VERBOSITIES)]},
    "builderOptimizationLevel": lambda name, value: {"optimization_level": _number(name, value)},
    "avgTiming": lambda name, value: {"average_timing": _number(name, value)},
    "noTF32": lambda *_: {"tf32": False},
    "sparsity": lambda name, value: {"sparse": _choice(name, value, ("disable", "enable")) == "enable"},
}
