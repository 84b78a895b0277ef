"""The CUDA backend of `torch.ops.orinport`, and direct calls of its kernels.

Importing this module registers nothing; `register` does, and `orinport.dcnv4.ops` calls it where there is a GPU. What
no kernel takes falls back to PyTorch operations, after one warning that says why.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch

from orinport.dcnv4.arguments import Geometry, check_attention_shapes, check_gradient
from orinport.dcnv4.cuda_compile import CudaUnavailableError, Loaded, cuda_device
from orinport.dcnv4.cuda_plan import (
    CONFIGURATIONS,
    AttentionParams,
    BackwardParams,
    Division,
    ElementType,
    Launch,
    Params,
    choose,
    kernel_name,
    make_divisor,
    make_params,
    plan,
)
from orinport.dcnv4.cuda_tune import measured_choice
from orinport.errors import OrinportError

__all__ = [
    "ELEMENT_TYPES",
    "Prepared",
    "accuracy",
    "dcnv4_backward_cuda",
    "dcnv4_cuda",
    "flash_deform_attn_cuda",
    "fused_dcnv4_cuda",
    "prepare_forward",
    "register",
    "set_accuracy",
    "why_not",
]

Accuracy = Literal["exact", "fast"]

ELEMENT_TYPES = {
    torch.float32: ElementType.F32,
    torch.float16: ElementType.F16,
    torch.bfloat16: ElementType.BF16,
    torch.int8: ElementType.I8,
}
"""The kernels' element types."""
_MIXED = {
    (ElementType.I8, ElementType.F16),
    (ElementType.I8, ElementType.F32),
    (ElementType.F16, ElementType.F32),
}
_INT32 = 1 << 31
_FIXED_POINT_BITS = 36
"""Bits of the largest product in 64-bit sums, which leaves 27 bits for their number."""

_accuracy: Accuracy = "exact"


def accuracy() -> Accuracy:
    """How `torch.ops.orinport.dcnv4` interpolates float16: see set_accuracy."""
    return _accuracy


def set_accuracy(mode: Accuracy) -> None:
    """`exact`: all arithmetic in float32, rounded once. `fast`: the four corners of a sample are combined in float16,
    samples are summed in float32; float16 only."""
    global _accuracy
    if mode not in ("exact", "fast"):
        raise OrinportError(f"DCNv4: the accuracy is exact or fast, not {mode!r}.")
    _accuracy = mode


@dataclass(frozen=True)
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
    _require_one_device("DCNv4", value, offset_mask, output)
    strides = (_row_stride(value, "value"), _row_stride(offset_mask, "offset_mask"))
    addresses = (value.data_ptr(), offset_mask.data_ptr(), output.data_ptr())
    if output.dtype != value.dtype or not output.is_contiguous():
        raise CudaUnavailableError(f"the output must be contiguous and of value's type {value.dtype}")
    number, launch, kernel, template = _prepare(
        value.device.index or 0,
        value.dtype,
        offset_mask.dtype,
        tuple(value.shape),
        tuple(offset_mask.shape),
        strides,
        tuple(address % 16 for address in addresses),
        geometry,
        fast,
        configuration,
        output_scale,
    )
    params = Params.from_buffer_copy(template)
    params.value, params.offset_mask, params.output = addresses
    return Prepared(params, launch, kernel, number)


@lru_cache(maxsize=4096)
def _prepare(
    ordinal: int,
    value_dtype: torch.dtype,
    offset_dtype: torch.dtype,
    value_shape: tuple[int, int, int, int],
    offset_shape: tuple[int, int, int, int],
    strides: tuple[int, int],
    alignment: tuple[int, int, int],
    geometry: Geometry,
    fast: bool,
    configuration: int,
    output_scale: float,
) -> tuple[int, Launch, Loaded, bytes]:
    _, rows, columns, _ = geometry.check(value_shape, offset_shape)
    value_type, offset_type = _element_types(value_dtype, offset_dtype)
    device = cuda_device(ordinal)
    params = make_params(geometry, value_shape[:3], (rows, columns), strides, alignment, output_scale)
    number = configuration or measured_choice(device, params, value_type, offset_type, fast)
    number = number or choose(params, value_type, offset_type, device.limits)
    launch = plan(params, value_type, offset_type, CONFIGURATIONS[number - 1], device.limits) if number else None
    if launch is None:
        raise CudaUnavailableError(f"no configuration fits value {value_shape} and offset_mask {offset_shape}")
    name = kernel_name(params, value_type, offset_type, fast, CONFIGURATIONS[number - 1])
    return number, launch, device.kernel("forward.cuh", name), bytes(params)


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


def dcnv4_backward_cuda(
    gradient: torch.Tensor,
    value: torch.Tensor,
    offset_mask: torch.Tensor,
    geometry: Geometry,
    *,
    deterministic: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of value (N, H, W, C) and offset_mask (N, Ho, Wo, P), in their shapes and types.

    `gradient` (N, Ho, Wo, C) is that of the output. `deterministic` sums in 64-bit fixed point: the same bits in every
    run. Raises OrinportError if the tensors do not belong together, CudaUnavailableError if no kernel can be had.
    """
    _require_one_device("DCNv4", value, offset_mask, gradient)
    batch, rows, columns, _ = geometry.check(value.shape, offset_mask.shape)
    check_gradient("DCNv4", gradient, value, (batch, rows, columns, geometry.channels))
    kind, offset_kind = _element_types(value.dtype, offset_mask.dtype)
    if kind == ElementType.I8:
        raise CudaUnavailableError("int8 has no gradients")
    if kind != offset_kind:  # the kernel reads all in one type
        for_value, for_offset = dcnv4_backward_cuda(
            gradient.float(), value.float(), offset_mask.float(), geometry, deterministic=deterministic
        )
        return for_value.to(value.dtype), for_offset.to(offset_mask.dtype)
    value, offset_mask, gradient = value.contiguous(), offset_mask.contiguous(), gradient.contiguous()
    lanes = geometry.group_channels // 4
    aligned = all(tensor.data_ptr() % 16 == 0 for tensor in (value, gradient))
    if geometry.group_channels % 4 or lanes not in (1, 2, 4, 8, 16, 32) or not aligned:
        lanes = 0
    with torch.cuda.device(value.device):
        device = cuda_device(value.device.index or 0)
        offset_gradient = torch.empty_like(offset_mask)
        value_gradient = torch.zeros(
            value.shape, dtype=torch.int64 if deterministic else torch.float32, device=value.device
        )
        factor = _fixed_point(gradient, offset_mask) if deterministic else None
        params = BackwardParams(
            make_params(
                geometry,
                (batch, value.shape[1], value.shape[2]),
                (rows, columns),
                (geometry.channels, offset_mask.shape[3]),
                (value.data_ptr(), offset_mask.data_ptr(), 0),
            ),
            gradient.data_ptr(),
            value_gradient.data_ptr(),
            offset_gradient.data_ptr(),
            0 if factor is None else factor.data_ptr(),
            make_divisor(geometry.group),
            make_divisor(columns),
            make_divisor(rows * columns),
        )
        blocks = -(-batch * rows * columns * geometry.group * max(lanes, 1) // 256)
        if blocks >= _INT32:
            raise CudaUnavailableError(f"{batch} images of {rows}x{columns} pixels are too many for one launch")
        types = f"orinport::dcnv4::{kind.name}, orinport::dcnv4::{kind.name}"
        name = f"orinport::dcnv4::backward_kernel<{types}, {lanes}, {str(deterministic).lower()}>"
        launch = Launch(Division(), (blocks, 1, 1), (256, 1), 0)
        stream = torch.cuda.current_stream(value.device).cuda_stream
        device.kernel("backward.cuh", name).launch(launch, stream, params)
        if factor is not None:
            value_gradient = value_gradient.double() / factor
    return value_gradient.to(value.dtype), offset_gradient


def _fixed_point(gradient: torch.Tensor, offset_mask: torch.Tensor) -> torch.Tensor:
    """A power of two that brings the largest product of a gradient and a modulation scalar to 36 bits."""
    bound = gradient.abs().amax().float() * offset_mask.nan_to_num().abs().amax().float()
    return torch.exp2(_FIXED_POINT_BITS - bound.clamp(min=2.0**-80, max=2.0**80).log2().ceil())


def flash_deform_attn_cuda(
    value: torch.Tensor, shapes: torch.Tensor, starts: torch.Tensor, sampling_loc_attn: torch.Tensor, points: int
) -> torch.Tensor:
    """FlashDeformAttn on the current stream; shapes and starts stay on the GPU.

    Raises CudaUnavailableError if no kernel can be had, OrinportError if the shapes do not belong together.
    """
    _require_one_device("FlashDeformAttn", value, sampling_loc_attn)
    levels = shapes.shape[0]
    batch, _, group, channels = check_attention_shapes(value.shape, sampling_loc_attn.shape, levels, points)
    if starts.shape != (levels,):
        raise OrinportError(f"FlashDeformAttn: {levels} levels, but starts of shape {tuple(starts.shape)}.")
    rows = value.shape[1]
    kind, sample_kind = _element_types(value.dtype, sampling_loc_attn.dtype)
    if kind == ElementType.I8:
        raise CudaUnavailableError("there is no kernel for int8")
    if kind != sample_kind:  # the kernel reads all in one type
        wide = flash_deform_attn_cuda(value.float(), shapes, starts, sampling_loc_attn.float(), points)
        return wide.to(value.dtype)
    if shapes.dtype != starts.dtype or shapes.dtype not in (torch.int64, torch.int32) or shapes.device != value.device:
        raise CudaUnavailableError("shapes and starts must be integers of one type on value's GPU")
    value, samples = value.contiguous(), sampling_loc_attn.contiguous()
    shapes, starts = shapes.contiguous(), starts.contiguous()
    queries = samples.shape[1]
    size = kind.bytes
    width = next((n for n in (16, 8) if channels * size % n == 0 and value.data_ptr() % n == 0), size)
    lanes = group * channels * size // width
    if lanes * queries >= _INT32 - 256:
        raise CudaUnavailableError(f"{queries} queries of {group * channels} channels are too many for one launch")
    output = value.new_empty((batch, queries, group * channels))
    with torch.cuda.device(value.device):
        params = AttentionParams(
            *(tensor.data_ptr() for tensor in (value, shapes, starts, samples, output)),
            *(batch, rows, group, channels, queries, levels, points, shapes.element_size()),
            make_divisor(lanes),
            make_divisor(channels),
        )
        name = f"orinport::dcnv4::attention_kernel<orinport::dcnv4::{kind.name}, {width}>"
        launch = Launch(Division(), (-(-lanes * queries // 128), min(batch, 65535), 1), (128, 1), 0)
        stream = torch.cuda.current_stream(value.device).cuda_stream
        cuda_device(value.device.index or 0).kernel("attention.cuh", name).launch(launch, stream, params)
    return output


def why_not(value: torch.Tensor, offset_mask: torch.Tensor) -> str:
    """Why the kernels do not take these tensors; empty if they do."""
    if value.device.type != "cuda":
        return f"the tensors are on {value.device}, not on a GPU"
    try:
        _element_types(value.dtype, offset_mask.dtype)
        cuda_device(value.device.index or 0)
    except CudaUnavailableError as error:
        return str(error)
    return ""


def _element_types(value: torch.dtype, offset: torch.dtype) -> tuple[ElementType, ElementType]:
    pair = ELEMENT_TYPES.get(value), ELEMENT_TYPES.get(offset)
    if pair[0] is None or pair[1] is None or not (pair in _MIXED or (pair[0] == pair[1] and pair[0] != ElementType.I8)):
        raise CudaUnavailableError(f"there is no kernel for value {value} with offset_mask {offset}")
    return pair[0], pair[1]


def _require_one_device(operator: str, *tensors: torch.Tensor) -> None:
    """A kernel takes addresses: one of another memory would be read as if it were the GPU's."""
    if len({tensor.device for tensor in tensors}) > 1:
        places = " and ".join(str(tensor.device) for tensor in tensors)
        raise OrinportError(f"{operator}: all tensors must be on one device, not {places}.")


def _row_stride(tensor: torch.Tensor, name: str) -> int:
    """Elements between neighbouring pixels of a tensor whose pixels follow each other without gaps."""
    images, height, width, _ = tensor.shape
    image_stride, row_stride, pixel, element = tensor.stride()
    dense = element == 1 and (row_stride == width * pixel or height == 1)
    if not dense or (image_stride != height * width * pixel and images > 1):
        raise OrinportError(f"DCNv4: the pixels of {name} must be dense and channels last, not {tensor.stride()}.")
    return int(pixel)


# The operators


def register() -> None:
    """Make the kernels the CUDA implementation of `torch.ops.orinport`."""
    for name, function in (
        ("orinport::dcnv4", _forward),
        ("orinport::dcnv4_backward", _backward),
        ("orinport::flash_deform_attn", _attention),
    ):
        torch.library.impl(name, "cuda", function)


def _forward(value: torch.Tensor, offset_mask: torch.Tensor, *arguments: Any) -> torch.Tensor:
    geometry = Geometry.of_arguments(arguments)
    try:
        return dcnv4_cuda(value.contiguous(), offset_mask.contiguous(), geometry, fast=_accuracy == "fast")
    except CudaUnavailableError as error:
        from orinport.dcnv4.ops import _dcnv4_default

        _warn(str(error))
        return _dcnv4_default(value, offset_mask, *arguments)


def _backward(
    gradient: torch.Tensor, value: torch.Tensor, offset_mask: torch.Tensor, *arguments: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    geometry = Geometry.of_arguments(arguments)
    try:
        deterministic = torch.are_deterministic_algorithms_enabled()
        return dcnv4_backward_cuda(gradient, value, offset_mask, geometry, deterministic=deterministic)
    except CudaUnavailableError as error:
        from orinport.dcnv4.ops import _dcnv4_backward_default

        _warn(str(error))
        return _dcnv4_backward_default(gradient, value, offset_mask, *arguments)


def _attention(
    value: torch.Tensor, shapes: torch.Tensor, starts: torch.Tensor, sampling_loc_attn: torch.Tensor, points: int
) -> torch.Tensor:
    try:
        return flash_deform_attn_cuda(value, shapes, starts, sampling_loc_attn, points)
    except CudaUnavailableError as error:
        from orinport.dcnv4.ops import _flash_default

        _warn(str(error))
        return _flash_default(value, shapes, starts, sampling_loc_attn, points)


@lru_cache(maxsize=64)
def _warn(reason: str) -> None:
    warnings.warn(
        f"the CUDA kernels of DCNv4 are not used: {reason}; slower PyTorch operations take their place",
        RuntimeWarning,
        stacklevel=2,
    )
