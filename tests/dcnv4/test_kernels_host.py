"""The CUDA kernels, compiled as C++ and run thread by thread on the CPU, against the float64 reference."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

import orinport.dcnv4
from orinport.dcnv4 import Geometry, flash_deform_attn_reference, reference
from orinport.dcnv4.cuda_plan import (
    CONFIGURATIONS,
    AttentionParams,
    BackwardParams,
    Configuration,
    ElementType,
    Kernel,
    Limits,
    Params,
    choose,
    make_divisor,
    make_params,
    plan,
)

KERNELS = Path(orinport.dcnv4.__file__).parent / "kernels"
EMULATION = Path(__file__).parent / "emulation"
HOPPER = Limits(shared_bytes=232448, multiprocessors=132)
ORIN = Limits(shared_bytes=166912, multiprocessors=16)
F32, F16, BF16, I8 = ElementType.F32, ElementType.F16, ElementType.BF16, ElementType.I8
NUMPY = {F32: np.float32, F16: np.float16, I8: np.int8}


class CConfiguration(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int)
        for name in (
            *("kernel", "bytes", "split", "threads", "images", "buffers", "tile_columns", "tile_rows"),
            *("halo", "resident"),
        )
    ]


class CLimits(ctypes.Structure):
    _fields_ = [("shared_bytes", ctypes.c_int), ("multiprocessors", ctypes.c_int)]


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    path = tmp_path_factory.mktemp("emulation") / "emulation.so"
    command = [compiler, "-std=c++20", "-O1", "-shared", "-fPIC", "-Wno-unknown-pragmas", f"-I{KERNELS}"]
    command += [f"-I{EMULATION}", str(EMULATION / "emulate.cpp"), "-o", str(path)]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        if "_Float16" in built.stderr or "c++20" in built.stderr:
            pytest.skip("g++ is too old for _Float16 and C++20")
        raise AssertionError(built.stderr)
    loaded = ctypes.CDLL(str(path))
    loaded.check_problem.restype = ctypes.c_char_p
    return loaded


def c_configuration(c: Configuration) -> CConfiguration:
    return CConfiguration(*(int(field) for field in astuple(c)))


def draw(geometry, shape, value_type, offset_type, seed, fused=False, sigma=1.0):
    """Random tensors with NaN in the padding of offset_mask: (value, offset_mask, both in one or None)."""
    rng = np.random.default_rng(seed)
    batch, height, width = shape
    rows, columns = geometry.output_size(height, width)
    if value_type is I8:
        value = rng.integers(-128, 128, (batch, height, width, geometry.channels)).astype(np.int8)
    else:
        value = rng.standard_normal((batch, height, width, geometry.channels)).astype(NUMPY[value_type])
    vectors = (sigma * rng.standard_normal((batch, rows, columns, geometry.width))).astype(NUMPY[offset_type])
    vectors[..., geometry.used_width :] = np.nan
    return value, vectors, np.concatenate([value, vectors], axis=-1) if fused else None


def compute(library, geometry, value, vectors, fused, value_type, offset_type, c, fast=False, scale=1.0):
    """Output of one configuration, or None if it cannot compute the problem."""
    batch, height, width, channels = value.shape
    _, rows, columns, numbers = vectors.shape
    guard = 4096
    buffer = np.full(batch * rows * columns * channels * value.itemsize + 2 * guard, 0xA5, np.uint8)
    start = guard + (-(buffer.ctypes.data + guard)) % 16
    addresses = (value.ctypes.data, vectors.ctypes.data)
    strides = (channels, numbers)
    if fused is not None:
        addresses = (fused.ctypes.data, fused.ctypes.data + channels * value.itemsize)
        strides = (channels + numbers, channels + numbers)
    p = make_params(
        geometry,
        (batch, height, width),
        (rows, columns),
        strides,
        (*addresses, buffer.ctypes.data + start),
        scale,
    )
    assert library.check_problem(ctypes.byref(p), value_type, offset_type) is None
    status = library.forward(
        ctypes.byref(p),
        value_type,
        offset_type,
        fast,
        ctypes.byref(c_configuration(c)),
        ctypes.byref(CLimits(232448, 3)),
    )
    fits = plan(p, value_type, offset_type, c, HOPPER) is not None
    assert fits == (status != 1), "plan.h and cuda_plan.py disagree"
    if status == 1:
        return None
    assert status == 0, {2: "no kernel", 3: "global memory read outside", 4: "shared memory written outside"}[status]
    size = value.nbytes // (height * width) * rows * columns
    assert (buffer[:start] == 0xA5).all()
    assert (buffer[start + size :] == 0xA5).all()
    return buffer[start : start + size].view(value.dtype).reshape(batch, rows, columns, channels)


def keywords(geometry):
    return {name: getattr(geometry, name) for name in Geometry.__dataclass_fields__}


def error(output, expected):
    output, expected = output.astype(np.float64), expected.astype(np.float64)
    assert np.isfinite(output).all()
    return np.linalg.norm(output - expected) / np.linalg.norm(expected)


ODD = (
    Configuration(Kernel.WHOLE, 32, threads=64, images=3, resident=640),
    Configuration(Kernel.WHOLE, 32, threads=64, images=2, buffers=2, resident=640),
    Configuration(Kernel.WHOLE, 16, threads=96, buffers=2, resident=640),
    Configuration(Kernel.WHOLE, 64, threads=32, buffers=2, resident=640),
    Configuration(Kernel.TILE, 32, threads=64, halo=0, resident=512),
    Configuration(Kernel.TILE, 16, threads=64, tile_columns=3, tile_rows=4, halo=1, resident=512),
    Configuration(Kernel.TILE, 32, threads=96, tile_columns=5, halo=1, resident=512),
    Configuration(Kernel.TILE, 32, threads=64, tile_columns=2, tile_rows=2, halo=0, resident=512),
    Configuration(Kernel.STREAM, 32, threads=64, halo=0, resident=512),
    Configuration(Kernel.STREAM, 32, threads=128, halo=1, tile_columns=3, resident=512),
    Configuration(Kernel.STREAM, 32, threads=96, halo=1, tile_columns=5, resident=512),
)
"""Small windows, so that samples leave them."""


@pytest.mark.parametrize("c", [*CONFIGURATIONS, *ODD], ids=str)
@pytest.mark.parametrize(("value_type", "offset_type"), [(F32, F32), (F16, F16), (I8, F16)], ids=["f32", "f16", "i8"])
def test_every_configuration(library, c, value_type, offset_type):
    computed = 0
    for seed, (geometry, shape, fused, sigma) in enumerate(
        [
            (Geometry(4, 16), (2, 7, 9), False, 1.0),
            (Geometry(5, 16, offset_scale=0.5), (3, 5, 4), False, 4.0),
            (Geometry(2, 32, stride=(2, 1), padding=(1, 2), dilation=(1, 2), offset_scale=2.0), (2, 8, 7), False, 1.0),
            (Geometry(8, 16), (1, 6, 5), value_type is offset_type, 2.0),
            (Geometry(1, 64), (1, 1, 13), False, 1.0),
        ]
    ):
        value, vectors, both = draw(geometry, shape, value_type, offset_type, seed, fused, sigma)
        scale = 1 / 40 if value_type is I8 else 1.0
        output = compute(library, geometry, value, vectors, both, value_type, offset_type, c, scale=scale)
        if output is None:
            continue
        computed += 1
        expected = reference(value, vectors, **keywords(geometry)) * scale
        if value_type is I8:
            expected = np.clip(np.rint(expected), -128, 127)
            assert np.abs(output - expected).max() <= 1
            assert (output != expected).mean() < 0.01
        else:
            assert error(output, expected) < (3e-4 if value_type is F16 else 5e-7)
    if value_type is F16 and c.bytes <= 32:
        assert computed


STREAMS = (
    Configuration(Kernel.STREAM, 32, threads=64, halo=0, resident=512),
    Configuration(Kernel.STREAM, 32, threads=64, halo=1, tile_columns=3, resident=512),
    Configuration(Kernel.STREAM, 16, threads=128, halo=4, resident=512),
    Configuration(Kernel.STREAM, 32, threads=160, halo=3, resident=512),
)


@pytest.mark.parametrize("c", STREAMS, ids=str)
@pytest.mark.parametrize(
    ("geometry", "shape"),
    [
        (Geometry(4, 16), (9, 30, 5)),
        (Geometry(4, 16), (3, 120, 3)),
        (Geometry(4, 16), (40, 7, 7)),
        (Geometry(1, 64), (2, 90, 2)),
        (Geometry(2, 32, stride=(2, 1)), (5, 41, 9)),
        (Geometry(4, 16, stride=(4, 4), padding=(0, 0)), (6, 38, 21)),
        (Geometry(3, 16, dilation=(2, 2), padding=(4, 2)), (7, 25, 6)),
        (Geometry(4, 16, offset_scale=0.5, dilation=(1, 3)), (4, 33, 8)),
    ],
    ids=str,
)
def test_streams_of_many_rows(library, c, geometry, shape):
    """The ring turns several times, across images, with warps that are rows apart."""
    value, vectors, _ = draw(geometry, shape, F16, F16, 5, sigma=1.5)
    output = compute(library, geometry, value, vectors, None, F16, F16, c)
    assert error(output, reference(value, vectors, **keywords(geometry))) < 3e-4


def test_ring_needs_room_for_a_warp():
    """Where shared memory cannot hold what one warp needs at once, there is no launch rather than a deadlock."""
    c = Configuration(Kernel.STREAM, 32, threads=512, halo=4, resident=512)
    geometry = Geometry(4, 16)
    planned = []
    for width in range(8, 400, 4):
        p = make_params(geometry, (512, 64, width), (64, width), (geometry.channels, geometry.width))
        launch = plan(p, F16, F16, c, HOPPER)
        planned.append(launch is not None)
        if launch is not None:
            assert launch.shared_bytes <= HOPPER.shared_bytes
            assert launch.division.ring_rows >= 14 + launch.division.step_rows  # two rows of output, taps, halo
    assert planned[0]
    assert not planned[-1]
    assert planned == sorted(planned, reverse=True)


@pytest.mark.parametrize("c", [CONFIGURATIONS[i] for i in (3, 5, 7, 8, 11, 12, 14, 15, 21, 23)], ids=str)
@pytest.mark.parametrize("geometry", [Geometry(4, 16), Geometry(2, 32), Geometry(1, 64)], ids=str)
def test_fast_interpolation(library, c, geometry):
    value, vectors, _ = draw(geometry, (4, 12, 12), F16, F16, 3)
    output = compute(library, geometry, value, vectors, None, F16, F16, c, fast=True)
    assert 2e-4 < error(output, reference(value, vectors, **keywords(geometry))) < 5e-4


GEOMETRIES = [
    Geometry(2, 8, remove_center=True),
    Geometry(3, 4, kernel=(1, 1), padding=(0, 0)),
    Geometry(2, 5, kernel=(3, 5), padding=(1, 2)),
    Geometry(1, 16, kernel=(5, 5), padding=(2, 2), offset_scale=0.7),
    Geometry(2, 16, kernel=(2, 2), padding=(0, 1), remove_center=True, stride=(1, 2)),
    Geometry(3, 24, dilation=(2, 1), padding=(2, 1)),
    Geometry(2, 3, offset_scale=-1.5),
]


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_general_attributes(library, geometry):
    value, vectors, _ = draw(geometry, (2, 6, 8), F32, F32, 5)
    expected = reference(value, vectors, **keywords(geometry))
    computed = 0
    for c in CONFIGURATIONS:
        output = compute(library, geometry, value, vectors, None, F32, F32, c)
        if output is not None:
            computed += 1
            assert error(output, expected) < 2e-6
    assert computed


@pytest.mark.parametrize("c", [CONFIGURATIONS[i] for i in (3, 5, 7, 9, 12, 14, 15, 21, 23)], ids=str)
def test_borders_and_odd_coordinates(library, c):
    """Samples on, just inside and just outside of every border; infinities and NaN contribute nothing."""
    geometry = Geometry(4, 16)
    height = width = 6
    value, vectors, _ = draw(geometry, (1, height, width), F16, F16, 7)
    eps = 2.0**-9
    targets = [
        -1,
        -1 + eps,
        -0.5,
        0,
        width - 1,
        width - 0.5,
        width - eps,
        width,
        width + 1,
        -7,
        np.inf,
        -np.inf,
        np.nan,
    ]
    slices = vectors[..., : geometry.used_width].reshape(1, height, width, 4, 27)
    rng = np.random.default_rng(1)
    for tap in range(9):
        i, j = divmod(tap, 3)
        for axis, (base, step) in enumerate(
            ((np.arange(width)[None, :, None], i), (np.arange(height)[:, None, None], j))
        ):
            chosen = rng.choice(targets, (height, width, 4))
            slices[0, ..., 2 * tap + axis] = (chosen - (base - 1 + step)).astype(np.float16)
    vectors[..., : geometry.used_width] = slices.reshape(1, height, width, -1)
    output = compute(library, geometry, value, vectors, None, F16, F16, c)
    expected = reference(value, vectors, **keywords(geometry))
    assert error(output, expected) < 3e-4


@pytest.mark.parametrize("c", [CONFIGURATIONS[i] for i in (3, 9, 12, 21)], ids=str)
def test_pixels_that_are_not_sampled_do_not_matter(library, c):
    """NaN in a pixel reaches only the outputs that sample it, also from behind the borders."""
    geometry = Geometry(4, 16)
    value, vectors, _ = draw(geometry, (1, 6, 6), F16, F16, 8)
    vectors[..., : geometry.used_width] = 0
    slices = vectors[..., : geometry.used_width].reshape(1, 6, 6, 4, 27)
    slices[..., 18:] = 1
    slices[..., 0:18] = 0.25
    slices[0, 5, 5, :, 0:18] = 30
    vectors[..., : geometry.used_width] = slices.reshape(1, 6, 6, -1)
    value[0, 0, 0] = np.nan
    output = compute(library, geometry, value, vectors, None, F16, F16, c)
    with np.errstate(invalid="ignore"):
        expected = reference(value, vectors, **keywords(geometry))
    assert (np.isnan(output) == np.isnan(expected)).all()
    assert (output[0, 5, 5] == 0).all()


TILES = (
    *(CONFIGURATIONS[i] for i in (12, 13, 14, 15)),
    Configuration(Kernel.TILE, 32, threads=64, tile_columns=3, tile_rows=2, halo=0, resident=512),
    Configuration(Kernel.TILE, 32, threads=96, tile_columns=2, tile_rows=3, halo=2, resident=512),
)


INSIDE = (
    Configuration(Kernel.TILE, 16, threads=64, tile_columns=3, tile_rows=4, halo=0, resident=512),
    Configuration(Kernel.TILE, 32, threads=96, tile_columns=4, tile_rows=2, halo=0, resident=512),
    Configuration(Kernel.TILE, 32, threads=64, tile_columns=3, tile_rows=3, halo=1, resident=512),
)


@pytest.mark.parametrize("c", INSIDE, ids=str)
@pytest.mark.parametrize(("group", "group_channels"), [(5, 16), (3, 32), (2, 64)])
def test_tiles_inside_and_next_to_every_border(library, c, group, group_channels):
    """Staged windows end one, two, ... pixels before and behind the border; slabs may be full or not."""
    geometry = Geometry(group, group_channels)
    for size in range(12, 18):
        value, vectors, _ = draw(geometry, (1, size, 29 - size), F16, F16, size, sigma=0.6)
        output = compute(library, geometry, value, vectors, None, F16, F16, c)
        assert error(output, reference(value, vectors, **keywords(geometry))) < 3e-4


@pytest.mark.parametrize("c", [*TILES, *(CONFIGURATIONS[i] for i in (3, 8, 23))], ids=str)
@pytest.mark.parametrize("group_channels", [16, 32, 64])
def test_numbers_that_are_not_finite_stay_where_they_are_sampled(library, c, group_channels):
    """At the borders and in halos; offsets are not finite here and there. No sample is at a whole number."""
    geometry = Geometry(64 // group_channels, group_channels)
    value, vectors, _ = draw(geometry, (1, 19, 21), F16, F16, 13)
    rng = np.random.default_rng(13)
    where = rng.random(value.shape[:3]) < 0.02
    where[:, [0, -1]] |= rng.random((1, 2, 21)) < 0.2
    value[where] = rng.choice([np.nan, np.inf, -np.inf], (int(where.sum()), 1))
    slices = vectors[..., : geometry.used_width].reshape(1, 19, 21, geometry.group, 27)
    slices[..., :18] = (2 * rng.integers(-12, 12, slices[..., :18].shape) + 1) / 8
    slices[..., :18][rng.random(slices[..., :18].shape) < 0.05] = rng.choice([np.nan, np.inf, -np.inf])
    vectors[..., : geometry.used_width] = slices.reshape(1, 19, 21, -1)
    output = compute(library, geometry, value, vectors, None, F16, F16, c)
    expected = reference(value, vectors, **keywords(geometry))
    finite = np.isfinite(expected)
    assert 0.1 < finite.mean() < 0.9
    assert (np.isfinite(output) == finite).all()
    assert error(output[finite], expected[finite]) < 3e-4


@pytest.mark.parametrize("c", [CONFIGURATIONS[i] for i in (3, 8, 15, 23)], ids=str)
@pytest.mark.parametrize("case", ["a sample at -1", "a mask"])
def test_numbers_that_are_not_finite_and_differ_from_the_reference(library, c, case):
    """The two cases that docs/dcnv4-kernels.md names."""
    geometry = Geometry(4, 16)
    value, vectors, _ = draw(geometry, (1, 12, 12), F16, F16, 14)
    slices = vectors[..., : geometry.used_width].reshape(1, 12, 12, 4, 27)
    if case == "a sample at -1":
        slices[0, 5, 4, :, :18] = 0
        slices[0, 5, 4, :, 0:18:2] = -1 - (4 - 1 + np.arange(9) // 3)
        value[0, :, 0] = np.nan
    else:
        slices[0, 5, 4, :, 0] = 100
        slices[0, 5, 4, :, 18] = np.nan
    vectors[..., : geometry.used_width] = slices.reshape(1, 12, 12, -1)
    output = compute(library, geometry, value, vectors, None, F16, F16, c)
    assert np.isnan(output[0, 5, 4]).all()
    assert np.isfinite(reference(value, vectors, **keywords(geometry))[0, 5, 4]).all()


@pytest.mark.parametrize("c", TILES, ids=str)
@pytest.mark.parametrize("group_channels", [16, 32, 64])
@pytest.mark.parametrize("scale", [0.0, 1.0, 2.5])
def test_tiles_in_wide_padding(library, c, group_channels, scale):
    """Tiles whose window lies outside of the image, above, below and beside it; a few samples reach into it."""
    geometry = Geometry(64 // group_channels, group_channels, padding=(17, 16), offset_scale=scale)
    value, vectors, _ = draw(geometry, (1, 7, 5), F16, F16, 11, sigma=6.0)
    output = compute(library, geometry, value, vectors, None, F16, F16, c)
    expected = reference(value, vectors, **keywords(geometry))
    assert error(output, expected) < 3e-4
    if scale:
        assert expected[:, :10].any()
        assert expected[:, -10:].any()


def test_taps_far_apart(library):
    """Beyond all images, `direct_kernel` computes what is left: the tap in the middle."""
    for scale in (float(1 << 22), 1e9, 3e18, 3e38):
        geometry = Geometry(4, 16, offset_scale=scale)
        value, vectors, _ = draw(geometry, (1, 20, 20), F16, F16, 12)
        vectors[..., : geometry.used_width].reshape(1, 20, 20, 4, 27)[..., 8:10] = 0
        expected = reference(value, vectors, **keywords(geometry))
        assert np.count_nonzero(expected) == expected.size
        for c in CONFIGURATIONS:
            output = compute(library, geometry, value, vectors, None, F16, F16, c)
            assert (output is not None) == (c.kernel is Kernel.DIRECT)
            if output is not None:
                assert error(output, expected) < 3e-4


def test_plans_agree(library):
    """plan.h and cuda_plan.py: the same configurations, launches and choices."""
    assert library.configuration_count() == len(CONFIGURATIONS)
    for number, c in enumerate(CONFIGURATIONS, 1):
        theirs = CConfiguration()
        library.configuration(number, ctypes.byref(theirs))
        assert bytes(theirs) == bytes(c_configuration(c)), c
    rng = np.random.default_rng(0)
    chosen = set()
    for _ in range(300):
        geometry = Geometry(
            int(rng.integers(1, 40)),
            int(rng.choice([4, 8, 16, 20, 32, 64])),
            kernel=tuple(int(k) for k in rng.choice([(3, 3), (3, 3), (3, 3), (5, 5)])),
            stride=tuple(int(s) for s in rng.integers(1, 3, 2)),
            offset_scale=float(rng.choice([1.0, 0.5, 2.0, 0.7, 1.0, 0.5, 2.0, 1e3, 4e6, 1e19])),
        )
        size = tuple(int(n) for n in rng.integers(5, 200, 2))
        batch = int(rng.choice([1, 2, 64, 128, 300]))
        kinds = [(F32, F32), (F16, F16), (F16, F32), (I8, F16), (BF16, BF16)][int(rng.integers(5))]
        p = make_params(geometry, (batch, *size), geometry.output_size(*size), (geometry.channels, geometry.width))
        for limits in (HOPPER, ORIN):
            theirs = CLimits(limits.shared_bytes, limits.multiprocessors)
            best = choose(p, *kinds, limits)
            assert best == library.choose_configuration(ctypes.byref(p), *kinds, ctypes.byref(theirs))
            assert best
            chosen.add(best)
            for number, c in enumerate(CONFIGURATIONS, 1):
                mine = plan(p, *kinds, c, limits)
                launch = ctypes.create_string_buffer(512)
                fits = library.plan_launch(ctypes.byref(p), *kinds, number, ctypes.byref(theirs), launch)
                assert bool(fits) == (mine is not None)
                if mine is None:
                    continue
                assert launch.raw[: ctypes.sizeof(mine.division)] == bytes(mine.division)
                tail = (ctypes.c_uint32 * 6).from_buffer(launch, ctypes.sizeof(mine.division))
                assert tuple(tail) == (*mine.grid, *mine.block, mine.shared_bytes)
    assert len(chosen) >= 5


def test_params_size():
    assert ctypes.sizeof(Params) == 3 * 8 + 20 * 4


BACKWARD = [
    (Geometry(2, 16), 4),
    (Geometry(3, 16, offset_scale=0.5, remove_center=True, stride=(2, 1)), 4),
    (Geometry(2, 3, kernel=(1, 3), padding=(0, 1)), 0),
]


@pytest.mark.torch
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(("geometry", "lanes"), BACKWARD)
def test_gradients(library, torch, geometry, lanes, deterministic):
    from orinport.dcnv4.composed import dcnv4_composed

    value, vectors, _ = draw(geometry, (2, 5, 6), F32, F32, 4)
    vectors = np.nan_to_num(vectors)
    vectors[0, 0, 0, 0:2] = np.nan
    batch, rows, columns, width = vectors.shape
    rng = np.random.default_rng(5)
    upstream = rng.standard_normal((batch, rows, columns, geometry.channels)).astype(np.float32)
    for_value = np.zeros(value.shape, np.int64 if deterministic else np.float32)
    for_vectors = np.full(vectors.shape, np.nan, np.float32)
    factor = np.array([2.0**30], np.float32)
    p = make_params(
        geometry,
        value.shape[:3],
        (rows, columns),
        (geometry.channels, width),
        (value.ctypes.data, vectors.ctypes.data, 0),
    )
    b = BackwardParams(
        p,
        *(array.ctypes.data for array in (upstream, for_value, for_vectors, factor)),
        *(make_divisor(number) for number in (geometry.group, columns, rows * columns)),
    )
    assert library.backward(ctypes.byref(b), lanes, deterministic) == 0
    inputs = [torch.from_numpy(array.astype(np.float64)).requires_grad_() for array in (value, vectors)]
    dcnv4_composed(*inputs, geometry).backward(torch.from_numpy(upstream).double())
    expected = [np.nan_to_num(tensor.grad.numpy()) for tensor in inputs]
    assert error(for_value / 2.0**30 if deterministic else for_value, expected[0]) < 1e-6
    assert error(for_vectors, expected[1]) < 1e-6


@pytest.mark.parametrize(("channels", "width"), [(16, 16), (3, 4)])
@pytest.mark.parametrize("index", [np.int64, np.int32])
def test_attention(library, channels, width, index):
    rng = np.random.default_rng(6)
    levels, points, group = [(5, 7), (3, 4), (1, 2)], 4, 3
    shapes, starts = np.array(levels, index), np.array([2, 40, 55], index)
    value = rng.standard_normal((2, 60, group, channels)).astype(np.float32)
    samples = rng.standard_normal((2, 9, group, 3 * len(levels) * points)).astype(np.float32)
    samples[..., : 2 * len(levels) * points] = rng.uniform(-0.3, 1.3, samples[..., : 2 * len(levels) * points].shape)
    output = np.full((2, 9, group * channels), np.nan, np.float32)
    a = AttentionParams(
        *(array.ctypes.data for array in (value, shapes, starts, samples, output)),
        *(2, 60, group, channels, 9, len(levels), points, shapes.itemsize),
        make_divisor(group * channels * 4 // width),
        make_divisor(channels),
    )
    assert library.attention(ctypes.byref(a), width) == 0
    expected = flash_deform_attn_reference(value, shapes, starts, samples, points=points)
    assert error(output, expected) < 1e-6
