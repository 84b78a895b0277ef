"""Calibration caches, `layer_precisions.txt` and scales as JSON.

A cache is plain text: `TRT-<version>-EntropyCalibration2`, then `name: hex` for each tensor, where hex is the bit
pattern of the binary32 scale as a hexadecimal integer in lower case, most significant digit first, without `0x`
and without leading zeros. Names may hold colons, so a line is split at its last `": "`. The version is that of
`NV_TENSORRT_VERSION`: major * 1000 + minor * 100 + patch up to TensorRT 8 (NvInferRuntimeBase.h 8.6.1), major *
10000 + minor * 100 + patch from 10 on (NvInferRuntimeBase.h 10.3.0).

`layer_precisions.txt` is the argument of trtexec's `--layerPrecisions`: `name:fp16,name:fp16`. trtexec splits at
commas, then at the last colon, and takes single quotes for itself (sampleOptions.cpp 8.6.1).
"""

from __future__ import annotations

import json
import re
import struct
from typing import TYPE_CHECKING, Any

import msgspec

from orinport.errors import OrinportError, first_line
from orinport.files import read_bounded
from orinport.precision.findings import invalid_scale, repeated_entry
from orinport.precision.scales import Origin, Scale, Scales, is_valid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from orinport.rules.finding import Finding
    from orinport.targets.version import Version

__all__ = [
    "cache_header",
    "cache_text",
    "fits_a_line",
    "is_safe_layer_name",
    "layer_precisions",
    "parse_cache",
    "parse_json",
    "read_layer_precisions",
    "read_scales",
    "scale_hex",
    "scales_json",
]

_HEADER = re.compile(r"TRT-(\d+)-(\w+)")
_ENTRY = re.compile(r"(.*): ([0-9a-fA-F]{1,8})")
_MANY_DIGITS = 10
_UNSAFE = re.compile(r"[,:'\"\s*?$`\\;|&<>()]")
_SCHEMA = 1


def scale_hex(scale: float) -> str:
    """The bit pattern of a scale as a cache spells it: 1.0 is `3f800000`."""
    return f"{struct.unpack('>I', struct.pack('>f', scale))[0]:x}"


def cache_header(tensorrt: Version) -> str:
    """The first line of a cache for this TensorRT version, without its line end."""
    major, minor, patch = (*tensorrt.parts, 0, 0)[:3]
    weight = 10_000 if major >= _MANY_DIGITS else 1_000
    return f"TRT-{major * weight + minor * 100 + patch}-EntropyCalibration2"


def cache_text(scales: Mapping[str, Scale], tensorrt: Version) -> str:
    """A calibration cache. Raises OrinportError for names that it cannot hold, and from TensorRT 11 on."""
    if tensorrt.parts[0] >= 11:
        raise OrinportError(
            f"TensorRT {tensorrt} reads no calibration cache.", "Write a Q/DQ model: give an output that ends in .onnx."
        )
    for name in scales:
        if not fits_a_line(name):
            raise OrinportError(
                f"The tensor name {name!r} does not fit into a line of a calibration cache.", "Rename the tensor."
            )
    lines = [cache_header(tensorrt), *(f"{name}: {scale_hex(scale.value)}" for name, scale in scales.items())]
    return "\n".join(lines) + "\n"


def fits_a_line(name: str) -> bool:
    """True if a calibration cache can hold a tensor of this name."""
    return bool(name) and "\n" not in name and "\r" not in name


def parse_cache(text: str, where: str = "The calibration cache") -> Scales:
    """Scales of a cache; what is no scale becomes a finding. Raises OrinportError if the text is no cache."""
    lines = text.split("\n")
    header = _HEADER.fullmatch(lines[0].rstrip("\r"))
    if header is None:
        raise OrinportError(
            f"{where} does not begin with TRT-<version>-<calibrator>: {lines[0][:60]!r}.",
            "Is it a TensorRT calibration cache?",
        )
    tensors: dict[str, Scale] = {}
    findings: list[Finding] = []
    for number, line in enumerate(lines[1:], start=2):
        entry = _ENTRY.fullmatch(line.rstrip("\r"))
        if entry is None:
            if line.strip():
                raise OrinportError(
                    f"Line {number} of {where[0].lower() + where[1:]} is not `name: hex`: {line[:60]!r}."
                )
            continue
        name, value = entry.group(1), struct.unpack(">f", struct.pack(">I", int(entry.group(2), 16)))[0]
        _enter(tensors, findings, name, value, Origin.CACHE)
    return Scales(tensors, header.group(2), tuple(findings))


def _enter(tensors: dict[str, Scale], findings: list[Finding], name: str, value: float, origin: Origin) -> None:
    """Take one entry in; of two different scales of one name the larger counts, and both are told."""
    if not is_valid(value):
        findings.append(invalid_scale(name, value))
        return
    scale = Scale(value, origin)
    known = tensors.get(name)
    if known is not None and known.value != scale.value:
        findings.append(repeated_entry(name, known.value, scale.value))
        scale = max(known, scale, key=lambda each: each.value)
    tensors[name] = scale


def scales_json(scales: Scales) -> str:
    """Scales as JSON: exact decimals of the binary32 scales, ranges, and where each comes from."""
    document = {
        "schema_version": _SCHEMA,
        "method": scales.method,
        "tensors": {
            name: {"scale": each.value, "range": each.range, "origin": each.origin.value, "note": each.note}
            for name, each in scales.tensors.items()
        },
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"


def parse_json(data: bytes, where: str = "The file") -> Scales:
    """Scales of `scales_json`, or of any `{"tensors": {name: {"scale": s} or s}}` or `{"int8_tensor_scales": ...}`.

    Raises OrinportError if it is none of them.
    """
    try:
        document = json.loads(data, object_pairs_hook=lambda pairs: _once(pairs, where))
    except (ValueError, RecursionError) as error:
        raise OrinportError(f"{where} is not JSON: {error}.") from error
    entries = None
    if isinstance(document, dict):
        entries = document.get("tensors", document.get("int8_tensor_scales"))
    if not isinstance(entries, dict):
        raise OrinportError(f"{where} holds no scales.", 'Write {"tensors": {"name": {"scale": 0.01}}}.')
    tensors: dict[str, Scale] = {}
    findings: list[Finding] = []
    for name, entry in entries.items():
        _enter(tensors, findings, name, _number(name, entry, where), _origin(entry))
    return Scales(tensors, str(document.get("method", "")), tuple(findings))


def _once(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    """A JSON object. Raises OrinportError if it gives two values for a name, of which JSON readers take either."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise OrinportError(f"{where} has {repeated!r} more than once.", "Keep one of them.")
    return found


def _number(name: str, entry: Any, where: str) -> float:
    value = entry.get("scale") if isinstance(entry, dict) else entry
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise OrinportError(f"{where} has no number as the scale of {name!r}.")
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _origin(entry: Any) -> Origin:
    if isinstance(entry, dict) and entry.get("origin") in (Origin.FREE.value, Origin.FUSED.value):
        return Origin(entry["origin"])
    return Origin.FILE


def read_scales(path: Path) -> Scales:
    """Scales from a calibration cache or a JSON file, told apart by how they begin."""
    try:
        data = read_bounded(path)
    except OSError as error:
        raise OrinportError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    if data.lstrip()[:1] == b"{":
        return parse_json(data, repr(str(path)))
    try:
        return parse_cache(data.decode("utf-8"), repr(str(path)))
    except UnicodeDecodeError as error:
        raise OrinportError(f"{str(path)!r} is neither a calibration cache nor JSON.") from error


def is_safe_layer_name(name: str) -> bool:
    """True if trtexec and a shell take the name as it is."""
    return bool(name) and _UNSAFE.search(name) is None


def layer_precisions(names: Iterable[str]) -> str:
    """The argument of `--layerPrecisions` that runs these layers in FP16; empty if there are none.

    Raises OrinportError for names that trtexec would split.
    """
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        if not is_safe_layer_name(name):
            raise OrinportError(
                f"The layer name {name!r} cannot stand in --layerPrecisions.", "Rename the node; prepare does so."
            )
    return ",".join(f"{name}:fp16" for name in chosen)


def read_layer_precisions(path: Path) -> tuple[str, ...]:
    """The names in a file that holds what `layer_precisions` gives; none if there is no such file.

    Raises OrinportError for a file that cannot be read or holds anything else.
    """
    try:
        text = read_bounded(path).decode("utf-8").strip()
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise OrinportError(f"{str(path)!r} cannot be read: {first_line(error)}.") from error
    pairs = [entry.rpartition(":") for entry in text.split(",")] if text else []
    for name, _, precision in pairs:
        if not name or precision != "fp16":
            raise OrinportError(f"{str(path)!r} is not a list of `layer:fp16`.", "Prepare the bundle again.")
    return tuple(name for name, _, _ in pairs)
