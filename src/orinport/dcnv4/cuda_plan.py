"""How the CUDA kernels are launched: the structs that they take, the configurations, and the choice among them.

`kernels/plan.h` says the same in C++ for the TensorRT plugin; a test compares the two.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orinport.dcnv4.arguments import Geometry

__all__ = [
    "CONFIGURATIONS",
    "AttentionParams",
    "BackwardParams",
    "Configuration",
    "Division",
    "ElementType",
    "Kernel",
    "Launch",
    "Limits",
    "Params",
    "candidates",
    "choose",
    "kernel_name",
    "make_divisor",
    "make_params",
    "plan",
]


class ElementType(IntEnum):
    """Element types, numbered as in problem.h."""

    F32 = 0
    F16 = 1
    BF16 = 2
    I8 = 3

    @property
    def bytes(self) -> int:
        """Size of an element."""
        return (4, 2, 2, 1)[self]


class Kernel(IntEnum):
    """The forward kernels."""

    DIRECT = 0
    WHOLE = 1
    TILE = 2
    STREAM = 3


class Divisor(ctypes.Structure):
    """Division of a number below 2**31 by `value`: (number * multiplier) >> shift."""

    _fields_ = [("multiplier", ctypes.c_uint32), ("shift", ctypes.c_uint32), ("value", ctypes.c_uint32)]


class Params(ctypes.Structure):
    """The operator and its tensors; see problem.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("value", "offset_mask", "output")),
        *(
            (name, ctypes.c_int32)
            for name in (
                *("batch", "height", "width", "out_height", "out_width", "groups", "group_channels"),
                *("value_stride", "offset_stride", "kernel_h", "kernel_w", "stride_h", "stride_w"),
                *("pad_h", "pad_w", "dilation_h", "dilation_w", "remove_center"),
            )
        ),
        ("offset_scale", ctypes.c_float),
        ("output_scale", ctypes.c_float),
    ]


class Division(ctypes.Structure):
    """How a launch divides the work; see problem.h."""

    _fields_ = [
        *(
            (name, Divisor)
            for name in ("lanes", "columns", "channels", "pitch", "slots", "queries", "slabs", "column_tiles")
        ),
        *((name, ctypes.c_int32) for name in ("tile_columns", "tile_rows", "step_rows", "ring_rows", "halo")),
        *((name, ctypes.c_int32) for name in ("images", "buffers")),
        ("offset_start", ctypes.c_int32),
        ("offset_row", ctypes.c_int32),
        ("units", ctypes.c_uint32),
        ("zero", ctypes.c_int32),
        *((name, ctypes.c_int64) for name in ("value_image", "offset_image", "output_image")),
    ]


class AttentionParams(ctypes.Structure):
    """FlashDeformAttn and its tensors; see attention.cuh."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("value", "shapes", "starts", "samples", "output")),
        *(
            (name, ctypes.c_int32)
            for name in ("batch", "rows", "groups", "group_channels", "queries", "levels", "points", "index_bytes")
        ),
        ("lanes", Divisor),
        ("channels", Divisor),
    ]


class BackwardParams(ctypes.Structure):
    """The gradients of DCNv4; see backward.cuh."""

    _fields_ = [
        ("forward", Params),
        *((name, ctypes.c_void_p) for name in ("gradient", "value_gradient", "offset_gradient", "fixed_point")),
        *((name, Divisor) for name in ("groups", "columns", "queries")),
    ]


@dataclass(frozen=True)
class Configuration:
    """One way to compute: a kernel with its compile-time and launch parameters. An extent of 0 means all of it."""

    kernel: Kernel
    bytes: int
    """Bytes of channels of a thread; 0: one channel."""
    split: int = 1
    """Threads that share the taps of a pixel."""
    threads: int = 128
    images: int = 1
    """WHOLE: images of a unit."""
    buffers: int = 1
    """WHOLE: 2 stages the next unit while one is computed."""
    tile_columns: int = 0
    tile_rows: int = 0
    halo: int = 0
    """TILE, STREAM: rows and columns staged beyond the undisturbed samples."""
    resident: int = 0
    """WHOLE, TILE, STREAM: threads of a multiprocessor for which registers are allotted."""

    def __str__(self) -> str:
        name = self.kernel.name.lower()
        parts = [f"{self.bytes or 'scalar'}{'B' if self.bytes else ''}", f"{self.threads} threads"]
        if self.split > 1:
            parts.append(f"taps over {self.split}")
        if self.images > 1:
            parts.append(f"{self.images} images")
        if self.buffers > 1:
            parts.append("two buffers")
        if self.kernel is Kernel.TILE:
            parts.append(f"{self.tile_rows or 'H'}x{self.tile_columns or 'W'}, halo {self.halo}")
        if self.kernel is Kernel.STREAM:
            parts.append(f"{self.tile_columns or 'all'} columns, halo {self.halo}")
        if self.resident:
            parts.append(f"for {self.resident}")
        return f"{name}({', '.join(parts)})"


@dataclass(frozen=True)
class Limits:
    """The device, as far as launches depend on it."""

    shared_bytes: int
    """Shared memory that a block may ask for."""
    multiprocessors: int


@dataclass(frozen=True)
class Launch:
    """A launch that is ready but for its kernel."""

    division: Division
    grid: tuple[int, int, int]
    block: tuple[int, int]
    shared_bytes: int


_D, _W, _T, _S = Kernel.DIRECT, Kernel.WHOLE, Kernel.TILE, Kernel.STREAM
CONFIGURATIONS: tuple[Configuration, ...] = (
    Configuration(_D, 0),
    Configuration(_D, 8),
    Configuration(_D, 16, threads=64),
    Configuration(_D, 16),
    Configuration(_D, 16, split=3, threads=96),
    Configuration(_D, 16, split=3, threads=192),
    Configuration(_D, 16, split=9, threads=288),
    Configuration(_W, 32, threads=320, resident=640),
    Configuration(_W, 32, threads=160, resident=640),
    Configuration(_W, 32, threads=160, images=2, resident=640),
    Configuration(_W, 32, resident=640),
    Configuration(_W, 32, threads=320, images=2, resident=640),
    Configuration(_T, 32, threads=256, tile_columns=16, tile_rows=16, halo=3, resident=512),
    Configuration(_T, 32, threads=256, tile_columns=16, tile_rows=8, halo=3, resident=512),
    Configuration(_T, 32, threads=192, tile_columns=16, tile_rows=12, halo=3, resident=512),
    Configuration(_T, 32, tile_columns=8, tile_rows=8, halo=3, resident=512),
    Configuration(_W, 16, threads=320, resident=640),
    Configuration(_W, 16, threads=160, images=2, resident=640),
    Configuration(_T, 16, threads=256, tile_columns=16, tile_rows=16, halo=3, resident=512),
    Configuration(_W, 64, threads=160, resident=640),
    Configuration(_W, 64, threads=160, images=2, resident=640),
    Configuration(_S, 32, threads=512, halo=4, resident=512),
    Configuration(_S, 32, threads=512, tile_columns=40, halo=4, resident=512),
    Configuration(_S, 32, threads=512, tile_columns=20, halo=4, resident=512),
    Configuration(_S, 16, threads=512, halo=4, resident=512),
    Configuration(_S, 32, threads=384, halo=4, resident=512),
    Configuration(_W, 32, threads=160, images=4, resident=640),
    Configuration(_W, 64, threads=160, images=4, resident=640),
)
"""Ids are positions, counted from 1."""

_MEASURED = (
    (2, 56, 56, 64, 64, 22),
    (2, 28, 28, 128, 64, 22),
    (2, 14, 14, 256, 64, 12),
    (2, 7, 7, 512, 64, 10),
    (2, 56, 56, 64, 1, 5),
    (2, 28, 28, 128, 1, 7),
    (2, 14, 14, 256, 1, 7),
    (2, 7, 7, 512, 1, 7),
    (2, 200, 320, 128, 1, 13),
    (2, 200, 320, 256, 1, 13),
    (2, 100, 160, 128, 1, 14),
    (2, 100, 160, 256, 1, 14),
    (2, 50, 80, 128, 1, 4),
    (2, 50, 80, 256, 1, 4),
    (2, 25, 40, 128, 1, 6),
    (2, 25, 40, 256, 1, 4),
    (4, 56, 56, 64, 64, 22),
    (4, 28, 28, 128, 64, 26),
    (4, 14, 14, 256, 64, 9),
    (4, 7, 7, 512, 128, 27),
    (4, 7, 7, 512, 64, 10),
)
"""(element bytes, height, width, channels, batch, id): the fastest on an H200 by `dcnv4 bench --tune`, for batches from
`batch` on, or exactly 1."""

_SCALAR, _NARROW, _PLAIN, _SPLIT = 1, 2, 4, 6
_DIRECT_SCORE = 0.4
_TILE_THRESHOLD = 1024
_SPLIT_THRESHOLD = 512
_RING_ROWS = 40
"""Of a stream, at most."""
_STREAM_BYTES = 256 + 8 * (_RING_ROWS + 16)
"""Shared memory of a stream beside its rows: two pixels and barriers."""
_INT32 = 1 << 31
_FARTHEST = 1 << 22
"""Pixels between taps; images have fewer."""
_HOPPER_SHARED_BYTES = 232448
"""Shared memory of a block on sm_90; earlier architectures have less, and their kernels are built for 384 threads."""
_SLAB = 128


def make_params(
    geometry: Geometry,
    value: tuple[int, int, int],
    size: tuple[int, int],
    strides: tuple[int, int],
    addresses: tuple[int, int, int] = (0, 0, 0),
    output_scale: float = 1.0,
) -> Params:
    """The struct for (N, H, W) of value, (Ho, Wo), (elements of a value row, of an offset row), and addresses of
    value, offset_mask and output."""
    return Params(
        *addresses,
        *value,
        *size,
        geometry.group,
        geometry.group_channels,
        *strides,
        *geometry.window,
        int(geometry.remove_center),
        geometry.offset_scale,
        output_scale,
    )


def make_divisor(value: int) -> Divisor:
    """The struct for divisions by `value`, 1 to 2**31."""
    shift = 31 + max(value - 1, 0).bit_length()
    return Divisor(-(-(1 << shift) // value), shift, value)


def _channels(p: Params) -> int:
    return int(p.groups * p.group_channels)


def _vector_fits(p: Params, size: int, width: int) -> bool:
    access = min(width, 16)
    return (
        p.group_channels * size % width == 0
        and p.value_stride * size % access == 0
        and (p.value or 0) % access == 0
        and (p.output or 0) % access == 0
    )


def unrolled(p: Params, offset: ElementType) -> bool:
    """Whether the form for 3x3 kernels, which reads offsets in pieces of 8 bytes, can be used."""
    nine = p.kernel_h == 3 and p.kernel_w == 3 and not p.remove_center
    return nine and p.offset_stride * offset.bytes % 8 == 0 and (p.offset_mask or 0) % 8 == 0


def _offset_row(p: Params, value: ElementType, offset: ElementType) -> int:
    """Bytes of a row in shared memory that holds the numbers of all groups of a slab, wherever in 16 bytes they begin.

    An odd multiple of 16, so that the rows of neighbouring pixels lie in different banks. None for numbers of 2 bytes.
    """
    if offset is not ElementType.F32:
        return 0
    slab, group = _SLAB // value.bytes, int(p.group_channels)
    most = (slab + group - 2) // group + 1 if slab % group else slab // group
    if group % slab == 0:
        most = 1
    return ((min(most, int(p.groups)) * 27 * 4 + 27) // 16 | 1) * 16


def _rows_fit(p: Params, offset: ElementType) -> bool:
    """Whether such rows can be copied 16 bytes at a time."""
    return offset is not ElementType.F32 or (p.offset_stride % 4 == 0 and (p.offset_mask or 0) % 16 == 0)


def wide(p: Params, value: ElementType) -> bool:
    """Whether offsets within an image need 64 bits."""
    queries = p.out_height * p.out_width
    largest = max(p.height * p.width * p.value_stride * value.bytes, queries * _channels(p) * value.bytes)
    return bool(max(largest, queries * p.offset_stride * 4) >= _INT32)


def shared_lanes(p: Params, value: ElementType, c: Configuration) -> int:
    """Neighbouring lanes that work on one group and share the preparation of its taps: 1, 2 or 4. It costs shuffles,
    which pays where arithmetic binds, not shared memory: in 16-bit types."""
    tiles = c.kernel is Kernel.TILE or (c.kernel is Kernel.STREAM and c.tile_columns > 0)
    if not tiles or c.bytes != 32 or value.bytes != 2:
        return 1
    return math.gcd(4, int(p.group_channels) // 16)


def plan(p: Params, value: ElementType, offset: ElementType, c: Configuration, limits: Limits) -> Launch | None:
    """The launch of a configuration, or None if it cannot compute the problem on this device."""
    size = value.bytes
    width = c.bytes or size
    if width < size or not _vector_fits(p, size, width):
        return None
    d = Division(*(make_divisor(1) for _ in range(8)), p.out_width, p.out_height, p.out_height, 1, 0, 1, 1, 0)
    d.channels = make_divisor(p.group_channels)
    if c.kernel is Kernel.DIRECT:
        return _plan_direct(p, value, offset, c, d, width)
    if c.threads > 384 and limits.shared_bytes < _HOPPER_SHARED_BYTES:
        return None
    if (
        not unrolled(p, offset)
        or not _rows_fit(p, offset)
        or c.split > 1
        or width < 16
        or p.offset_scale < 0
        or wide(p, value)
    ):
        return None
    if p.out_height * p.out_width * max(8, p.offset_stride * offset.bytes) * c.images >= _INT32:
        return None
    # Of taps further apart than images are large, the numbers of staged pixels would overflow; direct_kernel has none.
    if p.offset_scale * max(p.dilation_h, p.dilation_w) >= _FARTHEST:
        return None
    if value is not ElementType.F32 and width > 32:
        return None
    if value is ElementType.I8 and width > 16:
        return None
    slabs = -(-_channels(p) * size // _SLAB)
    d.slabs = make_divisor(slabs)
    d.offset_row = _offset_row(p, value, offset)
    planner = {Kernel.WHOLE: _plan_whole, Kernel.TILE: _plan_tile, Kernel.STREAM: _plan_stream}[c.kernel]
    return planner(p, c, d, slabs, limits)


def _offset_bytes(c: Configuration, d: Division) -> int:
    """Shared memory for the offsets of the pixels that a block computes next."""
    workers = c.threads - 32 if c.kernel is Kernel.STREAM else c.threads
    return workers * c.bytes // _SLAB * int(d.offset_row)


def _plan_direct(
    p: Params, value: ElementType, offset: ElementType, c: Configuration, d: Division, width: int
) -> Launch | None:
    size = value.bytes
    lanes = _channels(p) * size // width
    items = p.out_height * p.out_width * lanes
    if (c.split > 1 and (not unrolled(p, offset) or width % 4)) or items >= _INT32 - 1024:
        return None
    if wide(p, value) and (c.split > 1 or c.bytes not in (0, 16)):
        return None
    x = c.threads // c.split
    d.lanes = make_divisor(lanes)
    d.columns, d.queries = make_divisor(p.out_width), make_divisor(p.out_height * p.out_width)
    d.value_image = p.height * p.width * p.value_stride * size
    d.offset_image = p.out_height * p.out_width * p.offset_stride * offset.bytes
    d.output_image = items * width
    shared = c.split * (width // size) * x * 4 if c.split > 1 else 0
    return Launch(d, (-(-items // x), min(p.batch, 65535), -(-p.batch // 65535)), (x, c.split), shared)


def _resident_blocks(c: Configuration, shared_bytes: int, limits: Limits) -> int:
    """Blocks of a tiled configuration that a multiprocessor holds; it reserves 1024 bytes for each."""
    return max(1, min((limits.shared_bytes + 1024) // (shared_bytes + 1024), c.resident // c.threads))


def _plan_whole(p: Params, c: Configuration, d: Division, slabs: int, limits: Limits) -> Launch | None:
    slots = (p.height + 2) * (p.width + 1) + 2
    images = min(c.images, p.batch)
    units = slabs * -(-p.batch // images)
    d.offset_start = slots * images * c.buffers * _SLAB
    shared = d.offset_start + _offset_bytes(c, d)
    if shared > limits.shared_bytes or units >= _INT32:
        return None
    d.slots, d.queries = make_divisor(slots), make_divisor(p.out_height * p.out_width)
    d.pitch, d.columns = make_divisor(p.width + 1), make_divisor(p.out_width)
    d.images, d.buffers, d.units = images, c.buffers, units
    resident = limits.multiprocessors * _resident_blocks(c, shared, limits)
    return Launch(d, (min(resident, units) if c.buffers == 2 else units, 1, 1), (c.threads, 1), shared)


def _span(pixels: int, stride: int, taps: int, dilation: int, scale: float, halo: int) -> int:
    return math.ceil((pixels - 1.0) * stride + scale * dilation * (taps - 1)) + 3 + 2 * halo


def _plan_tile(p: Params, c: Configuration, d: Division, slabs: int, limits: Limits) -> Launch | None:
    columns = min(c.tile_columns or p.out_width, p.out_width)
    rows = min(c.tile_rows or p.out_height, p.out_height)
    scale = p.offset_scale
    pitch = min(_span(columns, p.stride_w, p.kernel_w, p.dilation_w, scale, c.halo), p.width + 2)
    staged = min(_span(rows, p.stride_h, p.kernel_h, p.dilation_h, scale, c.halo), p.height + 2)
    d.offset_start = (staged * pitch + pitch + 2) * _SLAB
    shared = d.offset_start + _offset_bytes(c, d)
    column_tiles, row_tiles = -(-p.out_width // columns), -(-p.out_height // rows)
    if p.batch > 65535 or shared > limits.shared_bytes or column_tiles * row_tiles * slabs >= _INT32:
        return None
    d.pitch, d.columns, d.column_tiles = make_divisor(pitch), make_divisor(columns), make_divisor(column_tiles)
    d.tile_columns, d.tile_rows, d.ring_rows, d.halo = columns, rows, staged, c.halo
    return Launch(d, (column_tiles * row_tiles * slabs, p.batch, 1), (c.threads, 1), shared)


def _plan_stream(p: Params, c: Configuration, d: Division, slabs: int, limits: Limits) -> Launch | None:
    columns = min(c.tile_columns or p.out_width, p.out_width)
    scale = p.offset_scale
    pitch = p.width + 2
    if c.tile_columns:
        pitch = min(pitch, _span(columns, p.stride_w, p.kernel_w, p.dilation_w, scale, c.halo))
    all_rows, tiles = p.batch * p.out_height, -(-p.out_width // columns) * slabs
    if all_rows * p.out_width >= _INT32 or p.batch * (p.height + 1) >= _INT32 - 2:
        return None
    window = _span(1, p.stride_h, p.kernel_h, p.dilation_h, scale, c.halo)
    device = limits.multiprocessors
    run = min((_stream_run(all_rows, tiles, window, waves, device) for waves in range(1, 9)), key=lambda r: r[0])[1]
    advance = max(p.stride_h, p.height + 1 - (p.out_height - 1) * p.stride_h)
    at_once = -(-(32 * c.bytes // _SLAB - 1) // columns) * advance + window
    needed = (run - 1) * advance + window
    offset_bytes = _offset_bytes(c, d)
    ring = min((limits.shared_bytes - _STREAM_BYTES - offset_bytes) // (pitch * _SLAB) - 2, needed, _RING_ROWS)
    group = -(-max(ring, 1) // 13)
    if ring < min(needed, at_once + group):
        return None
    grid = -(-all_rows // run) * tiles
    if grid >= _INT32 or run * columns >= _INT32 - 65536:
        return None
    d.lanes, d.pitch, d.columns = make_divisor(ring), make_divisor(pitch), make_divisor(columns)
    d.column_tiles = make_divisor(-(-p.out_width // columns))
    d.queries, d.slots = make_divisor(p.out_height), make_divisor(p.height + 1)
    d.tile_columns, d.tile_rows, d.step_rows, d.ring_rows, d.halo = columns, run, group, ring, c.halo
    d.offset_start = (ring + 2) * pitch * _SLAB + _STREAM_BYTES
    return Launch(d, (grid, 1, 1), (c.threads, 1), d.offset_start + offset_bytes)


def _stream_run(all_rows: int, tiles: int, window: int, waves: int, device: int) -> tuple[int, int]:
    """(cost, output rows of a block) if blocks fill a device that holds `device` of them `waves` times."""
    runs = min(all_rows, max(1, waves * device // tiles))
    rows = -(-all_rows // runs)
    return -(-tiles * -(-all_rows // rows) // device) * (8 * rows + window), rows


def tile_score(p: Params, value: ElementType, c: Configuration, limits: Limits, launch: Launch) -> float:
    """Estimate, 0 to 1, of how well a tiled configuration uses the device: full warps and waves, no idle channels,
    and few pixels staged for nothing."""
    d = launch.division
    if c.kernel is Kernel.STREAM:
        return _stream_score(p, value, c, limits, launch)
    tasks = d.tile_rows * d.tile_columns * d.images * (_SLAB // c.bytes)
    rounds = math.ceil(tasks / c.threads)
    blocks = _resident_blocks(c, launch.shared_bytes, limits)
    units = d.units if c.kernel is Kernel.WHOLE else launch.grid[0] * launch.grid[1]
    waves = units / (limits.multiprocessors * blocks)
    staged = 1.0
    if c.kernel is Kernel.TILE:
        staged = d.pitch.value * (d.tile_rows + 2.0 + 2.0 * c.halo) / (d.tile_columns * d.tile_rows)
    score = (
        tasks / (rounds * c.threads) * waves / math.ceil(waves) * _channels(p) * value.bytes / (d.slabs.value * 128.0)
    )
    score = score / (1.0 + 0.06 * (staged - 1.0)) * min(1.0, 0.4 + blocks * c.threads / 850.0)
    return float(score * (1.0 if c.kernel is Kernel.WHOLE else 0.95))


def _stream_score(p: Params, value: ElementType, c: Configuration, limits: Limits, launch: Launch) -> float:
    d = launch.division
    tasks = d.tile_rows * d.tile_columns * (_SLAB // c.bytes)
    workers = c.threads - 32
    waves = launch.grid[0] / limits.multiprocessors
    staged = d.pitch.value * (d.tile_rows + 2.0 + 2.0 * d.halo) / (d.tile_columns * d.tile_rows)
    full = tasks / (math.ceil(tasks / workers) * workers) * waves / math.ceil(waves)
    full = full * _channels(p) * value.bytes / (d.slabs.value * 128.0)
    return float(full / (1.0 + 0.06 * (staged - 1.0)) * min(1.0, 0.4 + workers / 850.0))


def _measured(p: Params, value: ElementType, offset: ElementType, limits: Limits) -> int:
    if limits != Limits(_HOPPER_SHARED_BYTES, 132) or value is not offset:
        return 0
    for size, height, width, channels, batch, number in _MEASURED:
        same = (size, height, width, channels) == (value.bytes, p.height, p.width, _channels(p))
        enough = p.batch == 1 if batch == 1 else p.batch >= batch
        if same and enough and plan(p, value, offset, CONFIGURATIONS[number - 1], limits) is not None:
            return number
    return 0


def choose(p: Params, value: ElementType, offset: ElementType, limits: Limits) -> int:
    """The launch plan: the id for a problem, from the estimate and measurements on sm_90; 0 if nothing fits."""
    threads = p.batch * p.out_height * p.out_width * _channels(p) * value.bytes // 16
    if measured := _measured(p, value, offset, limits):
        return measured
    best, best_score = 0, _DIRECT_SCORE
    if threads >= limits.multiprocessors * _TILE_THRESHOLD:
        for number, c in enumerate(CONFIGURATIONS, 1):
            launch = None if c.kernel is Kernel.DIRECT else plan(p, value, offset, c, limits)
            if launch is not None and (score := tile_score(p, value, c, limits, launch)) > best_score:
                best, best_score = number, score
    if best:
        return best
    first = _SPLIT if threads < limits.multiprocessors * _SPLIT_THRESHOLD else _PLAIN
    for number in (first, _PLAIN, _NARROW, _SCALAR):
        if plan(p, value, offset, CONFIGURATIONS[number - 1], limits) is not None:
            return number
    return 0


def candidates(p: Params, value: ElementType, offset: ElementType, limits: Limits) -> list[int]:
    """Ids of all configurations that can compute a problem, the plan's choice first."""
    first = choose(p, value, offset, limits)
    others = [number for number in range(1, len(CONFIGURATIONS) + 1) if number != first]
    return [
        number
        for number in ([first] if first else []) + others
        if plan(p, value, offset, CONFIGURATIONS[number - 1], limits) is not None
    ]


def kernel_name(p: Params, value: ElementType, offset: ElementType, fast: bool, c: Configuration) -> str:
    """The C++ name of the template instance that a configuration launches for a problem."""
    types = ", ".join(f"orinport::dcnv4::{kind.name}" for kind in (value, offset))
    # With one tap a thread, fp16 pairs save nothing.
    quick = str(fast and value is offset is ElementType.F16 and c.split < 9).lower()
    taps = 9 if unrolled(p, offset) and not wide(p, value) else 0
    if c.kernel is Kernel.DIRECT:
        width = c.bytes or value.bytes
        taps = taps if width >= 16 else 0
        far = str(wide(p, value)).lower()
        return f"orinport::dcnv4::direct_kernel<{types}, {width}, {c.split}, {taps}, {quick}, {far}>"
    tiled = f", {str(c.tile_columns > 0).lower()}" if c.kernel is Kernel.STREAM else ""
    tiled += "" if c.kernel is Kernel.WHOLE else f", {shared_lanes(p, value, c)}"
    return f"orinport::dcnv4::{c.kernel.name.lower()}_kernel<{types}, {c.bytes // 16}, {quick}, {c.resident}{tiled}>"
