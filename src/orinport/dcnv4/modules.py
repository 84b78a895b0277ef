"""The modules around the operators, with the parameter names of the published checkpoints."""

# mypy: allow-subclassing-any

from __future__ import annotations

from math import isqrt, pi

import torch
from torch import nn

from orinport.dcnv4.arguments import Geometry, require_whole
from orinport.dcnv4.ops import dcnv4, flash_deform_attn
from orinport.errors import OrinportError

__all__ = ["DCNv4", "FlashDeformAttn"]


class DCNv4(nn.Module):
    """Deformable convolution v4 between two linear layers (OpenGVLab/DCNv4, modules/dcnv4.py).

    Parameters: `value_proj`, `offset_mask` (C to P), `output_proj`; with `dw_kernel_size` also the depthwise
    convolution `offset_mask_dw` in front of `offset_mask`; with `center_feature_scale` the gate
    `center_feature_scale_proj_weight` and `_bias`. A fresh module has all masks 0, so the operator gives 0.
    Raises OrinportError for channels that do not divide into groups, and for other numbers that make no sense.
    """

    def __init__(
        self,
        channels: int = 64,
        kernel_size: int = 3,
        stride: int = 1,
        pad: int = 1,
        dilation: int = 1,
        group: int = 4,
        offset_scale: float = 1.0,
        dw_kernel_size: int | None = None,
        center_feature_scale: bool = False,
        remove_center: bool = False,
        output_bias: bool = True,
        without_pointwise: bool = False,
    ) -> None:
        super().__init__()
        require_whole("channels", channels, 1)
        require_whole("group", group, 1)
        if channels % group:
            raise OrinportError(f"DCNv4: {channels} channels do not divide into {group} groups.")
        if dw_kernel_size is not None:
            require_whole("dw_kernel_size", dw_kernel_size, 1)
            if dw_kernel_size % 2 == 0:
                raise OrinportError(f"DCNv4: dw_kernel_size must be odd, not {dw_kernel_size}: it keeps the size.")
        if center_feature_scale and stride != 1:
            raise OrinportError("DCNv4: center_feature_scale mixes output and value, so it needs stride 1.")
        self.channels = channels
        self.dw_kernel_size = dw_kernel_size
        self.center_feature_scale = center_feature_scale
        self.without_pointwise = without_pointwise
        self.geometry = Geometry(
            group,
            channels // group,
            (kernel_size, kernel_size),
            (stride, stride),
            (pad, pad),
            (dilation, dilation),
            offset_scale,
            bool(remove_center),
        )
        if dw_kernel_size is not None:
            half = (dw_kernel_size - 1) // 2
            self.offset_mask_dw = nn.Conv2d(channels, channels, dw_kernel_size, padding=half, groups=channels)
        self.offset_mask = nn.Linear(channels, self.geometry.width)
        if not without_pointwise:
            self.value_proj = nn.Linear(channels, channels)
            self.output_proj = nn.Linear(channels, channels, bias=output_bias)
        if center_feature_scale:
            self.center_feature_scale_proj_weight = nn.Parameter(torch.zeros(group, channels))
            self.center_feature_scale_proj_bias = nn.Parameter(torch.zeros(group))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Zero offsets and masks, Xavier projections."""
        nn.init.zeros_(self.offset_mask.weight)
        nn.init.zeros_(self.offset_mask.bias)
        if not self.without_pointwise:
            for projection in (self.value_proj, self.output_proj):
                nn.init.xavier_uniform_(projection.weight)
                if projection.bias is not None:
                    nn.init.zeros_(projection.bias)

    def forward(self, input: torch.Tensor, shape: tuple[int, int] | None = None) -> torch.Tensor:  # noqa: A002
        """(N, L, C) with `shape` (H, W), square if left out, gives (N, Ho*Wo, C); (N, H, W, C) gives (N, Ho, Wo, C).

        Where the size changes, offsets are made from the input pixels under the kernel's centre.
        """
        if input.dim() in (3, 4) and input.shape[-1] != self.channels:
            raise OrinportError(f"DCNv4: the input has {input.shape[-1]} channels, not {self.channels}.")
        if input.dim() == 4:
            return self._on_pixels(input)
        if input.dim() != 3:
            raise OrinportError(f"DCNv4: the input must be (N, L, C) or (N, H, W, C), not {tuple(input.shape)}.")
        if shape is not None and len(shape) != 2:
            raise OrinportError(f"DCNv4: shape must be (height, width), not {tuple(shape)}.")
        height, width = shape if shape is not None else (isqrt(input.shape[1]),) * 2
        if height < 0 or height * width != input.shape[1]:
            raise OrinportError(f"DCNv4: {input.shape[1]} tokens are not {height}x{width} pixels; give their shape.")
        return self._on_pixels(input.unflatten(1, (height, width))).flatten(1, 2)

    def _on_pixels(self, pixels: torch.Tensor) -> torch.Tensor:
        value = pixels if self.without_pointwise else self.value_proj(pixels)
        source = pixels
        if self.dw_kernel_size is not None:
            source = self.offset_mask_dw(pixels.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        geometry = self.geometry
        output = dcnv4(
            value,
            self.offset_mask(self._at_output(source)).to(value.dtype),
            **geometry.keywords,
        )
        if self.center_feature_scale:
            gate = nn.functional.linear(
                output, self.center_feature_scale_proj_weight, self.center_feature_scale_proj_bias
            )
            gate = gate.sigmoid().repeat_interleave(geometry.group_channels, dim=-1)
            output = output * (1 - gate) + value * gate
        return output if self.without_pointwise else self.output_proj(output)

    def _at_output(self, source: torch.Tensor) -> torch.Tensor:
        """The pixels of (N, H, W, C) under the kernel's centre, one for every output pixel."""
        if self.geometry.keeps_size:
            return source
        sizes = self.geometry.output_size(int(source.shape[1]), int(source.shape[2]))
        for axis, count in enumerate(sizes):
            stride, first = self.geometry.stride[axis], self.geometry.origin[axis]
            last = first + (count - 1) * stride
            if first < 0 or last >= source.shape[axis + 1]:
                raise OrinportError(
                    f"DCNv4: with padding {self.geometry.padding} some output pixels have no input pixel under them."
                )
            source = source[:, first : last + 1 : stride] if axis == 0 else source[:, :, first : last + 1 : stride]
        return source


class FlashDeformAttn(nn.Module):
    """Multi-scale deformable attention (OpenGVLab/DCNv4, modules/flash_deform_attn.py).

    Parameters: `sampling_offsets`, `attention_weights`, `value_proj`, `output_proj`. Sampling locations stay in
    the type of the value, float32 included.
    """

    def __init__(self, d_model: int = 256, n_levels: int = 4, n_heads: int = 8, n_points: int = 4) -> None:
        super().__init__()
        numbers = {"d_model": d_model, "n_levels": n_levels, "n_heads": n_heads, "n_points": n_points}
        for name, number in numbers.items():
            require_whole(name, number, 1, "FlashDeformAttn")
        if d_model % n_heads:
            raise OrinportError(f"FlashDeformAttn: d_model {d_model} does not divide into {n_heads} heads.")
        self.d_model = d_model
        self.n_levels = n_levels
        self.n_heads = n_heads
        self.n_points = n_points
        self.sampling_offsets = nn.Linear(d_model, n_heads * n_levels * n_points * 2)
        self.attention_weights = nn.Linear(d_model, n_heads * n_levels * n_points)
        self.value_proj = nn.Linear(d_model, d_model)
        self.output_proj = nn.Linear(d_model, d_model)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Head h looks in direction 2*pi*h/heads, point p at p+1 steps; all attention weights equal."""
        nn.init.zeros_(self.sampling_offsets.weight)
        angles = torch.arange(self.n_heads, dtype=torch.float32) * (2 * pi / self.n_heads)
        directions = torch.stack([angles.cos(), angles.sin()], -1)
        directions = directions / directions.abs().amax(-1, keepdim=True)
        reach = torch.arange(1, self.n_points + 1, dtype=torch.float32)
        grid = directions[:, None, None, :] * reach[None, None, :, None]
        with torch.no_grad():
            self.sampling_offsets.bias.copy_(grid.expand(-1, self.n_levels, -1, -1).reshape(-1))
        nn.init.zeros_(self.attention_weights.weight)
        nn.init.zeros_(self.attention_weights.bias)
        for projection in (self.value_proj, self.output_proj):
            nn.init.xavier_uniform_(projection.weight)
            nn.init.zeros_(projection.bias)

    def forward(
        self,
        query: torch.Tensor,
        reference_points: torch.Tensor,
        input_flatten: torch.Tensor,
        input_spatial_shapes: torch.Tensor,
        input_level_start_index: torch.Tensor,
        input_padding_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`query` (N, Q, C) and `input_flatten` (N, sum of H*W, C) give (N, Q, C).

        `reference_points` (N, Q, L, 2) holds normalised centres, (N, Q, L, 4) boxes (x, y, w, h);
        `input_padding_mask` (N, sum of H*W) is true where there is no picture.
        """
        value = self.value_proj(input_flatten)
        if input_padding_mask is not None:
            value = value.masked_fill(input_padding_mask[..., None], 0.0)
        value = value.unflatten(-1, (self.n_heads, self.d_model // self.n_heads))
        samples = self.n_levels * self.n_points
        offsets = self.sampling_offsets(query).unflatten(-1, (self.n_heads, self.n_levels, self.n_points, 2))
        logits = self.attention_weights(query).unflatten(-1, (self.n_heads, samples))
        locations = self._locations(offsets, reference_points, input_spatial_shapes).flatten(-3)
        output = flash_deform_attn(
            value,
            input_spatial_shapes,
            input_level_start_index,
            torch.cat([locations.to(value.dtype), logits.to(value.dtype)], dim=-1),
            points=self.n_points,
        )
        result: torch.Tensor = self.output_proj(output)
        return result

    def _locations(self, offsets: torch.Tensor, points: torch.Tensor, shapes: torch.Tensor) -> torch.Tensor:
        """(N, Q, heads, L, points, 2), normalised."""
        if points.dim() != 4:
            raise OrinportError(
                f"FlashDeformAttn: reference points must be (N, Q, L, 2) or (N, Q, L, 4), not {tuple(points.shape)}."
            )
        if points.shape[-1] == 2:
            sizes = shapes.flip(-1).to(offsets.dtype)
            return points[:, :, None, :, None, :] + offsets / sizes[None, None, None, :, None, :]
        if points.shape[-1] == 4:
            half = points[:, :, None, :, None, 2:] * 0.5
            return points[:, :, None, :, None, :2] + offsets / self.n_points * half
        raise OrinportError(f"FlashDeformAttn: reference points have 2 or 4 numbers, not {points.shape[-1]}.")
