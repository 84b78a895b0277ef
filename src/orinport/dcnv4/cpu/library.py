"""The compiled kernels as Python functions on addresses. Element types are `f32` and `f64`."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from orinport.dcnv4.arguments import DeformAttnArguments, Geometry

__all__ = ["Library"]

_INT64 = ctypes.c_int64


_DCNV4_NUMBERS = (
    *("batch", "height", "width", "rows", "columns", "offset_width"),
    *("kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w"),
    *("group", "group_channels", "remove_center"),
)
_FLASH_NUMBERS = ("batch", "rows", "queries", "group", "channels", "levels", "points")


class _DCNv4Arguments(ctypes.Structure):
    _fields_ = (*((name, _INT64) for name in _DCNV4_NUMBERS), ("offset_scale", ctypes.c_double))


class _FlashArguments(ctypes.Structure):
    _fields_ = tuple((name, _INT64) for name in _FLASH_NUMBERS)


class Library:
    """The functions of deform.c. Tensors are given as addresses of contiguous memory of the right size."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        for name in ("dcnv4_forward", "dcnv4_backward", "flash_forward", "flash_backward"):
            for kind in ("f32", "f64"):
                getattr(self._library, f"{name}_{kind}").restype = None

    def dcnv4(
        self,
        function: str,
        geometry: Geometry,
        value: Sequence[int],
        offset_mask: Sequence[int],
        addresses: Sequence[int],
        threads: int,
    ) -> None:
        """Run `forward_KIND` or `backward_KIND` of DCNv4; `value` and `offset_mask` are shapes.

        `addresses`: value, offset_mask, output; backward: value, offset_mask, the output's gradient, then the two
        gradients, which come zeroed. Raises OrinportError if the shapes do not belong together.
        """
        batch, rows, columns, width = geometry.check(value, offset_mask)
        arguments = _DCNv4Arguments(
            batch,
            value[1],
            value[2],
            rows,
            columns,
            width,
            *geometry.window,
            geometry.group,
            geometry.group_channels,
            int(geometry.remove_center),
            geometry.offset_scale,
        )
        grid_x, grid_y = _tap_grid(geometry)
        taps = _INT64(geometry.taps)
        self._call(f"dcnv4_{function}", ctypes.byref(arguments), grid_x, grid_y, taps, addresses, threads)

    def flash(
        self,
        function: str,
        arguments: DeformAttnArguments,
        starts: Sequence[int],
        value: Sequence[int],
        sampling_loc_attn: Sequence[int],
        addresses: Sequence[int],
        threads: int,
    ) -> None:
        """Run `forward_KIND` or `backward_KIND` of FlashDeformAttn; `value` and `sampling_loc_attn` are shapes.

        `addresses`: value, sampling_loc_attn, output; backward: value, sampling_loc_attn, the output's gradient, then
        the two gradients, the first one zeroed. Raises OrinportError if the shapes do not belong together.
        """
        batch, queries, group, channels = arguments.check(value, starts, sampling_loc_attn)
        levels = len(arguments.levels)
        numbers = _FlashArguments(batch, value[1], queries, group, channels, levels, arguments.points)
        shapes = (_INT64 * (2 * levels))(*(size for level in arguments.levels for size in level))
        self._call(f"flash_{function}", ctypes.byref(numbers), shapes, (_INT64 * levels)(*starts), addresses, threads)

    def _call(self, name: str, *rest: Any) -> None:
        *head, addresses, threads = rest
        pointers = [ctypes.c_void_p(address) for address in addresses]
        getattr(self._library, name)(*head, *pointers, ctypes.c_int(threads))


@lru_cache(maxsize=256)
def _tap_grid(geometry: Geometry) -> tuple[Any, Any]:
    """x and y of every tap relative to the kernel's centre, in the order of the packing."""
    array = ctypes.c_int32 * geometry.taps
    y, x = zip(*geometry.tap_offsets, strict=True)
    return array(*x), array(*y)
