"""The convolution buffer (CBUF): what TensorRT estimates that a convolution needs of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orinport.targets.target import Precision

__all__ = ["Banks", "buffer_banks"]


@dataclass(frozen=True, slots=True)
class Banks:
    """What a convolution needs of the convolution buffer, in banks."""

    weights: int
    data: int

    @property
    def total(self) -> int:
        """Banks for one kernel and for the input rows that it covers."""
        return self.weights + self.data


def buffer_banks(
    row: Mapping[str, Any],
    precision: Precision,
    *,
    channels: int,
    width: int,
    kernel: tuple[int, int] = (1, 1),
    dilation: int = 1,
) -> Banks:
    """TensorRT's estimate of the buffer that a convolution needs before the DLA compiler sees it.

    `row` holds the numbers of row C10a. `channels` and `width` are those of the input, `kernel` is (height, width),
    `dilation` the vertical one. One kernel is rounded up to `weight_alignment_bytes` and fills banks of `bank_bytes`;
    the input rows under the dilated kernel are stored in entries of `atoms_per_entry` atoms of `atom_bytes`,
    `entries_per_bank` to a bank. Source: TensorRT 8.4 Developer Guide, chapter 12.
    """
    element, align = row["element_bytes"][precision.value], row["weight_alignment_bytes"]
    height, across = kernel
    kernel_bytes = _ceil(channels * height * across * element, align) * align
    entries = _ceil(_ceil(channels * element, row["atom_bytes"]) * width, row["atoms_per_entry"])
    rows = (height - 1) * dilation + 1
    return Banks(
        weights=_ceil(kernel_bytes, row["bank_bytes"]),
        data=_ceil(entries * rows, row["entries_per_bank"]),
    )


def _ceil(value: int, divisor: int) -> int:
    return -(-value // divisor)
