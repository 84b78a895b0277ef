"""The definition of DCNv4 and FlashDeformAttn: NumPy, float64, any geometry, no speed.

Everything else in this package and in the plugin is measured against these two functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.dcnv4.arguments import DeformAttnArguments, Geometry
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["flash_deform_attn_reference", "reference"]


def reference(
    value: ArrayLike,
    offset_mask: ArrayLike,
    *,
    kernel: tuple[int, int] = (3, 3),
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    group: int,
    group_channels: int,
    offset_scale: float = 1.0,
    remove_center: bool = False,
) -> NDArray[np.float64]:
    """DCNv4 in float64: `value` (N, H, W, G*D) and `offset_mask` (N, Ho, Wo, P) give (N, Ho, Wo, G*D).

    Group g owns the numbers 3*K*g .. 3*K*(g+1) of an `offset_mask` vector: K pairs (dx, dy), then K masks, tap
    k running down the kernel's columns first. With cw = dilation_w*(kernel_w-1)//2 (ch likewise) tap (j, i)
    of output pixel (oy, ox) samples, bilinearly and with zeros outside,

        x = ox*stride_w - pad_w + cw + offset_scale*(i*dilation_w - cw + dx)
        y = oy*stride_h - pad_h + ch + offset_scale*(j*dilation_h - ch + dy)

    and the output is the sum over the taps of mask times sample. A tap counts only if -1 < x < W and
    -1 < y < H; so a NaN or infinite coordinate gives 0. Numbers behind 3*G*K are never read.
    Raises OrinportError for arguments that do not belong together.
    """
    geometry = Geometry(group, group_channels, kernel, stride, padding, dilation, float(offset_scale), remove_center)
    images, vectors = _floats(value, "value"), _floats(offset_mask, "offset_mask")
    batch, rows, columns, _ = geometry.check(images.shape, vectors.shape)
    slices = vectors[..., : geometry.used_width].reshape(batch, rows, columns, group, 3 * geometry.taps)
    grouped = images.reshape(*images.shape[:3], group, group_channels)
    output = np.empty((batch, rows, columns, geometry.channels))
    with np.errstate(invalid="ignore", over="ignore"):
        for image in range(batch):
            output[image] = _one_image(grouped[image], slices[image], geometry).reshape(rows, columns, -1)
    return output


def _one_image(image: NDArray[np.float64], slices: NDArray[np.float64], geometry: Geometry) -> NDArray[np.float64]:
    """(H, W, G, D) and (Ho, Wo, G, 3*K) give (Ho, Wo, G, D)."""
    rows, columns = slices.shape[:2]
    first_y = (np.arange(rows) * geometry.stride[0] + geometry.origin[0])[:, None, None]
    first_x = (np.arange(columns) * geometry.stride[1] + geometry.origin[1])[None, :, None]
    masks = slices[..., 2 * geometry.taps :]
    total = np.zeros((rows, columns, geometry.group, geometry.group_channels))
    for tap, (tap_y, tap_x) in enumerate(geometry.tap_offsets):
        x = first_x + geometry.offset_scale * (tap_x + slices[..., 2 * tap])
        y = first_y + geometry.offset_scale * (tap_y + slices[..., 2 * tap + 1])
        total += _weighted_samples(image, y, x, masks[..., tap])
    return total


def flash_deform_attn_reference(
    value: ArrayLike,
    value_spatial_shapes: ArrayLike,
    value_level_start_index: ArrayLike,
    sampling_loc_attn: ArrayLike,
    *,
    points: int = 8,
) -> NDArray[np.float64]:
    """FlashDeformAttn in float64: multi-scale deformable attention with the softmax inside.

    `value` (B, N, G, D) holds the levels one after the other, level l of `value_spatial_shapes` (L, 2), rows
    (H, W), starting at row `value_level_start_index[l]`. `sampling_loc_attn` (B, Q, G, 3*L*K) holds L*K
    normalised locations (x, y), level major, then L*K logits in the same order; K is `points`. A location
    samples at x*W - 0.5, y*H - 0.5, bilinearly and with zeros outside; the softmax runs over all L*K logits.
    The result is (B, Q, G*D). Raises OrinportError for arguments that do not belong together.
    """
    arguments = DeformAttnArguments(_levels(value_spatial_shapes), points)
    starts = [int(start) for start in np.asarray(value_level_start_index).reshape(-1)]
    rows, vectors = _floats(value, "value"), _floats(sampling_loc_attn, "sampling_loc_attn")
    batch, queries, group, channels = arguments.check(rows.shape, starts, vectors.shape)
    samples = len(arguments.levels) * points
    weights = _softmax(vectors[..., 2 * samples :])
    output = np.zeros((batch, queries, group, channels))
    with np.errstate(invalid="ignore", over="ignore"):
        for image, level in np.ndindex(batch, len(starts)):
            height, width = arguments.levels[level]
            pixels = rows[image, starts[level] : starts[level] + height * width]
            pixels = pixels.reshape(height, width, group, channels)
            for sample in range(level * points, (level + 1) * points):
                x = vectors[image, :, :, 2 * sample] * width - 0.5
                y = vectors[image, :, :, 2 * sample + 1] * height - 0.5
                output[image] += _weighted_samples(pixels, y, x, weights[image, :, :, sample])
    return output.reshape(batch, queries, group * channels)


def _weighted_samples(
    image: NDArray[np.float64], y: NDArray[np.float64], x: NDArray[np.float64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Bilinear samples of `image` (H, W, G, D) at `y` and `x` (..., G), times `weight` (..., G): (..., G, D)."""
    height, width, group, _ = image.shape
    inside = (y > -1) & (y < height) & (x > -1) & (x < width)
    y, x = np.where(inside, y, 0.0), np.where(inside, x, 0.0)
    top, left = np.floor(y), np.floor(x)
    groups = np.broadcast_to(np.arange(group), y.shape)
    total = np.zeros((*y.shape, image.shape[3]))
    for corner_y, weight_y in ((top, 1 - (y - top)), (top + 1, y - top)):
        for corner_x, weight_x in ((left, 1 - (x - left)), (left + 1, x - left)):
            row, column = corner_y.astype(np.int64), corner_x.astype(np.int64)
            valid = inside & (row >= 0) & (row < height) & (column >= 0) & (column < width)
            corner = (weight * weight_y * weight_x)[..., None] * image[
                np.where(valid, row, 0), np.where(valid, column, 0), groups
            ]
            total += np.where(valid[..., None], corner, 0.0)
    return total


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    result: NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return result


def _levels(shapes: ArrayLike) -> tuple[tuple[int, int], ...]:
    array: NDArray[Any] = np.asarray(shapes)
    if array.ndim != 2 or array.shape[1] != 2:
        raise OrinportError(f"FlashDeformAttn: value_spatial_shapes must have shape (L, 2), not {array.shape}.")
    return tuple((int(height), int(width)) for height, width in array)


def _floats(data: ArrayLike, name: str) -> NDArray[np.float64]:
    array: NDArray[Any] = np.asarray(data)
    if array.dtype.kind == "c":
        raise OrinportError(f"{name} must hold real numbers, not {array.dtype}.")
    try:
        return np.ascontiguousarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise OrinportError(f"{name} must hold numbers, not {array.dtype}.") from error
