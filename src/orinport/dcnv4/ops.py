"""The operators in PyTorch: `torch.ops.orinport.dcnv4` and `torch.ops.orinport.flash_deform_attn`.

They have shapes for tracing, gradients for all inputs, and work under torch.compile and torch.export. On a CPU
they run as compiled C (see `orinport.dcnv4.cpu`); where no kernel is registered for a device they run as PyTorch
operations. float16 and bfloat16 are computed in float32, coordinates and sums included, and rounded once.
"""

# mypy: allow-untyped-decorators

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from orinport.dcnv4.arguments import DeformAttnArguments, Geometry, check_gradient
from orinport.dcnv4.composed import dcnv4_composed, flash_deform_attn_composed
from orinport.dcnv4.cpu import kernels
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["GEOMETRY", "dcnv4", "flash_deform_attn"]

_HALF_TYPES = (torch.float16, torch.bfloat16)
_TYPES = (torch.float32, torch.float64, *_HALF_TYPES)
GEOMETRY = (
    "int[] kernel, int[] stride, int[] padding, int[] dilation, int group, int group_channels, "
    "float offset_scale, bool remove_center"
)
_ATTENTION = (
    "Tensor value, Tensor value_spatial_shapes, Tensor value_level_start_index, Tensor sampling_loc_attn, int points"
)
torch.library.define("orinport::dcnv4", f"(Tensor value, Tensor offset_mask, {GEOMETRY}) -> Tensor")
torch.library.define(
    "orinport::dcnv4_backward", f"(Tensor gradient, Tensor value, Tensor offset_mask, {GEOMETRY}) -> (Tensor, Tensor)"
)
torch.library.define("orinport::flash_deform_attn", f"({_ATTENTION}) -> Tensor")
torch.library.define("orinport::flash_deform_attn_backward", f"(Tensor gradient, {_ATTENTION}) -> (Tensor, Tensor)")


def dcnv4(
    value: torch.Tensor,
    offset_mask: torch.Tensor,
    *,
    kernel: tuple[int, int] = (3, 3),
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    group: int,
    group_channels: int,
    offset_scale: float = 1.0,
    remove_center: bool = False,
) -> torch.Tensor:
    """DCNv4 as `orinport.dcnv4.reference` defines it, on tensors of one floating-point type.

    A float16 or bfloat16 value may also come with an offset_mask in float32.
    `value` (N, H, W, G*D) and `offset_mask` (N, Ho, Wo, P) give (N, Ho, Wo, G*D). Differentiable in both.
    Raises OrinportError for arguments that do not belong together.
    """
    result: torch.Tensor = torch.ops.orinport.dcnv4(
        value, offset_mask, kernel, stride, padding, dilation, group, group_channels, offset_scale, remove_center
    )
    return result


def flash_deform_attn(
    value: torch.Tensor,
    value_spatial_shapes: torch.Tensor,
    value_level_start_index: torch.Tensor,
    sampling_loc_attn: torch.Tensor,
    *,
    points: int = 8,
) -> torch.Tensor:
    """FlashDeformAttn as `orinport.dcnv4.flash_deform_attn_reference` defines it.

    `value` (B, N, G, D), `value_spatial_shapes` (L, 2) and `value_level_start_index` (L) of int64, and
    `sampling_loc_attn` (B, Q, G, 3*L*K) give (B, Q, G*D). Differentiable in value and sampling_loc_attn.
    """
    result: torch.Tensor = torch.ops.orinport.flash_deform_attn(
        value, value_spatial_shapes, value_level_start_index, sampling_loc_attn, points
    )
    return result


def _attention(shapes: torch.Tensor, starts: torch.Tensor, points: int) -> tuple[DeformAttnArguments, list[int]]:
    if shapes.dim() != 2 or shapes.shape[1] != 2:
        raise OrinportError(f"FlashDeformAttn: value_spatial_shapes must have shape (L, 2), not {tuple(shapes.shape)}.")
    if any(t.is_floating_point() or t.is_complex() or t.dtype == torch.bool for t in (shapes, starts)):
        raise OrinportError("FlashDeformAttn: spatial shapes and level starts must be tensors of whole numbers.")
    levels = tuple((height, width) for height, width in shapes.tolist())
    return DeformAttnArguments(levels, points), starts.reshape(-1).tolist()


def _check_types(operator: str, value: torch.Tensor, numbers: torch.Tensor) -> None:
    if value.dtype not in _TYPES:
        raise OrinportError(f"{operator}: value must be of a floating-point type, not {value.dtype}.")
    mixed = value.dtype in _HALF_TYPES and numbers.dtype == torch.float32
    if numbers.dtype != value.dtype and not mixed:
        raise OrinportError(
            f"{operator}: both inputs must be of one type, or a half type and float32, "
            f"not {value.dtype} and {numbers.dtype}."
        )
    if value.layout != torch.strided or numbers.layout != torch.strided:
        raise OrinportError(f"{operator}: both inputs must be dense, not {value.layout} and {numbers.layout}.")
    if numbers.device != value.device:
        raise OrinportError(f"{operator}: both inputs must be on one device, not {value.device} and {numbers.device}.")


def _prepare(*tensors: torch.Tensor) -> tuple[str, list[torch.Tensor]]:
    """The kernels' element type, and the tensors contiguous and in that type."""
    if tensors[0].dtype == torch.float64:
        return "f64", [tensor.contiguous() for tensor in tensors]
    return "f32", [tensor.float().contiguous() for tensor in tensors]


def _addresses(*tensors: torch.Tensor) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


# DCNv4


def _dcnv4_default(value: torch.Tensor, offset_mask: torch.Tensor, *arguments: Any) -> torch.Tensor:
    _check_types("DCNv4", value, offset_mask)
    return dcnv4_composed(value, offset_mask, Geometry.of_arguments(arguments))


def _check_dcnv4_backward(
    gradient: torch.Tensor, value: torch.Tensor, offset_mask: torch.Tensor, arguments: tuple[Any, ...]
) -> Geometry:
    _check_types("DCNv4", value, offset_mask)
    geometry = Geometry.of_arguments(arguments)
    batch, rows, columns, _ = geometry.check(value.shape, offset_mask.shape)
    check_gradient("DCNv4", gradient, value, (batch, rows, columns, geometry.channels))
    return geometry


def _dcnv4_backward_default(
    gradient: torch.Tensor, value: torch.Tensor, offset_mask: torch.Tensor, *arguments: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    geometry = _check_dcnv4_backward(gradient, value, offset_mask, arguments)
    return _differentiate(lambda v, o: dcnv4_composed(v, o, geometry), gradient, value, offset_mask)


def _dcnv4_cpu(value: torch.Tensor, offset_mask: torch.Tensor, *arguments: Any) -> torch.Tensor:
    library = kernels()
    if library is None:
        return _dcnv4_default(value, offset_mask, *arguments)
    _check_types("DCNv4", value, offset_mask)
    geometry = Geometry.of_arguments(arguments)
    batch, rows, columns, _ = geometry.check(value.shape, offset_mask.shape)
    kind, (work, vectors) = _prepare(value, offset_mask)
    output = work.new_empty((batch, rows, columns, geometry.channels))
    addresses = _addresses(work, vectors, output)
    library.dcnv4(f"forward_{kind}", geometry, work.shape, vectors.shape, addresses, torch.get_num_threads())
    return output.to(value.dtype)


def _dcnv4_backward_cpu(
    gradient: torch.Tensor, value: torch.Tensor, offset_mask: torch.Tensor, *arguments: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    library = kernels()
    if library is None:
        return _dcnv4_backward_default(gradient, value, offset_mask, *arguments)
    geometry = _check_dcnv4_backward(gradient, value, offset_mask, arguments)
    kind, (work, vectors, upstream) = _prepare(value, offset_mask, gradient)
    gradients = torch.zeros_like(work), torch.zeros_like(vectors)
    library.dcnv4(
        f"backward_{kind}",
        geometry,
        work.shape,
        vectors.shape,
        _addresses(work, vectors, upstream, *gradients),
        torch.get_num_threads(),
    )
    return gradients[0].to(value.dtype), gradients[1].to(offset_mask.dtype)


@torch.library.register_fake("orinport::dcnv4")
def _dcnv4_fake(value: torch.Tensor, offset_mask: torch.Tensor, *arguments: Any) -> torch.Tensor:
    _check_types("DCNv4", value, offset_mask)
    geometry = Geometry.of_arguments(arguments)
    batch, rows, columns, _ = geometry.check(value.shape, offset_mask.shape)
    return value.new_empty((batch, rows, columns, geometry.channels))


@torch.library.register_fake("orinport::dcnv4_backward")
def _dcnv4_backward_fake(
    gradient: torch.Tensor,  # noqa: ARG001
    value: torch.Tensor,
    offset_mask: torch.Tensor,
    *_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    return value.new_empty(value.shape), offset_mask.new_empty(offset_mask.shape)


def _dcnv4_save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs[:2])
    ctx.arguments = inputs[2:]


def _dcnv4_gradients(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    gradients: tuple[torch.Tensor | None, ...]
    if torch.is_grad_enabled():  # they will be differentiated again
        geometry = Geometry.of_arguments(ctx.arguments)
        gradients = _differentiable(lambda v, o: dcnv4_composed(v, o, geometry), gradient, *ctx.saved_tensors)
    else:
        gradients = torch.ops.orinport.dcnv4_backward(gradient, *ctx.saved_tensors, *ctx.arguments)
    return (*gradients, *(None for _ in ctx.arguments))


torch.library.register_autograd("orinport::dcnv4", _dcnv4_gradients, setup_context=_dcnv4_save)


# FlashDeformAttn


def _flash_default(
    value: torch.Tensor, shapes: torch.Tensor, starts: torch.Tensor, sampling_loc_attn: torch.Tensor, points: int
) -> torch.Tensor:
    _check_types("FlashDeformAttn", value, sampling_loc_attn)
    arguments, first_rows = _attention(shapes, starts, points)
    return flash_deform_attn_composed(value, first_rows, sampling_loc_attn, arguments)


def _flash_backward_default(
    gradient: torch.Tensor,
    value: torch.Tensor,
    shapes: torch.Tensor,
    starts: torch.Tensor,
    sampling_loc_attn: torch.Tensor,
    points: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    _check_types("FlashDeformAttn", value, sampling_loc_attn)
    arguments, first_rows = _attention(shapes, starts, points)
    batch, queries, group, channels = arguments.check(value.shape, first_rows, sampling_loc_attn.shape)
    check_gradient("FlashDeformAttn", gradient, value, (batch, queries, group * channels))
    return _differentiate(
        lambda v, s: flash_deform_attn_composed(v, first_rows, s, arguments), gradient, value, sampling_loc_attn
    )


def _flash_cpu(
    value: torch.Tensor, shapes: torch.Tensor, starts: torch.Tensor, sampling_loc_attn: torch.Tensor, points: int
) -> torch.Tensor:
    library = kernels()
    if library is None:
        return _flash_default(value, shapes, starts, sampling_loc_attn, points)
    _check_types("FlashDeformAttn", value, sampling_loc_attn)
    arguments, first_rows = _attention(shapes, starts, points)
    batch, queries, group, channels = arguments.check(value.shape, first_rows, sampling_loc_attn.shape)
    kind, (work, vectors) = _prepare(value, sampling_loc_attn)
    output = work.new_empty((batch, queries, group * channels))
    library.flash(
        f"forward_{kind}",
        arguments,
        first_rows,
        work.shape,
        vectors.shape,
        _addresses(work, vectors, output),
        torch.get_num_threads(),
    )
    return output.to(value.dtype)


def _flash_backward_cpu(
    gradient: torch.Tensor,
    value: torch.Tensor,
    shapes: torch.Tensor,
    starts: torch.Tensor,
    sampling_loc_attn: torch.Tensor,
    points: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    library = kernels()
    if library is None:
        return _flash_backward_default(gradient, value, shapes, starts, sampling_loc_attn, points)
    _check_types("FlashDeformAttn", value, sampling_loc_attn)
    arguments, first_rows = _attention(shapes, starts, points)
    batch, queries, group, channels = arguments.check(value.shape, first_rows, sampling_loc_attn.shape)
    check_gradient("FlashDeformAttn", gradient, value, (batch, queries, group * channels))
    kind, (work, vectors, upstream) = _prepare(value, sampling_loc_attn, gradient)
    gradients = torch.zeros_like(work), torch.zeros_like(vectors)
    library.flash(
        f"backward_{kind}",
        arguments,
        first_rows,
        work.shape,
        vectors.shape,
        _addresses(work, vectors, upstream, *gradients),
        torch.get_num_threads(),
    )
    return gradients[0].to(value.dtype), gradients[1].to(sampling_loc_attn.dtype)


@torch.library.register_fake("orinport::flash_deform_attn")
def _flash_fake(
    value: torch.Tensor, shapes: torch.Tensor, starts: torch.Tensor, sampling_loc_attn: torch.Tensor, points: int
) -> torch.Tensor:
    _check_types("FlashDeformAttn", value, sampling_loc_attn)
    if starts.shape[0] != shapes.shape[0] or sampling_loc_attn.shape[3] != 3 * shapes.shape[0] * points:
        raise OrinportError(
            f"FlashDeformAttn: sampling_loc_attn of shape {tuple(sampling_loc_attn.shape)} does not fit "
            f"{shapes.shape[0]} levels with {points} points."
        )
    batch, _, group, channels = value.shape
    return value.new_empty((batch, sampling_loc_attn.shape[1], group * channels))


@torch.library.register_fake("orinport::flash_deform_attn_backward")
def _flash_backward_fake(
    gradient: torch.Tensor,  # noqa: ARG001
    value: torch.Tensor,
    shapes: torch.Tensor,  # noqa: ARG001
    starts: torch.Tensor,  # noqa: ARG001
    sampling_loc_attn: torch.Tensor,
    points: int,  # noqa: ARG001
) -> tuple[torch.Tensor, torch.Tensor]:
    return value.new_empty(value.shape), sampling_loc_attn.new_empty(sampling_loc_attn.shape)


def _flash_save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs[:4])
    ctx.points = inputs[4]


def _flash_gradients(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    if torch.is_grad_enabled():
        value, shapes, starts, samples = ctx.saved_tensors
        arguments, first_rows = _attention(shapes, starts, ctx.points)
        for_value, for_samples = _differentiable(
            lambda v, n: flash_deform_attn_composed(v, first_rows, n, arguments), gradient, value, samples
        )
    else:
        for_value, for_samples = torch.ops.orinport.flash_deform_attn_backward(gradient, *ctx.saved_tensors, ctx.points)
    return for_value, None, None, for_samples, None


torch.library.register_autograd("orinport::flash_deform_attn", _flash_gradients, setup_context=_flash_save)


def _differentiable(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], gradient: torch.Tensor, *inputs: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of a function of two tensors that can be differentiated again; None for an input that needs none."""
    needed = [tensor for tensor in inputs if tensor.requires_grad]
    found = iter(torch.autograd.grad(function(*inputs), needed, gradient, create_graph=True))
    return tuple(next(found) if tensor.requires_grad else None for tensor in inputs)


def _differentiate(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], gradient: torch.Tensor, *inputs: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of a function of two tensors by PyTorch's own differentiation."""
    with torch.enable_grad():
        first, second = (tensor.detach().requires_grad_() for tensor in inputs)
        gradients: tuple[torch.Tensor, torch.Tensor] = torch.autograd.grad(
            function(first, second), (first, second), gradient
        )
    return gradients


for _name, _kind, _function in (
    ("orinport::dcnv4", "default", _dcnv4_default),
    ("orinport::dcnv4_backward", "default", _dcnv4_backward_default),
    ("orinport::dcnv4", "cpu", _dcnv4_cpu),
    ("orinport::dcnv4_backward", "cpu", _dcnv4_backward_cpu),
    ("orinport::flash_deform_attn", "default", _flash_default),
    ("orinport::flash_deform_attn_backward", "default", _flash_backward_default),
    ("orinport::flash_deform_attn", "cpu", _flash_cpu),
    ("orinport::flash_deform_attn_backward", "cpu", _flash_backward_cpu),
):
    torch.library.impl(_name, _kind, _function)

if torch.cuda.is_available():
    with contextlib.suppress(ImportError):
        import_module("orinport.dcnv4.cuda").register()
