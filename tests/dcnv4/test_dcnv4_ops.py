"""The PyTorch operators against the float64 reference: values, types, batches, borders, gradients, tracing."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from orinport.dcnv4 import Geometry, flash_deform_attn_reference, offset_mask_width, reference
from orinport.errors import OrinportError

pytestmark = pytest.mark.torch

# Relative L2 error against float64 on the same, already rounded, inputs. Half types: one rounding at the end.
TOLERANCE = {"float64": 1e-13, "float32": 5e-6, "float16": 3e-4, "bfloat16": 2.5e-3}


@pytest.fixture(params=["compiled", "composed"])
def backend(request, monkeypatch, torch):
    """Both CPU implementations: the C kernels, and PyTorch operations as if there were no compiler."""
    from orinport.dcnv4 import ops

    if request.param == "composed":
        monkeypatch.setattr(ops, "kernels", lambda: None)
    elif ops.kernels() is None:
        pytest.skip("there is no C compiler on this machine")
    return request.param


def numbers(tensor):
    return tensor.detach().double().numpy()


def error(got, expected):
    return np.linalg.norm(numbers(got) - expected) / np.linalg.norm(expected)


def random_inputs(torch, geometry, batch, height, width, seed=0, spread=1.0, extra=0):
    generator = torch.Generator().manual_seed(seed)
    rows, columns = geometry.output_size(height, width)
    value = torch.randn((batch, height, width, geometry.channels), generator=generator)
    vectors = torch.randn((batch, rows, columns, geometry.width + extra), generator=generator) * spread
    return value, vectors


def keywords(geometry):
    names = ("kernel", "stride", "padding", "dilation", "group", "group_channels", "offset_scale", "remove_center")
    return {name: getattr(geometry, name) for name in names}


GEOMETRIES = [
    Geometry(4, 16),
    Geometry(4, 16, offset_scale=0.5),
    Geometry(2, 16, offset_scale=2.0, remove_center=True),
    Geometry(2, 32, kernel=(5, 5), padding=(2, 2)),
    Geometry(3, 8, kernel=(3, 5), padding=(1, 2)),
    Geometry(2, 24, kernel=(2, 2), padding=(0, 1), remove_center=True),
    Geometry(1, 1, kernel=(1, 1), padding=(0, 0)),
    Geometry(5, 3, stride=(2, 3), dilation=(2, 1), padding=(2, 1)),
    Geometry(2, 40, kernel=(4, 3), dilation=(1, 2), padding=(3, 2)),
]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda g: f"{g.kernel}x{g.group}x{g.group_channels}")
def test_values(torch, backend, geometry, dtype):
    from orinport.dcnv4 import dcnv4

    value, vectors = (t.to(getattr(torch, dtype)) for t in random_inputs(torch, geometry, 2, 11, 7, extra=8))
    got = dcnv4(value, vectors, **keywords(geometry))
    assert got.dtype == value.dtype
    assert error(got, reference(numbers(value), numbers(vectors), **keywords(geometry))) < TOLERANCE[dtype]


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 8, 15, 29, 31, 45, 64, 75, 128, 225, 255, 256, 257, 300, 512])
def test_every_image_of_a_batch_is_computed(torch, batch):
    """7x7 pixels, where existing kernels lose images; each image must equal itself alone."""
    from orinport.dcnv4 import dcnv4

    geometry = Geometry(8, 16)
    value, vectors = random_inputs(torch, geometry, batch, 7, 7, seed=batch)
    got = dcnv4(value, vectors, **keywords(geometry))
    alone = torch.cat([dcnv4(v[None], o[None], **keywords(geometry)) for v, o in zip(value, vectors, strict=True)])
    assert torch.equal(got, alone)
    last = slice(batch - 1, batch)
    assert error(got[last], reference(numbers(value[last]), numbers(vectors[last]), **keywords(geometry))) < 5e-6


@pytest.mark.parametrize(("batch", "side", "group"), [(2, 28, 8), (4, 14, 16), (8, 7, 32), (3, 1, 4)])
def test_batches_that_existing_kernels_get_wrong(torch, backend, batch, side, group):
    from orinport.dcnv4 import dcnv4

    geometry = Geometry(group, 16)
    width = 13 if side == 1 else side
    value, vectors = random_inputs(torch, geometry, batch, side, width)
    got = dcnv4(value, vectors, **keywords(geometry))
    assert error(got, reference(numbers(value), numbers(vectors), **keywords(geometry))) < 5e-6


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_do_not_change_the_result(torch, threads):
    from orinport.dcnv4 import dcnv4

    geometry = Geometry(4, 16)
    leaves = [t.requires_grad_() for t in random_inputs(torch, geometry, 3, 13, 11)]
    expected = dcnv4(*leaves, **keywords(geometry))
    gradients = torch.autograd.grad(expected.square().sum(), leaves)
    try:
        torch.set_num_threads(threads)
        got = dcnv4(*leaves, **keywords(geometry))
        assert torch.equal(got, expected)
        for one, other in zip(torch.autograd.grad(got.square().sum(), leaves), gradients, strict=True):
            torch.testing.assert_close(one, other)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(("height", "width"), [(56, 56), (200, 320)])
def test_half_precision_keeps_coordinates_in_single(torch, height, width):
    """Coordinates rounded to float16 would be off by up to 1/8 pixel here, and errors of 1 and more follow."""
    from orinport.dcnv4 import dcnv4

    geometry = Geometry(1, 16)
    value, vectors = (t.half() for t in random_inputs(torch, geometry, 1, height, width))
    got = dcnv4(value, vectors, **keywords(geometry))
    expected = reference(numbers(value), numbers(vectors), **keywords(geometry))
    assert error(got, expected) < 3e-4
    assert np.abs(numbers(got) - expected).max() < 0.01


def test_half_coordinates_just_inside_the_border_stay_inside(torch, backend):
    """x in (W - ulp/2, W) must not become W: the sample is almost nothing, not a full column."""
    from orinport.dcnv4 import dcnv4

    value = torch.ones((1, 1, 57, 8), dtype=torch.float16)
    vectors = torch.zeros((1, 1, 57, 8), dtype=torch.float16)
    vectors[..., 0] = torch.tensor([0.999 if x == 56 else 0.0 for x in range(57)], dtype=torch.float16)
    vectors[..., 2] = 1
    got = dcnv4(value, vectors, kernel=(1, 1), padding=(0, 0), group=1, group_channels=8)
    assert got[0, 0, 56, 0] == pytest.approx(1 - float(torch.tensor(0.999).half()), abs=1e-6)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (-1.0, 0.0),
        (-1 + 2**-10, 2**-10),
        (-0.5, 0.5),
        (0.0, 1.0),
        (5.0, 6.0),
        (5.5, 3.0),
        (6 - 2**-10, 6 * 2**-10),
        (6.0, 0.0),
        (7.5, 0.0),
        (float("nan"), 0.0),
        (float("inf"), 0.0),
        (float("-inf"), 0.0),
        (3e38, 0.0),
    ],
)
@pytest.mark.parametrize("axis", [0, 1])
def test_borders(torch, backend, axis, where, expected):
    from orinport.dcnv4 import dcnv4

    shape = (1, 6, 1) if axis else (1, 1, 6)
    value = torch.arange(1.0, 7.0).reshape(*shape, 1).expand(*shape, 16)
    vectors = torch.zeros((*shape, 8))
    vectors[..., axis] = where - torch.arange(6.0).reshape(shape)
    vectors[..., 2] = 1
    got = dcnv4(value, vectors, kernel=(1, 1), padding=(0, 0), group=1, group_channels=16)
    assert torch.equal(got, torch.full((*shape, 16), expected))


def test_a_pixel_outside_is_not_read(torch, backend):
    """A NaN at a border pixel reaches only samples that have that pixel as a corner."""
    from orinport.dcnv4 import dcnv4

    value = torch.ones((1, 4, 4, 16))
    value[0, 0, 0] = float("nan")
    vectors = torch.zeros((1, 4, 4, 8))
    vectors[..., 0:2] = -30
    vectors[..., 2] = 1
    vectors[0, 0, 2, 0:2] = 0
    got = dcnv4(value, vectors, kernel=(1, 1), padding=(0, 0), group=1, group_channels=16)
    assert got.isfinite().all()
    assert (got[0, 0, 2] == 1).all()
    assert got.sum() == 16


def test_padding_and_dead_masks_are_not_read(torch, backend):
    from orinport.dcnv4 import dcnv4

    geometry = Geometry(4, 16)
    value, vectors = random_inputs(torch, geometry, 1, 6, 5)
    vectors[..., 0] = 1000
    clean = dcnv4(value, vectors, **keywords(geometry))
    vectors[..., 108:] = float("nan")
    vectors[..., 18] = float("nan")
    assert torch.equal(dcnv4(value, vectors, **keywords(geometry)), clean)


def test_half_values_with_single_offsets(torch, backend):
    from orinport.dcnv4 import dcnv4

    geometry = Geometry(2, 16)
    value, vectors = random_inputs(torch, geometry, 1, 60, 60)
    value = value.half().requires_grad_()
    vectors.requires_grad_()
    got = dcnv4(value, vectors, **keywords(geometry))
    assert got.dtype == torch.float16
    assert error(got, reference(numbers(value), numbers(vectors), **keywords(geometry))) < 3e-4
    got.sum().backward()
    assert (value.grad.dtype, vectors.grad.dtype) == (torch.float16, torch.float32)


def test_nothing_outside_the_output_is_written(torch):
    """The kernels write into the middle of a larger buffer; what lies around it stays."""
    from orinport.dcnv4.cpu import kernels

    library = kernels()
    if library is None:
        pytest.skip("there is no C compiler on this machine")
    geometry = Geometry(3, 20, offset_scale=3.0)
    value, vectors = random_inputs(torch, geometry, 2, 9, 7)
    size = 2 * 9 * 7 * 60
    guarded = torch.full((size + 2048,), 7.0)
    output = guarded[1024 : 1024 + size]
    addresses = [value.data_ptr(), vectors.data_ptr(), output.data_ptr()]
    library.dcnv4("forward_f32", geometry, value.shape, vectors.shape, addresses, 2)
    assert (guarded[:1024] == 7).all()
    assert (guarded[-1024:] == 7).all()
    assert error(output.reshape(2, 9, 7, 60), reference(numbers(value), numbers(vectors), **keywords(geometry))) < 5e-6


def test_calls_at_the_same_time_do_not_meet(torch):
    """Eight threads, each with its own problem, again and again."""
    from concurrent.futures import ThreadPoolExecutor

    from orinport.dcnv4 import dcnv4

    problems = []
    for seed in range(8):
        geometry = Geometry(1 + seed % 4, 16, offset_scale=1.0 + seed)
        value, vectors = random_inputs(torch, geometry, 2, 8 + seed, 9, seed=seed)
        problems.append((geometry, value, vectors, dcnv4(value, vectors, **keywords(geometry))))

    def work(problem):
        geometry, value, vectors, expected = problem
        return all(torch.equal(dcnv4(value, vectors, **keywords(geometry)), expected) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, problems))


def test_more_than_two_to_the_31_numbers(torch):
    """Addresses need 64 bits: 17 pixels whose vectors are 2**27 numbers apart. Only touched pages take memory."""
    from orinport.dcnv4 import dcnv4, ops

    if ops.kernels() is None:
        pytest.skip("there is no C compiler on this machine")
    geometry = Geometry(1, 16)
    try:
        vectors = torch.zeros((1, 1, 17, 1 << 27))
    except RuntimeError as error:
        pytest.skip(f"this machine does not give 9 GB of address space: {error}")
    assert vectors.numel() > 2**31
    value, small = random_inputs(torch, geometry, 1, 1, 17)
    vectors[..., : small.shape[-1]] = small
    torch.testing.assert_close(
        dcnv4(value, vectors, **keywords(geometry)), dcnv4(value, small, **keywords(geometry)), rtol=0, atol=0
    )


def test_memory_layout_does_not_matter(torch, backend):
    from orinport.dcnv4 import dcnv4

    geometry = Geometry(2, 16)
    value, vectors = random_inputs(torch, geometry, 2, 6, 5)
    strided = value.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    assert not strided.is_contiguous()
    expected = dcnv4(value, vectors, **keywords(geometry))
    assert torch.equal(dcnv4(strided, vectors.flip(0).flip(0), **keywords(geometry)), expected)


@pytest.mark.parametrize(
    ("value", "vectors", "words"),
    [
        (((1, 4, 4, 32), "float32"), ((1, 4, 4, 56), "float16"), "must be of one type"),
        (((1, 4, 4, 32), "int32"), ((1, 4, 4, 56), "int32"), "floating-point type"),
        (((1, 4, 4, 32), "float32"), ((1, 4, 4, 48), "float32"), "need 54"),
        (((1, 4, 4, 30), "float32"), ((1, 4, 4, 56), "float32"), "value has 30 channels"),
        (((1, 4, 4, 32), "float32"), ((1, 4, 5, 56), "float32"), r"needs \(1, 4, 4, P\)"),
        (((4, 4, 32), "float32"), ((1, 4, 4, 56), "float32"), r"shape \(N, H, W, C\)"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_refusals(torch, value, vectors, words, device):
    """The same words from the kernel and from tracing."""
    from orinport.dcnv4 import dcnv4

    tensors = [torch.zeros(shape, dtype=getattr(torch, dtype), device=device) for shape, dtype in (value, vectors)]
    with pytest.raises(OrinportError, match=words):
        dcnv4(*tensors, group=2, group_channels=16)


@pytest.mark.parametrize(
    "geometry",
    [
        Geometry(2, 3),
        Geometry(2, 8, remove_center=True, offset_scale=0.5),
        Geometry(1, 9, kernel=(5, 4), padding=(2, 1), stride=(2, 1), dilation=(1, 2), offset_scale=-1.5),
    ],
    ids=["3x3", "no centre", "5x4"],
)
def test_gradients(torch, backend, geometry):
    """Finite differences in float64, for both inputs."""
    from orinport.dcnv4 import dcnv4

    value, vectors = (t.double() for t in random_inputs(torch, geometry, 2, 5, 6, spread=0.7))
    value.requires_grad_()
    vectors.requires_grad_()
    # The composed form is differentiated by PyTorch itself: projections in random directions are enough there.
    fast = backend == "composed"
    assert torch.autograd.gradcheck(lambda v, o: dcnv4(v, o, **keywords(geometry)), (value, vectors), fast_mode=fast)


def test_gradients_of_both_implementations_agree(torch, monkeypatch):
    """Also where float32, a NaN coordinate and dead taps meet."""
    from orinport.dcnv4 import dcnv4, ops

    if ops.kernels() is None:
        pytest.skip("there is no C compiler on this machine")
    geometry = Geometry(2, 16, offset_scale=2.0)
    value, vectors = random_inputs(torch, geometry, 3, 9, 8)
    vectors[..., 0] = float("nan")
    vectors[..., 3] = 100
    found = []
    for compiled in (True, False):
        if not compiled:
            monkeypatch.setattr(ops, "kernels", lambda: None)
        leaves = [t.clone().requires_grad_() for t in (value, vectors)]
        dcnv4(*leaves, **keywords(geometry)).square().sum().backward()
        found.append([leaf.grad for leaf in leaves])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)
    assert (found[0][1][..., 54:] == 0).all()


def test_half_gradients_have_the_inputs_type(torch):
    from orinport.dcnv4 import dcnv4

    geometry = Geometry(2, 16)
    leaves = [t.to(torch.bfloat16).requires_grad_() for t in random_inputs(torch, geometry, 1, 5, 5)]
    dcnv4(*leaves, **keywords(geometry)).float().square().sum().backward()
    assert [leaf.grad.dtype for leaf in leaves] == [torch.bfloat16, torch.bfloat16]
    wide = [t.detach().double().requires_grad_() for t in leaves]
    dcnv4(*wide, **keywords(geometry)).square().sum().backward()
    for leaf, expected in zip(leaves, wide, strict=True):
        assert error(leaf.grad, numbers(expected.grad)) < 1e-2


@pytest.mark.parametrize("name", ["dcnv4", "flash_deform_attn"])
def test_the_operators_obey_torch_library(torch, name):
    """Schema, fake tensors, autograd registration and AOT dispatch, as PyTorch checks them."""
    from orinport.dcnv4 import ops  # noqa: F401

    if name == "dcnv4":
        value, vectors = random_inputs(torch, Geometry(2, 4), 2, 5, 5)
        arguments = ([3, 3], [1, 1], [1, 1], [1, 1], 2, 4, 1.0, False)
        inputs = (value.requires_grad_(), vectors.requires_grad_(), *arguments)
    else:
        value = torch.randn(1, 20, 2, 4).requires_grad_()
        vectors = torch.rand(1, 3, 2, 24).requires_grad_()
        inputs = (value, torch.tensor([[4, 4], [2, 2]]), torch.tensor([0, 16]), vectors, 4)
    torch.library.opcheck(getattr(torch.ops.orinport, name).default, inputs)


def test_export_with_a_dynamic_batch(torch):
    from orinport.dcnv4 import dcnv4

    class Network(torch.nn.Module):
        def forward(self, value, vectors):
            return dcnv4(value, vectors, group=2, group_channels=16) * 2

    geometry = Geometry(2, 16)
    inputs = random_inputs(torch, geometry, 2, 6, 5)
    batch = torch.export.Dim("batch", min=1, max=1000)
    program = torch.export.export(Network(), inputs, dynamic_shapes=({0: batch}, {0: batch}))
    assert "orinport.dcnv4.default" in program.graph_module.code
    for count in (1, 3, 8, 300):
        value, vectors = random_inputs(torch, geometry, count, 6, 5, seed=count)
        torch.testing.assert_close(program.module()(value, vectors), Network()(value, vectors))


def test_compile(torch):
    from orinport.dcnv4 import dcnv4

    geometry = Geometry(2, 16)
    value, vectors = (t.requires_grad_() for t in random_inputs(torch, geometry, 2, 6, 5))

    def network(v, o):
        return dcnv4(v * 2, o, **keywords(geometry)).relu()

    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(value, vectors), network(value, vectors))
    expected = torch.autograd.grad(network(value, vectors).sum(), (value, vectors))
    got = torch.autograd.grad(compiled(value, vectors).sum(), (value, vectors))
    torch.testing.assert_close(got, expected)


def flash_case(torch, levels, points, batch=2, queries=5, group=3, channels=16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    starts = [0]
    for height, width in levels[:-1]:
        starts.append(starts[-1] + height * width)
    rows = sum(height * width for height, width in levels)
    value = torch.randn((batch, rows, group, channels), generator=generator)
    vectors = torch.rand((batch, queries, group, 3 * len(levels) * points), generator=generator) * 1.4 - 0.2
    vectors[..., 2 * len(levels) * points :] *= 4
    return value, torch.tensor(levels), torch.tensor(starts), vectors


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("levels", "points", "queries"), [([(7, 9)], 8, 13), ([(8, 8), (4, 4), (2, 2)], 4, 5), ([(3, 1), (1, 1)], 19, 1)]
)
def test_flash_values(torch, backend, levels, points, queries, dtype):
    from orinport.dcnv4 import flash_deform_attn

    value, shapes, starts, vectors = flash_case(torch, levels, points, queries=queries, channels=20)
    value, vectors = (t.to(getattr(torch, dtype)) for t in (value, vectors))
    got = flash_deform_attn(value, shapes, starts, vectors, points=points)
    expected = flash_deform_attn_reference(numbers(value), levels, starts, numbers(vectors), points=points)
    assert got.dtype == value.dtype
    assert error(got, expected) < TOLERANCE[dtype]


def test_flash_gradients(torch, backend):
    from orinport.dcnv4 import flash_deform_attn

    value, shapes, starts, vectors = flash_case(torch, [(4, 5), (2, 3)], 2, queries=3, group=2, channels=3)
    value, vectors = (t.double().requires_grad_() for t in (value, vectors))
    assert torch.autograd.gradcheck(lambda v, s: flash_deform_attn(v, shapes, starts, s, points=2), (value, vectors))


def test_flash_on_a_large_map_keeps_locations_in_single(torch, backend):
    """At 1000 pixels float16 locations would be off by half a pixel."""
    from orinport.dcnv4 import flash_deform_attn

    value, shapes, starts, vectors = flash_case(torch, [(1000, 8)], 4, batch=1, queries=40, group=1, channels=8)
    got = flash_deform_attn(value, shapes, starts, vectors, points=4)
    expected = flash_deform_attn_reference(numbers(value), [(1000, 8)], [0], numbers(vectors), points=4)
    assert error(got, expected) < 1e-4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"points": 3}, "does not fit|need"),
        ({"vectors": lambda v: v.half()}, "must be of one type"),
        ({"shapes": lambda s: s + 1}, "does not lie inside"),
        ({"shapes": lambda s: s[0]}, r"must have shape \(L, 2\)"),
    ],
)
def test_flash_refusals(torch, change, words):
    from orinport.dcnv4 import flash_deform_attn

    value, shapes, starts, vectors = flash_case(torch, [(4, 4), (2, 2)], 4)
    shapes = change.get("shapes", lambda s: s)(shapes)
    vectors = change.get("vectors", lambda v: v)(vectors)
    with pytest.raises(OrinportError, match=words):
        flash_deform_attn(value, shapes, starts, vectors, points=change.get("points", 4))


@pytest.mark.parametrize("where", ["no compiler", "forbidden", "broken"])
def test_without_a_compiler_the_operator_still_works_and_says_why(torch, tmp_path, monkeypatch, where):
    from orinport.dcnv4 import dcnv4
    from orinport.dcnv4.cpu import build

    build.kernels.cache_clear()
    monkeypatch.setenv("ORINPORT_CACHE", str(tmp_path))
    if where == "no compiler":
        monkeypatch.setenv("CC", "no-such-compiler")
    elif where == "forbidden":
        monkeypatch.setenv("ORINPORT_COMPILE", "0")
    else:
        compiler = tmp_path / "cc"
        compiler.write_text("#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho 'error: out of ideas' >&2\nexit 1\n")
        compiler.chmod(0o755)
        monkeypatch.setenv("CC", str(compiler))
    words = {"no compiler": "no-such-compiler", "forbidden": "ORINPORT_COMPILE=0", "broken": "out of ideas"}[where]
    geometry = Geometry(2, 16)
    value, vectors = random_inputs(torch, geometry, 1, 5, 5)
    try:
        with pytest.warns(RuntimeWarning, match=words):
            got = dcnv4(value, vectors, **keywords(geometry))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            dcnv4(value, vectors, **keywords(geometry))
    finally:
        build.kernels.cache_clear()
    assert error(got, reference(numbers(value), numbers(vectors), **keywords(geometry))) < 5e-6


def test_a_cache_that_others_may_write_to_is_refused(tmp_path, monkeypatch):
    from orinport.dcnv4.cpu.build import CompileError, cache_folder

    monkeypatch.setenv("ORINPORT_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path / "cpu"
    (tmp_path / "cpu").chmod(0o777)
    with pytest.raises(CompileError, match="others may write"):
        cache_folder()


def test_widths():
    assert offset_mask_width(4, 9) == 112


def test_second_derivatives(torch, backend):
    """Gradient penalties need them; finite differences in float64."""
    from orinport.dcnv4 import dcnv4, flash_deform_attn

    geometry = Geometry(1, 4)
    value, vectors = (t.double().requires_grad_() for t in random_inputs(torch, geometry, 1, 3, 4, spread=0.7))
    assert torch.autograd.gradgradcheck(lambda v, o: dcnv4(v, o, **keywords(geometry)), (value, vectors))
    value, shapes, starts, samples = flash_case(torch, [(4, 5), (2, 3)], 2, queries=2, group=1, channels=3)
    value, samples = (t.double().requires_grad_() for t in (value, samples))
    assert torch.autograd.gradgradcheck(
        lambda v, s: flash_deform_attn(v, shapes, starts, s, points=2), (value, samples)
    )


@pytest.mark.parametrize("change", ["shape", "type"])
def test_gradients_of_another_output_are_refused(torch, backend, change):
    """Before their addresses go to a kernel, which would read beyond their end."""
    geometry = Geometry(4, 8)
    value, vectors = random_inputs(torch, geometry, 1, 6, 6)
    gradient = torch.ones(1, 1, 6, 32) if change == "shape" else torch.ones(1, 6, 6, 32, dtype=torch.float16)
    window = (geometry.kernel, geometry.stride, geometry.padding, geometry.dilation)
    with pytest.raises(OrinportError, match="the gradient must be"):
        torch.ops.orinport.dcnv4_backward(gradient, value, vectors, *window, 4, 8, 1.0, False)
    with pytest.raises(OrinportError, match="of one type"):
        torch.ops.orinport.dcnv4_backward(value.double(), value.double(), vectors, *window, 4, 8, 1.0, False)
    levels, starts = torch.tensor([[2, 2]]), torch.tensor([0])
    rows, samples = torch.ones(1, 4, 2, 8), torch.ones(1, 5, 2, 12)
    gradient = torch.ones(1, 4, 16) if change == "shape" else torch.ones(1, 5, 16, dtype=torch.float64)
    with pytest.raises(OrinportError, match="the gradient must be"):
        torch.ops.orinport.flash_deform_attn_backward(gradient, rows, levels, starts, samples, 4)


def test_levels_and_inputs_that_are_none(torch, backend):
    from orinport.dcnv4 import dcnv4, flash_deform_attn

    rows, samples, levels = torch.ones(1, 4, 2, 8), torch.ones(1, 5, 2, 12), torch.tensor([[2, 2]])
    with pytest.raises(OrinportError, match="whole numbers"):
        flash_deform_attn(rows, levels, torch.tensor([0.0]), samples, points=4)
    value, vectors = random_inputs(torch, Geometry(4, 8), 1, 6, 6)
    with pytest.raises(OrinportError, match="must be dense"):
        dcnv4(value.to_sparse(), vectors, group=4, group_channels=8)
