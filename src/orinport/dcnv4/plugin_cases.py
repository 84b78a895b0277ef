"""Inputs and float64 results for the plugins' harness, written as plain files.

The harness is C++ and runs on boards without Python, so every case is a line of text and raw arrays; the format is
described in plugin/harness/cases.h.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from orinport.dcnv4.arguments import DeformAttnArguments, Geometry, offset_mask_width
from orinport.dcnv4.node import ATTENTION, FUSED, PLAIN, attention_attributes, node_attributes
from orinport.dcnv4.reference import flash_deform_attn_reference, reference
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["write_cases"]

_INT8_VALUE_SCALE = 0.02
_INT8_OUTPUT_SCALE = 0.08


@dataclass(frozen=True, slots=True)
class _Tolerance:
    """Bounds of the relative L2 error and of the largest absolute one, for standard normal data."""

    relative: float
    largest: float


_TOLERANCES = {
    "float32": _Tolerance(2e-6, 2e-4),
    "float16": _Tolerance(3e-4, 2e-2),
    "bfloat16": _Tolerance(2.5e-3, 1.5e-1),
    "int8": _Tolerance(5e-2, 0.505 * _INT8_OUTPUT_SCALE),
}


@dataclass(frozen=True, slots=True)
class _Dcn:
    """One DCNv4 case; `value` and `offset` are the tensors' types, `extra` widens offset_mask beyond the minimum."""

    name: str
    geometry: Geometry
    batch: int
    size: tuple[int, int]
    value: str
    offset: str
    extra: int = 0
    fused: bool = False


@dataclass(frozen=True, slots=True)
class _Attention:
    """One FlashDeformAttn case."""

    name: str
    arguments: DeformAttnArguments
    batch: int
    queries: int
    group: int
    channels: int
    type: str
    index: str


def write_cases(folder: Path, *, full: bool = False, seed: int = 1) -> int:
    """Write cases.txt and its arrays into `folder`; return the number of cases.

    `full` adds the batches and images at which launches of other shapes are taken: minutes for the reference.
    Raises OrinportError if the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lines = [_write_attention(folder, seed, case) for case in _attention_cases()]
        cases = _dcn_cases(full)
        if full:  # most of the time goes into a few large ones
            with ProcessPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
                lines += pool.map(partial(_write_dcn, folder, seed), cases)
        else:
            lines += [_write_dcn(folder, seed, case) for case in cases]
        (folder / "cases.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise OrinportError(f"{str(folder)!r} cannot be written: {error.strerror}.") from error
    return len(lines)


_TYPES = (
    ("float32", "float32"),
    ("float16", "float16"),
    ("bfloat16", "bfloat16"),
    ("float16", "float32"),
    ("int8", "float16"),
    ("int8", "float32"),
)


def _dcn_cases(full: bool) -> list[_Dcn]:
    small = Geometry(4, 16)
    cases = [
        _Dcn(f"{name}-{value}-{offset}", geometry, batch, size, value, offset, extra)
        for value, offset in _TYPES
        for name, geometry, batch, size, extra in (
            ("level0", small, 1, (56, 56), 0),
            ("level3-batch8", Geometry(32, 16), 8, (7, 7), 0),
            ("prime-pixels", small, 3, (1, 13), 16),
            ("stride2", replace(small, stride=(2, 3), padding=(0, 1), dilation=(1, 2)), 2, (21, 17), 0),
        )
    ]
    pairs = (("float32", "float32"), ("float16", "float16"))
    cases += [
        _Dcn(f"{name}-{value}", geometry, batch, size, value, offset)
        for value, offset in pairs
        for name, geometry, batch, size in (
            ("level1-batch2", Geometry(8, 16), 2, (28, 28)),
            ("level2-batch4", Geometry(16, 16), 4, (14, 14)),
            ("without-centre", replace(small, remove_center=True), 2, (14, 13)),
            ("kernel5x5", replace(small, kernel=(5, 5), padding=(2, 2)), 2, (14, 13)),
            ("kernel3x5-offscale2", replace(small, kernel=(3, 5), padding=(1, 2), offset_scale=2.0), 2, (14, 13)),
            ("kernel2x2", replace(small, kernel=(2, 2)), 2, (9, 8)),
            ("kernel1x1", replace(small, kernel=(1, 1), padding=(0, 0)), 2, (9, 8)),
            ("offscale-half", replace(small, offset_scale=0.5), 2, (28, 27)),
            ("offscale-negative", replace(small, offset_scale=-1.5), 1, (14, 13)),
            ("channels32", Geometry(4, 32), 1, (28, 28)),
            ("channels8", Geometry(3, 8), 2, (14, 13)),
            ("channels3", Geometry(5, 3), 2, (14, 13)),
            ("batch257", Geometry(2, 16), 257, (5, 3)),
            ("wide-image", Geometry(2, 16), 1, (40, 320)),
        )
    ]
    cases += [
        _Dcn(f"fused-{name}-{value}", geometry, batch, size, value, value, extra, fused=True)
        for value in ("float32", "float16", "bfloat16")
        for name, geometry, batch, size, extra in (
            ("level0", small, 1, (56, 56), 0),
            ("level3-batch8", Geometry(32, 16), 8, (7, 7), 0),
            ("prime-pixels", small, 3, (1, 13), 8),
            ("kernel5x5", replace(small, kernel=(5, 5), padding=(2, 2)), 2, (14, 13), 0),
        )
    ]
    if full:
        cases += [
            _Dcn(
                f"level{level}-batch128-{value}",
                Geometry(4 << level, 16),
                128,
                (56 >> level, 56 >> level),
                value,
                value,
            )
            for level in range(4)
            for value in ("float16", "float32")
        ]
        cases += [
            _Dcn(
                f"fused-level{level}-batch128",
                Geometry(4 << level, 16),
                128,
                (56 >> level,) * 2,
                "float16",
                "float16",
                fused=True,
            )
            for level in (0, 2)
        ]
        cases += [
            _Dcn(f"detection-{group}x{rows}x{columns}", Geometry(group, 32), 1, (rows, columns), "float16", "float16")
            for group, rows, columns in ((4, 200, 320), (8, 100, 160))
        ]
    return cases


def _attention_cases() -> list[_Attention]:
    levels = ((20, 30), (10, 15), (5, 8), (3, 4))
    return [
        _Attention(
            f"attention-{type_}-{points}-{index}",
            DeformAttnArguments(used, points),
            3,
            77,
            group,
            channels,
            type_,
            index,
        )
        for type_, points, index, used, group, channels in (
            ("float32", 4, "int32", levels, 8, 32),
            ("float16", 4, "int32", levels, 8, 32),
            ("float16", 8, "int64", levels[:1], 3, 24),
            ("bfloat16", 8, "int64", levels[1:3], 8, 16),
            ("float32", 3, "int64", levels[:2], 2, 5),
        )
    ]


def _write_dcn(folder: Path, seed: int, case: _Dcn) -> str:
    geometry, random = case.geometry, _random(case.name, seed)
    rows, columns = geometry.output_size(*case.size)
    width = offset_mask_width(geometry.group, geometry.taps) + case.extra
    value = _draw(random, case.value, (case.batch, *case.size, geometry.channels))
    offset_mask = _draw(random, case.offset, (case.batch, rows, columns, width))
    offset_mask[..., geometry.used_width :] = _bits(np.full(1, np.nan), case.offset)  # never read
    expected = reference(
        _numbers(value, case.value),
        np.nan_to_num(_numbers(offset_mask, case.offset)),
        **geometry.keywords,
    )
    inputs = [(value, case.value), (offset_mask, case.offset)]
    if case.fused:
        inputs = [(np.concatenate([value, offset_mask], axis=-1), case.value)]
    plugin = FUSED if case.fused else PLAIN
    return _write(folder, case.name, plugin, node_attributes(geometry), inputs, expected, case.value)


def _write_attention(folder: Path, seed: int, case: _Attention) -> str:
    arguments, random = case.arguments, _random(case.name, seed)
    samples = len(arguments.levels) * arguments.points
    value = _draw(random, case.type, (case.batch, arguments.rows, case.group, case.channels))
    locations = random.uniform(-0.1, 1.1, (case.batch, case.queries, case.group, 2 * samples))
    logits = random.standard_normal((case.batch, case.queries, case.group, samples))
    sampling = _bits(np.concatenate([locations, logits], axis=-1), case.type)
    shapes = np.array(arguments.levels, dtype=case.index)
    starts = np.array(arguments.starts, dtype=case.index)
    expected = flash_deform_attn_reference(
        _numbers(value, case.type), shapes, starts, _numbers(sampling, case.type), points=arguments.points
    )
    inputs = [(value, case.type), (shapes, case.index), (starts, case.index), (sampling, case.type)]
    fields = attention_attributes(arguments.points)
    return _write(folder, case.name, ATTENTION, fields, inputs, expected, case.type)


def _write(
    folder: Path,
    name: str,
    plugin: str,
    attributes: dict[str, int | float],
    inputs: list[tuple[NDArray[np.generic], str]],
    expected: NDArray[np.float64],
    type_: str,
) -> str:
    """Write the arrays and return the line of cases.txt."""
    words = []
    for number, (array, of_type) in enumerate(inputs):
        scale = _INT8_VALUE_SCALE if of_type == "int8" else 1.0
        words.append(_write_array(folder, f"{name}.{number}", array, of_type, scale))
    scale = _INT8_OUTPUT_SCALE if type_ == "int8" else 1.0
    if type_ == "int8":
        expected = np.clip(expected, -128 * scale, 127 * scale)
    words.append(_write_array(folder, f"{name}.out", expected, type_, scale))
    tolerance = _TOLERANCES[type_]
    fields = ",".join(f"{key}:{number!r}" for key, number in attributes.items())
    return " ".join([name, plugin, repr(tolerance.relative), repr(tolerance.largest), f"fields={fields}", *words])


def _write_array(folder: Path, file: str, array: NDArray[np.generic], type_: str, scale: float) -> str:
    (folder / file).write_bytes(np.ascontiguousarray(array).tobytes())
    return f"{type_}:{scale!r}:{'x'.join(str(extent) for extent in array.shape)}:{file}"


def _random(name: str, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, *name.encode()])


def _draw(random: np.random.Generator, type_: str, shape: tuple[int, ...]) -> NDArray[np.generic]:
    """Standard normal numbers, or whole int8 ones, in the bits of `type_`."""
    if type_ == "int8":
        return random.integers(-127, 128, shape, dtype=np.int8)
    return _bits(random.standard_normal(shape), type_)


def _bits(numbers: NDArray[np.float64], type_: str) -> NDArray[np.generic]:
    """`numbers` rounded to `type_`; bfloat16 as uint16, rounded to nearest even."""
    if type_ != "bfloat16":
        return numbers.astype(type_)
    wide = numbers.astype(np.float32).view(np.uint32)
    rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16
    return np.where(np.isnan(numbers), 0x7FC0, rounded).astype(np.uint16)


def _numbers(bits: NDArray[np.generic], type_: str) -> NDArray[np.float64]:
    if type_ == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return bits.astype(np.float64) * (_INT8_VALUE_SCALE if type_ == "int8" else 1.0)
