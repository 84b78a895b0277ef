"""The CUDA backend of `torch.ops.orinport.dcnv4`, and direct calls of its kernels.

Importing this module registers nothing; `register` does. A problem that no kernel takes, or a machine without
NVRTC, falls back to PyTorch operations after one warning that says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from orinport.dcnv4.arguments import Geometry
from orinport.dcnv4.cuda_compile import CudaDevice, CudaUnavailableError, Loaded, cuda_device
from orinport.dcnv4.cuda_plan import (
    CONFIGURATIONS,
    ElementType,
    Launch,
    Params,
    choose,
    kernel_name,
    make_params,
    plan,
)
from orinport.dcnv4.cuda_tune import measured_choice
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Prepared", "dcnv4_cuda", "fused_dcnv4_cuda", "prepare_forward", "why_not"]

_TYPES = {
    torch.float32: ElementType.F32,
    torch.float16: ElementType.F16,
    torch.bfloat16: ElementType.BF16,
    torch.int8: ElementType.I8,
}


@dataclass
class Prepared:
    """A forward launch whose choice, kernel and structs are settled: `run` launches it and allocates nothing."""

    params: Params
    launch: Launch
    kernel: Loaded
    configuration: int

    def run(self, stream: int) -> None:
        """Launch on a stream, given by its address."""
        self.kernel.launch(self.launch, stream, self.params, self.launch.division)


def prepare_forward(
    value: torch.Tensor,
    offset_mask: torch.Tensor,
    output: torch.Tensor,
    geometry: Geometry,
    *,
    fast: bool = False,
    configuration: int = 0,
    output_scale: float = 1.0,
) -> Prepared:
    """Choose and load the kernel for tensors on one GPU.

    value (N, H, W, C) and offset_mask (N, Ho, Wo, P) may be views of one tensor (N, H, W, C+P): only their rows need
    be contiguous. output (N, Ho, Wo, C) is contiguous. configuration 0 lets the plan choose.
    Raises OrinportError if the tensors do not belong together, CudaUnavailableError if no kernel can be had.
    """
    batch, rows, columns, _ = geometry.check(value.shape, offset_mask.shape)
    value_type, offset_type = _element_type(value), _element_type(offset_mask)
    if not _types_exist(value_type, offset_type) or output.dtype != value.dtype:
        raise CudaUnavailableError(
            f"no kernel for value {value.dtype}, offset_mask {offset_mask.dtype} and output {output.dtype}"
        )
    device = cuda_device(value.device.index or 0)
    params = make_params(
        geometry,
        (batch, value.shape[1], value.shape[2]),
        (rows, columns),
        (_row_stride(value, "value"), _row_stride(offset_mask, "offset_mask")),
        (value.data_ptr(), offset_mask.data_ptr(), output.data_ptr()),
        output_scale,
    )
    number = configuration or measured_choice(device, params, value_type, offset_type, fast)
    number = number or choose(params, value_type, offset_type, device.limits)
    launch = plan(params, value_type, offset_type, CONFIGURATIONS[number - 1], device.limits) if number else None
    if launch is None:
        raise CudaUnavailableError(f"configuration {number} does not fit value {tuple(value.shape)}")
    name = kernel_name(params, value_type, offset_type, fast, CONFIGURATIONS[number - 1])
    return Prepared(params, launch, device.kernel("forward.cuh", name), number)


def dcnv4_cuda(
    value: torch.Tensor,
    offset_mask: torch.Tensor,
    geometry: Geometry,
    *,
    fast: bool = False,
    configuration: int = 0,
    output: torch.Tensor | None = None,
    value_scale: float = 1.0,
    output_scale: float = 1.0,
) -> torch.Tensor:
    """DCNv4 on the GPU on the current stream; see prepare_forward.

    For int8 `value_scale` and `output_scale` are the real values of 1; the output is rounded to nearest even.
    """
    batch, rows, columns, _ = geometry.check(value.shape, offset_mask.shape)
    if output is None:
        output = value.new_empty((batch, rows, columns, geometry.channels))
    with torch.cuda.device(value.device):
        prepared = prepare_forward(
            value,
            offset_mask,
            output,
            geometry,
            fast=fast,
            configuration=configuration,
            output_scale=value_scale / output_scale,
        )
        prepared.run(torch.cuda.current_stream(value.device).cuda_stream)
    return output


def fused_dcnv4_cuda(value_offset_mask: torch.Tensor, geometry: Geometry, **options: Any) -> torch.Tensor:
    """DCNv4 on value and offset_mask in one tensor (N, H, W, C+P), which is not sliced."""
    geometry.check_fused(value_offset_mask.shape)
    channels = geometry.channels
    return dcnv4_cuda(value_offset_mask[..., :channels], value_offset_mask[..., channels:], geometry, **options)


def why_not(value: torch.Tensor, offset_mask: torch.Tensor) -> str:
    """Why the kernels do not take these tensors; empty if they do."""
    if value.device.type != "cuda":
        return f"the tensors are on {value.device}, not on a GPU"
    if value.dtype not in _TYPES or offset_mask.dtype not in _TYPES:
        return f"there is no kernel for {value.dtype} and {offset_mask.dtype}"
    if not _types_exist(_TYPES[value.dtype], _TYPES[offset_mask.dtype]):
        return f"there is no kernel for value {value.dtype} with offset_mask {offset_mask.dtype}"
    try:
        cuda_device(value.device.index or 0)
    except CudaUnavailableError as error:
        return str(error)
    return ""


def _types_exist(value: ElementType, offset: ElementType) -> bool:
    if value == offset:
        return value is not ElementType.I8
    return (value, offset) in {
        (ElementType.I8, ElementType.F16),
        (ElementType.I8, ElementType.F32),
        (ElementType.F16, ElementType.F32),
    }


def _element_type(tensor: torch.Tensor) -> ElementType:
    try:
        return _TYPES[tensor.dtype]
    except KeyError:
        raise CudaUnavailableError(f"there is no kernel for {tensor.dtype}") from None


def _row_stride(tensor: torch.Tensor, name: str) -> int:
    """Elements between neighbouring pixels of a tensor whose pixels follow each other without gaps."""
    _, height, width, _ = tensor.shape
    batch_stride, row_stride, pixel, element = tensor.stride()
    dense = element == 1 and (row_stride == width * pixel or height == 1)
    if not dense or (batch_stride != height * width * pixel and tensor.shape[0] > 1):
        raise OrinportError(
            f"DCNv4: {name} must be channels last and dense but for its rows, strides {tensor.stride()}."
        )
    return int(pixel)
