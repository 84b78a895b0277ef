"""Limits of the DLA that rewrites build for, computed from the acceptance catalogue's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.targets.buffer import buffer_banks

if TYPE_CHECKING:
    from orinport.rewrites.context import RewriteContext

__all__ = ["factors", "fits_buffer"]


def factors(size: int, limit: int) -> tuple[int, ...] | None:
    """`size` as a product of numbers up to `limit`, the largest first; None if it has a larger prime factor."""
    found: list[int] = []
    while size > 1:
        factor = next((each for each in range(min(limit, size), 1, -1) if size % each == 0), None)
        if factor is None:
            return None
        found.append(factor)
        size //= factor
    return tuple(found)


def fits_buffer(
    context: RewriteContext, channels: int, width: int, kernel: tuple[int, int] = (1, 1), dilation: int = 1
) -> bool:
    """Whether the convolution stays below the number of banks from which the build is known to be at risk.

    `channels` and `width` are the input's, `kernel` is (height, width), `dilation` the vertical one.
    """
    banks = buffer_banks(
        context.limits("C10a"), context.precision, channels=channels, width=width, kernel=kernel, dilation=dilation
    )
    return banks.total < int(context.limit("CF05", "warn_from"))
