"""The CUDA kernels on a GPU, through PyTorch, against float64."""

from __future__ import annotations

import pytest

from orinport.dcnv4.arguments import Geometry

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'orinport[torch]'")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU that PyTorch can use"),
]

T_LEVELS = [(56, 4), (28, 8), (14, 16), (7, 32)]
LIMITS = {torch.float32: 1e-6, torch.float16: 3e-4, torch.bfloat16: 3e-3}
GEOMETRIES = [
    Geometry(4, 16),
    Geometry(5, 16, offset_scale=0.5),
    Geometry(4, 32, offset_scale=2.0),
    Geometry(2, 64, stride=(2, 2)),
    Geometry(8, 16, dilation=(2, 1), padding=(2, 1)),
    Geometry(2, 8, remove_center=True),
    Geometry(3, 4, kernel=(1, 1), padding=(0, 0)),
    Geometry(2, 5, kernel=(3, 5), padding=(1, 2)),
    Geometry(1, 16, kernel=(5, 5), padding=(2, 2), offset_scale=0.7),
    Geometry(2, 16, kernel=(2, 2), padding=(0, 1), remove_center=True, stride=(1, 2)),
    Geometry(3, 24, dilation=(2, 1), padding=(2, 1)),
    Geometry(2, 3, offset_scale=-1.5),
    Geometry(32, 16),
]


def draw(geometry, batch, height, width, dtype, seed=0, sigma=1.0):
    generator = torch.Generator("cuda").manual_seed(seed)
    rows, columns = geometry.output_size(height, width)
    value = torch.randn(batch, height, width, geometry.channels, device="cuda", generator=generator).to(dtype)
    vectors = sigma * torch.randn(batch, rows, columns, geometry.width, device="cuda", generator=generator)
    vectors[..., geometry.used_width :] = float("nan")
    return value, vectors.to(dtype)


def expect(value, vectors, geometry):
    from orinport.dcnv4.composed import dcnv4_composed

    return torch.cat(
        [
            dcnv4_composed(v.double(), o.double(), geometry)
            for v, o in zip(value.split(16), vectors.split(16), strict=True)
        ]
    )


def error(output, expected):
    difference = output.double() - expected
    assert torch.isfinite(difference).all()
    return (difference.norm() / expected.norm()).item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_every_configuration(geometry, dtype):
    from orinport.dcnv4 import cuda
    from orinport.dcnv4.cuda_plan import CONFIGURATIONS

    computed = 0
    for batch, height, width in ((3, 13, 17), (1, 40, 37), (7, 28, 28)):
        value, vectors = draw(geometry, batch, height, width, dtype)
        expected = expect(value, vectors, geometry)
        for number in range(1, len(CONFIGURATIONS) + 1):
            output = torch.full(expected.shape, float("nan"), dtype=dtype, device="cuda")
            try:
                cuda.dcnv4_cuda(value, vectors, geometry, configuration=number, output=output)
            except cuda.CudaUnavailableError:
                continue
            computed += 1
            assert error(output, expected) < LIMITS[dtype], (number, batch, height, width)
    assert computed


@pytest.mark.parametrize(("size", "group"), T_LEVELS)
def test_every_batch(size, group):
    """All batches from 1 to 300; the reference is that of the largest."""
    from orinport.dcnv4 import cuda

    geometry = Geometry(group, 16)
    value, vectors = draw(geometry, 300, size, size, torch.float16)
    expected = expect(value, vectors, geometry)
    for batch in range(1, 301):
        output = torch.full(expected[:batch].shape, float("nan"), dtype=torch.float16, device="cuda")
        cuda.dcnv4_cuda(value[:batch], vectors[:batch], geometry, output=output)
        assert error(output, expected[:batch]) < 3e-4, batch


def test_fast_and_mixed_types():
    from orinport.dcnv4 import cuda

    geometry = Geometry(4, 16)
    value, vectors = draw(geometry, 8, 30, 30, torch.float16)
    expected = expect(value, vectors, geometry)
    assert error(cuda.dcnv4_cuda(value, vectors, geometry, fast=True), expected) < 5e-4
    assert error(cuda.dcnv4_cuda(value, vectors.float(), geometry), expected) < 3e-4


@pytest.mark.parametrize("offsets", [torch.float16, torch.float32])
def test_int8(offsets):
    from orinport.dcnv4 import cuda
    from orinport.dcnv4.composed import dcnv4_composed

    geometry = Geometry(8, 16)
    _, vectors = draw(geometry, 4, 20, 22, offsets)
    value = torch.randint(-128, 128, (4, 20, 22, 128), device="cuda").to(torch.int8)
    output = cuda.dcnv4_cuda(value, vectors, geometry, value_scale=0.02, output_scale=0.08)
    expected = (dcnv4_composed(value.double(), vectors.double(), geometry) / 4).round().clamp(-128, 127)
    difference = (output.double() - expected).abs()
    assert difference.max() <= 1
    assert (difference > 0).double().mean() < 1e-3


@pytest.mark.parametrize("size", [14, 56])
def test_fused(size):
    from orinport.dcnv4 import cuda

    geometry = Geometry(4, 16)
    value, vectors = draw(geometry, 5, size, size, torch.float16)
    both = torch.cat([value, vectors], -1)
    assert torch.equal(cuda.fused_dcnv4_cuda(both, geometry), cuda.dcnv4_cuda(value, vectors, geometry))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("geometry", [GEOMETRIES[i] for i in (0, 1, 3, 5, 7, 11)], ids=str)
def test_gradients(geometry, dtype):
    from orinport.dcnv4 import cuda
    from orinport.dcnv4.composed import dcnv4_composed

    value, vectors = draw(geometry, 3, 12, 15, dtype)
    vectors = vectors.nan_to_num()
    inputs = [tensor.double().requires_grad_() for tensor in (value, vectors)]
    output = dcnv4_composed(*inputs, geometry)
    gradient = torch.randn_like(output).to(dtype)
    output.backward(gradient.double())
    limit = {torch.float32: 2e-6, torch.float16: 6e-4, torch.bfloat16: 5e-3}[dtype]
    for deterministic in (False, True):
        results = cuda.dcnv4_backward_cuda(gradient, value, vectors, geometry, deterministic=deterministic)
        for result, tensor in zip(results, inputs, strict=True):
            assert result.dtype == dtype
            assert error(result, tensor.grad) < limit
        if deterministic:
            again = cuda.dcnv4_backward_cuda(gradient, value, vectors, geometry, deterministic=True)
            assert all(torch.equal(a, b) for a, b in zip(results, again, strict=True))


@pytest.mark.parametrize("deterministic", [False, True])
def test_gradients_of_mixed_types(deterministic):
    from orinport.dcnv4 import cuda
    from orinport.dcnv4.composed import dcnv4_composed

    geometry = Geometry(4, 16)
    value, vectors = draw(geometry, 3, 12, 15, torch.float16)
    vectors = vectors.nan_to_num().float() * 1.0009765  # not numbers of float16
    inputs = [tensor.double().requires_grad_() for tensor in (value, vectors)]
    output = dcnv4_composed(*inputs, geometry)
    gradient = torch.randn_like(output).half()
    output.backward(gradient.double())
    results = cuda.dcnv4_backward_cuda(gradient, value, vectors, geometry, deterministic=deterministic)
    assert [result.dtype for result in results] == [torch.float16, torch.float32]
    assert error(results[0], inputs[0].grad) < 6e-4
    assert error(results[1], inputs[1].grad) < 2e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, "mixed"], ids=str)
@pytest.mark.parametrize(("points", "channels"), [(4, 32), (8, 16), (3, 5)])
def test_attention(dtype, points, channels):
    from orinport.dcnv4 import cuda
    from orinport.dcnv4.arguments import DeformAttnArguments
    from orinport.dcnv4.composed import flash_deform_attn_composed

    mixed, dtype = dtype == "mixed", torch.float16 if dtype == "mixed" else dtype
    levels = ((32, 40), (16, 20), (8, 10))
    arguments = DeformAttnArguments(levels, points)
    value = torch.randn(3, arguments.rows, 4, channels, device="cuda").to(dtype)
    samples = torch.randn(3, 101, 4, arguments.width, device="cuda")
    samples[..., : 2 * 3 * points] = torch.rand_like(samples[..., : 2 * 3 * points]) * 1.4 - 0.2
    samples = samples if mixed else samples.to(dtype)
    shapes, starts = torch.tensor(levels, device="cuda"), torch.tensor(arguments.starts, device="cuda")
    output = cuda.flash_deform_attn_cuda(value, shapes, starts, samples, points)
    expected = flash_deform_attn_composed(value.double(), arguments.starts, samples.double(), arguments)
    assert error(output, expected) < LIMITS[dtype]


def test_registered_operator_in_graph_and_compiled():
    """torch.ops.orinport.dcnv4 runs the kernels, under a CUDA graph and under torch.compile too."""
    from orinport.dcnv4.cuda_model import GraphRunner
    from orinport.dcnv4.ops import dcnv4

    geometry = Geometry(4, 16)
    value, vectors = draw(geometry, 2, 14, 14, torch.float16)
    expected = expect(value, vectors, geometry)

    def function(v):
        return dcnv4(v, vectors, group=4, group_channels=16) * 2

    assert error(function(value), 2 * expected) < 3e-4
    runner = GraphRunner(function, torch.zeros_like(value))
    assert error(runner(value), 2 * expected) < 3e-4
    assert error(torch.compile(function, fullgraph=True)(value), 2 * expected) < 3e-4


def test_two_streams():
    """Launches on two streams at once do not disturb each other."""
    from orinport.dcnv4 import cuda

    geometry = Geometry(8, 16)
    inputs = [draw(geometry, 64, 28, 28, torch.float16, seed) for seed in range(2)]
    expected = [expect(*pair, geometry) for pair in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    for _ in range(20):
        outputs = []
        for pair, stream in zip(inputs, streams, strict=True):
            with torch.cuda.stream(stream):
                outputs.append(cuda.dcnv4_cuda(*pair, geometry))
        torch.cuda.synchronize()
        assert all(error(a, b) < 3e-4 for a, b in zip(outputs, expected, strict=True))


def test_fallback_says_why():
    from orinport.dcnv4.ops import dcnv4

    value, vectors = draw(Geometry(2, 16), 1, 8, 8, torch.float64)
    with pytest.warns(RuntimeWarning, match="no kernel for value"):
        output = dcnv4(value, vectors, group=2, group_channels=16)
    assert error(output, expect(value, vectors, Geometry(2, 16))) < 1e-12
