"""Networks with DCNv4 made fast for inference on a GPU: fused projections, channels-last convolutions, a CUDA graph."""

# mypy: allow-untyped-decorators, allow-subclassing-any

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from orinport.dcnv4.arguments import Geometry
from orinport.dcnv4.cuda_linear import FusedLinear
from orinport.dcnv4.modules import DCNv4
from orinport.dcnv4.ops import GEOMETRY, dcnv4
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FusedBlock", "FusedDCNv4", "GraphRunner", "fuse_blocks", "fuse_projections"]

torch.library.define("orinport::dcnv4_fused", f"(Tensor value_offset_mask, {GEOMETRY}) -> Tensor")


def _default(value_offset_mask: torch.Tensor, *arguments: Any) -> torch.Tensor:
    geometry = Geometry.of_arguments(arguments)
    geometry.check_fused(value_offset_mask.shape)
    value, offset_mask = value_offset_mask.split(
        [geometry.channels, value_offset_mask.shape[3] - geometry.channels], -1
    )
    return dcnv4(value.contiguous(), offset_mask.contiguous(), **geometry.keywords)


def _cuda(value_offset_mask: torch.Tensor, *arguments: Any) -> torch.Tensor:
    from orinport.dcnv4 import cuda
    from orinport.dcnv4.cuda_compile import CudaUnavailableError

    try:
        return cuda.fused_dcnv4_cuda(
            value_offset_mask.contiguous(), Geometry.of_arguments(arguments), fast=cuda.accuracy() == "fast"
        )
    except CudaUnavailableError:
        return _default(value_offset_mask, *arguments)


@torch.library.register_fake("orinport::dcnv4_fused")
def _fake(value_offset_mask: torch.Tensor, *arguments: Any) -> torch.Tensor:
    geometry = Geometry.of_arguments(arguments)
    batch, height, width, _ = geometry.check_fused(value_offset_mask.shape)
    return value_offset_mask.new_empty((batch, height, width, geometry.channels))


torch.library.impl("orinport::dcnv4_fused", "default", _default)
torch.library.impl("orinport::dcnv4_fused", "cuda", _cuda)


def _sample(value_offset_mask: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    result: torch.Tensor = torch.ops.orinport.dcnv4_fused(value_offset_mask, *geometry.keywords.values())
    return result


class FusedDCNv4(nn.Module):
    """A DCNv4 module for inference whose value and offset projections are one matrix product, never sliced.

    Raises OrinportError for modules whose projections read different tensors or whose output has another size.
    """

    def __init__(self, module: DCNv4) -> None:
        super().__init__()
        if module.without_pointwise or module.dw_kernel_size is not None or module.center_feature_scale:
            raise OrinportError("DCNv4: only modules whose projections all read the input can be fused.")
        if not module.geometry.keeps_size:
            raise OrinportError("DCNv4: only modules that keep the size of their input can be fused.")
        self.geometry = module.geometry
        projections = (module.value_proj, module.offset_mask)
        self.weight = nn.Parameter(torch.cat([p.weight.detach() for p in projections]), requires_grad=False)
        self.bias = nn.Parameter(torch.cat([p.bias.detach() for p in projections]), requires_grad=False)
        self.output_proj = module.output_proj

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """(N, H, W, C) to (N, H, W, C)."""
        sampled = _sample(nn.functional.linear(pixels, self.weight, self.bias), self.geometry)
        result: torch.Tensor = self.output_proj(sampled)
        return result


class FusedBlock(nn.Module):
    """A block of FlashInternImage for inference in five kernels: norm and projections, DCNv4, projection and residual,
    norm, matrix product and GELU, matrix product and residual.

    Raises OrinportError for blocks with norms behind their branches or with layer scales.
    """

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        if block.post_norm or block.scaled or block.dcn.dw_kernel_size is not None:
            raise OrinportError(
                "FlashInternImage: only blocks that normalise the input of their branches can be fused."
            )
        self.geometry = block.dcn.geometry
        self.projections = FusedLinear([block.dcn.value_proj, block.dcn.offset_mask], block.norm1[0])
        self.output_proj = FusedLinear([block.dcn.output_proj])
        self.fc1 = FusedLinear([block.mlp.fc1], block.norm2[0], gelu=True)
        self.fc2 = FusedLinear([block.mlp.fc2])

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """(N, H, W, C) to (N, H, W, C)."""
        pixels = self.output_proj(_sample(self.projections(pixels), self.geometry), pixels)
        result: torch.Tensor = self.fc2(self.fc1(pixels), pixels)
        return result


def fuse_blocks(model: nn.Module) -> int:
    """Replace, in place, every block of FlashInternImage that can be fused; returns how many were."""
    from orinport.dcnv4.flash_internimage import _Block

    return _replace(model, _Block, FusedBlock)


def fuse_projections(model: nn.Module) -> int:
    """Replace, in place, every DCNv4 module that can be fused; returns how many were."""
    return _replace(model, DCNv4, FusedDCNv4)


def _replace(model: nn.Module, kind: type[nn.Module], fused: Callable[[Any], nn.Module]) -> int:
    """Put `fused(module)` in the place of every module of a kind for which it raises no OrinportError."""
    count = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, kind):
                with contextlib.suppress(OrinportError):
                    setattr(module, name, fused(child))
                    count += 1
    return count


class GraphRunner:
    """A function of one tensor of fixed shape as a CUDA graph: calls copy the input in and replay."""

    def __init__(self, function: Any, example: torch.Tensor, warm_up: int = 3) -> None:
        self._input = example.clone()
        side = torch.cuda.Stream(example.device)
        side.wait_stream(torch.cuda.current_stream(example.device))
        with torch.no_grad(), torch.cuda.stream(side):
            for _ in range(warm_up):
                function(self._input)
        torch.cuda.current_stream(example.device).wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(self._graph):
            self._output: torch.Tensor = function(self._input)

    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        """The function of `value`, in a tensor that the next call overwrites."""
        self._input.copy_(value)
        self.replay()
        return self._output

    def replay(self) -> None:
        """Compute again from the input of the last call."""
        self._graph.replay()
