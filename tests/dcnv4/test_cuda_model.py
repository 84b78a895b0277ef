"""Blocks and projections fused for the GPU compute what the plain modules compute; here by PyTorch operations."""

from __future__ import annotations

import copy

import pytest

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def network():
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'orinport[torch]'")
    from orinport.dcnv4.flash_internimage import flash_internimage, randomize

    model = flash_internimage("t").eval()
    randomize(model, 0)
    return model


def difference(torch, model, other):
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(images)
        return float((other(images) - expected).norm() / expected.norm())


def test_fused_blocks(torch, network):
    from orinport.dcnv4.cuda_model import fuse_blocks

    fused = copy.deepcopy(network)
    assert fuse_blocks(fused) == 30
    assert difference(torch, network, fused) < 1e-5


def test_fused_projections(torch, network):
    from orinport.dcnv4.cuda_model import fuse_projections

    fused = copy.deepcopy(network)
    assert fuse_projections(fused) == 30
    assert difference(torch, network, fused) < 1e-6


def test_post_norm_blocks_stay(torch):
    from orinport.dcnv4.cuda_model import fuse_blocks, fuse_projections
    from orinport.dcnv4.flash_internimage import flash_internimage

    model = flash_internimage("s").eval()
    assert fuse_blocks(model) == 0
    assert fuse_projections(model) == 0


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("normalised", [False, True])
def test_fused_linear(torch, gelu, normalised):
    from orinport.dcnv4.cuda_linear import FusedLinear

    generator = torch.Generator().manual_seed(2)
    layers = [torch.nn.Linear(16, 24), torch.nn.Linear(16, 8, bias=False)]
    norm = torch.nn.LayerNorm(16)
    torch.nn.init.normal_(norm.weight, generator=generator)
    torch.nn.init.normal_(norm.bias, generator=generator)
    x, residual = torch.randn(2, 5, 16, generator=generator) + 3, torch.randn(2, 5, 32, generator=generator)
    source = norm(x) if normalised else x
    expected = torch.cat([layer(source) for layer in layers], -1)
    expected = (torch.nn.functional.gelu(expected) if gelu else expected) + residual
    fused = FusedLinear(layers, norm if normalised else None, gelu)
    assert torch.allclose(fused(x, residual), expected, atol=1e-5)
    half = fused.half()
    assert half.weight.dtype == torch.float16
    assert half.bias.dtype == torch.float32
    assert torch.allclose(half(x.half(), residual.half()).float(), expected, atol=0.05)


def test_fused_operator_under_export(torch):
    """Shapes are known without data: the operator traces."""
    from orinport.dcnv4 import cuda_model  # noqa: F401

    both = torch.empty(1, 8, 8, 64 + 112, device="meta")
    output = torch.ops.orinport.dcnv4_fused(both, [3, 3], [1, 1], [1, 1], [1, 1], 4, 16, 1.0, False)
    assert output.shape == (1, 8, 8, 64)
