"""Limits of the DLA that rewrites build for, computed from the acceptance catalogue's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.targets.buffer import buffer_banks

if TYPE_CHECKING:
    from orinport.rewrites.context import RewriteContext

__all__ = ["fits_buffer"]


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
