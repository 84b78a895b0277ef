"""Limits of the DLA that rewrites build for, computed from the acceptance catalogue's numbers."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orinport.rewrites.context import RewriteContext

__all__ = ["buffer_banks", "fits_buffer"]


def buffer_banks(
    context: RewriteContext, channels: int, width: int, kernel: tuple[int, int] = (1, 1), dilation: int = 1
) -> int:
    """Banks of the convolution buffer that a convolution takes by the estimate of row C10a.

    `channels` and `width` are the input's, `kernel` is (height, width), `dilation` the vertical one.
    """

    def number(key: str) -> int:
        return int(context.limit("C10a", key))

    element = int(context.limit("C10a", "element_bytes")[context.precision.value])
    align = number("weight_alignment_bytes")
    weights = ceil(ceil(channels * kernel[0] * kernel[1] * element / align) * align / number("bank_bytes"))
    entries = ceil(ceil(channels * element / number("atom_bytes")) * width / number("atoms_per_entry"))
    rows = (kernel[0] - 1) * dilation + 1
    return weights + ceil(entries * rows / number("entries_per_bank"))


def fits_buffer(
    context: RewriteContext, channels: int, width: int, kernel: tuple[int, int] = (1, 1), dilation: int = 1
) -> bool:
    """Whether the convolution stays below the number of banks from which the build is known to be at risk."""
    return buffer_banks(context, channels, width, kernel, dilation) < int(context.limit("CF05", "warn_from"))
