"""The operators composed of PyTorch's own operations: any device, differentiable, slow.

They stand in where there are no compiled kernels. Coordinates stay in pixels, so that borders and single
precision behave as in the definition. Half types are computed in float32 and rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.dcnv4.arguments import DeformAttnArguments, Geometry

__all__ = ["dcnv4_composed", "flash_deform_attn_composed"]


def dcnv4_composed(value: torch.Tensor, offset_mask: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    """As `orinport.dcnv4.reference`, in the arithmetic of `value`'s type, float32 for half types."""
    batch, rows, columns, _ = geometry.check(value.shape, offset_mask.shape)
    _, height, width, channels = value.shape
    work, vectors = _widen(value), _widen(offset_mask)
    image = work.reshape(batch, height * width, geometry.group, geometry.group_channels)
    slices = vectors[..., : geometry.used_width].reshape(batch, rows, columns, geometry.group, -1)
    first_y = _steps(rows, geometry.stride[0], geometry.origin[0], work)[:, None, None]
    first_x = _steps(columns, geometry.stride[1], geometry.origin[1], work)[None, :, None]
    total = work.new_zeros((batch, rows * columns, geometry.group, geometry.group_channels))
    for tap, (tap_y, tap_x) in enumerate(geometry.tap_offsets):
        x = first_x + geometry.offset_scale * (tap_x + slices[..., 2 * tap])
        y = first_y + geometry.offset_scale * (tap_y + slices[..., 2 * tap + 1])
        mask = slices[..., 2 * geometry.taps + tap]
        total = total + _weighted_samples(image, height, width, *(t.flatten(1, 2) for t in (y, x, mask)))
    return total.reshape(batch, rows, columns, channels).to(value.dtype)


def flash_deform_attn_composed(
    value: torch.Tensor, starts: Sequence[int], sampling_loc_attn: torch.Tensor, arguments: DeformAttnArguments
) -> torch.Tensor:
    """As `orinport.dcnv4.flash_deform_attn_reference`, in the arithmetic of `value`'s type, float32 for half types."""
    batch, queries, group, channels = arguments.check(value.shape, starts, sampling_loc_attn.shape)
    work, vectors = _widen(value), _widen(sampling_loc_attn)
    samples = len(arguments.levels) * arguments.points
    weights = vectors[..., 2 * samples :].softmax(-1)
    total = work.new_zeros((batch, queries, group, channels))
    for level, ((height, width), start) in enumerate(zip(arguments.levels, starts, strict=True)):
        image = work[:, start : start + height * width]
        for sample in range(level * arguments.points, (level + 1) * arguments.points):
            x = vectors[..., 2 * sample] * width - 0.5
            y = vectors[..., 2 * sample + 1] * height - 0.5
            total = total + _weighted_samples(image, height, width, y, x, weights[..., sample])
    return total.reshape(batch, queries, group * channels).to(value.dtype)


def _weighted_samples(
    image: torch.Tensor, height: int, width: int, y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
) -> torch.Tensor:
    """Samples of `image` (N, H*W, G, D) at `y` and `x` (N, Q, G), times `weight` (N, Q, G): (N, Q, G, D)."""
    inside = (y > -1) & (y < height) & (x > -1) & (x < width)
    y, x, weight = (torch.where(inside, t, torch.zeros_like(t)) for t in (y, x, weight))
    top, left = y.detach().floor(), x.detach().floor()
    total = image.new_zeros(())
    for corner_y, weight_y in ((top, 1 - (y - top)), (top + 1, y - top)):
        for corner_x, weight_x in ((left, 1 - (x - left)), (left + 1, x - left)):
            valid = inside & (corner_y >= 0) & (corner_y < height) & (corner_x >= 0) & (corner_x < width)
            at = torch.where(valid, corner_y * width + corner_x, torch.zeros_like(x)).long()
            corner = image.gather(1, at[..., None].expand(*at.shape, image.shape[3]))
            corner = torch.where(valid[..., None], corner, torch.zeros_like(corner))
            total = total + (weight * weight_y * weight_x)[..., None] * corner
    return total


def _steps(count: int, stride: int, first: int, like: torch.Tensor) -> torch.Tensor:
    return torch.arange(count, dtype=like.dtype, device=like.device) * stride + first


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
